"""``callboard groups explain``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command_helpers import Command, command
from confluent_kafka import Consumer
from recorder.samples import BILLING, record

from callboard import Coordinator
from callboard.actors.recorder.expiries import ExpiredOffsets
from callboard.actors.recorder.explanation import explain
from callboard.actors.recorder.now import GroupNow, OffsetsNow, Subscriptions, TopicsNow
from callboard.actors.recorder.record import LateMember, MemberChanges, Moves
from callboard.runtime.cli.groups.commands import main
from callboard.runtime.cli.groups.explain import print_explanation
from callboard.runtime.disk.disk import Disk
from callboard.runtime.kafka.api import api_versions
from callboard.runtime.node.event_files import EventFiles
from callboard.runtime.topics.known import needs_lag, with_missing_topics


class Limits:
    events_retention_bytes = 1_000_000
    events_retention_ms = 10**12


@pytest.fixture
def data(tmp_path: Path) -> Path:
    files = EventFiles(Disk(), tmp_path, Limits())
    evil = BILLING._replace(client_id="evil\x1b[2J")
    late = MemberChanges(late=(LateMember(BILLING, 45_000),))
    moves = Moves((("a", 3),), 12, 3, 0, (("orders", 2),), 1000)
    for number in range(7):
        slow = record("session_expired", evil, number, members=late, moves=moves, phases_ms=(("join", 45_000),))
        files.append([slow], 1000 + number)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return command(main, capsys)


def test_prints_the_sentence_and_the_last_rebalances(data: Path, run: Command) -> None:
    code, output, _ = run("explain", "orders", "--data", data, "--limit", 2)
    assert code == 0
    sentence, blank, titles, *rows = output.splitlines()
    assert sentence.startswith("Rebalanced at 12:00:06 UTC, ")
    assert r"because evil\x1b[2J (10.0.0.7) sent no heartbeat within its session timeout" in sentence
    assert sentence.endswith("; its members took 45 s to rejoin.")
    assert (blank, titles.split()[:4]) == ("", ["ended", "generation", "outcome", "cause"])
    assert len(rows) == 2
    cells = "T12:00:06.000Z", "stable", "session_expired", "join 45 s", "3 of 12", "billing-1 (10.0.0.7) after 45 s"
    assert [cell for cell in cells if cell not in rows[0]] == []
    assert "\x1b" not in output


def test_json_has_all_fields(data: Path, run: Command) -> None:
    printed = json.loads(run("explain", "orders", "--data", data, "--json").out)
    assert set(printed) == {"group", "sentence", "now", "findings", "rebalances"}
    assert len(printed["rebalances"]) == 7
    assert printed["rebalances"][0]["by"]["client_id"] == "evil\x1b[2J"
    assert printed["rebalances"][0]["moves"]["moved_partitions"] == [["orders", 2]]


def test_group_without_records_says_what_is_needed(data: Path, run: Command) -> None:
    code, _, error = run("explain", "absent", "--data", data)
    assert code == 2
    assert f"no rebalance of group 'absent' is recorded in '{data}/events'" in error


def test_fifo_among_the_files_is_left_out(data: Path, run: Command) -> None:
    fifo = data / "events" / f"{2000:020}.jsonl"
    os.mkfifo(fifo)
    code, output, error = run("explain", "orders", "--data", data)
    assert (code, output.startswith("Rebalanced at 12:00:06 UTC")) == (0, True)
    assert error == f"callboard: warning: '{fifo}' is left out: found a FIFO, expected a file\n"


def test_asks_a_server_for_what_happens_now(run: Command) -> None:
    with (
        Coordinator.in_thread(None, "127.0.0.1:0", group_initial_rebalance_delay_ms=0) as coordinator,
        coordinator.member("jobs", resources={"orders": 2}) as member,
    ):
        next(iter(member.assignments()))
        server = ("--bootstrap-server", coordinator.bootstrap)
        code, output, _ = run("explain", "jobs", *server)
        assert (code, "joined; it is stable with 1 member" in output) == (0, True)
        assert json.loads(run("explain", "jobs", *server, "--json").out)["now"]["state"] == "Stable"
        code, _, error = run("explain", "absent", *server)
        assert (code, "group 'absent': there is no such group" in error) == (1, True)


def test_lag_and_missing_topics_are_those_that_the_server_knows(run: Command) -> None:
    with Coordinator.in_thread(None, "127.0.0.1:0", topics={"orders": 2}) as coordinator:
        server = ("--bootstrap-server", coordinator.bootstrap)
        coordinator.reset("old", {("orders", 0): 0})
        lines = run("explain", "old", *server).out.splitlines()
        since = "since the server was started or took over the group"
        assert lines[:2] == [f"No rebalance is recorded {since}; it has no members.", ""]
        assert len(lines) == 4
        assert [line.split() for line in lines[-2:]] == [
            ["offsets", "1", "committed"],
            ["lag", "0", "records"],
        ]
        consumer = Consumer(
            {"bootstrap.servers": coordinator.bootstrap, "group.id": "jobs", "group.protocol": "consumer"}
        )
        consumer.subscribe(["ordres"])
        try:
            # The members and the missing topics are answers of two requests: the member may join between them.
            output = ""
            while not ("missing_topic" in output and "rdkafka-" in output):
                consumer.poll(0.05)
                output = run("explain", "jobs", *server).out
        finally:
            consumer.close()
        assert "members subscribe to the topic ordres, which does not exist" in output
        assert "User:ANONYMOUS" in output


def test_what_is_not_known_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    topics = Subscriptions(TopicsNow(("hidden",), untold=1))
    unknown = GroupNow(0, "Empty", 1, offsets=OffsetsNow(2, 3_600_000), subscriptions=topics)
    print_explanation("orders", explain([], unknown, 1), as_json=False)
    output = capsys.readouterr().out
    assert "offsets  2 committed; the first expires in 60 min" in output
    assert "lag      not known: the server that has the group has not all of its topics" in output
    assert "topics   you may not describe some that members subscribe to" in output


def test_group_whose_offsets_have_all_expired_has_no_offsets_and_no_lag(capsys: pytest.CaptureFixture[str]) -> None:
    expired = ExpiredOffsets(0, 3, ("orders",), with_members=False, ended_group=True)
    ended = GroupNow(60_000, "Dead", 0, offsets=OffsetsNow(0, expired=expired))
    assert not needs_lag(ended)
    explained = explain([], ended, 1)
    assert [finding.detector for finding in explained.findings] == ["offsets_expired"]
    print_explanation("orders", explained, as_json=False)
    output = capsys.readouterr().out
    assert "committed" not in output and "lag " not in output


def test_topics_that_the_asker_may_not_describe_are_not_told() -> None:
    both = GroupNow(0, "Stable", 1, subscriptions=Subscriptions(TopicsNow(("hidden", "missing", "known"))))
    found = with_missing_topics(both, "known".__eq__, "hidden".__ne__)
    assert found.subscriptions.topics == TopicsNow(("hidden", "missing", "known"), ("missing",), untold=1)


def test_server_without_the_request_is_told_apart(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_versions, "OWN_PREFIX", "nobody")
    with Coordinator.in_thread(None, "127.0.0.1:0") as coordinator:
        code, _, error = run("explain", "jobs", "--bootstrap-server", coordinator.bootstrap)
        assert (code, "is not a Callboard server of this version" in error) == (1, True)
