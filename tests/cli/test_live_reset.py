"""``callboard groups reset --evict``, ``watch``, ``resets``, ``undo`` and ``evict``, with consumers of librdkafka."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from groups_program import DEADLINE_S, CommandResult, GroupsCommand, fill, program_at
from peers.server import TEST_SETTINGS, ServerProcess
from peers.waiting import wait_until

from callboard.runtime.cli.groups import commands, http_client, live_reset
from callboard.runtime.client.errors import ClientError
from callboard.runtime.common.errors import StartError

SETTINGS = {
    **TEST_SETTINGS,
    "group_consumer_assignment_interval_ms": 0,
    "group_consumer_min_heartbeat_interval_ms": 1,
    "group_consumer_heartbeat_interval_ms": 200,
}
URL = re.compile(r"http://[^\s\"]+/api/v1")
CONSUMERS = ("first", "second")
PROTOCOLS = ("classic", "consumer")
TO = 40


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("live")
    options = ["--topic", "orders:2", "--topic", "refunds:1", "--web", "127.0.0.1:0"]
    with ServerProcess(folder, settings=SETTINGS, options=options) as server:
        fill(server)
        yield server


@pytest.fixture(scope="module")
def url(server: ServerProcess) -> str:
    found = URL.search((server.data.parent / "stderr.txt").read_text())
    assert found is not None
    return found[0]


class Program:
    """``callboard groups`` in this process, at the HTTP API."""

    def __init__(self, groups: GroupsCommand, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.groups = groups
        self._url = url
        self._capsys = capsys

    def __call__(self, *arguments: str, url: str | None = None) -> CommandResult:
        try:
            code: Any = commands.main([*arguments, "--http-api", url or self._url])
        except StartError as error:
            return CommandResult(2, self._capsys.readouterr().out, f"{error}\n")
        except SystemExit as end:
            code = end.code
        out, err = self._capsys.readouterr()
        return CommandResult(code or 0, out, err)


@pytest.fixture
def callboard(server: ServerProcess, url: str, capsys: pytest.CaptureFixture[str]) -> Iterator[Program]:
    with program_at(server, capsys) as groups:
        yield Program(groups, url, capsys)


class Consuming:
    """Consumers with auto commit on a thread. ``received``: partition and offset of each record, in order."""

    def __init__(self, server: ServerProcess, group: str, protocol: str) -> None:
        self.received: list[tuple[Any, Any]] = []
        self._stopping = threading.Event()
        self._consumers = [
            Consumer(
                {
                    "bootstrap.servers": server.bootstrap,
                    "group.id": group,
                    "client.id": name,
                    "auto.offset.reset": "earliest",
                    "auto.commit.interval.ms": 100,
                    "group.protocol": protocol,
                    **({"heartbeat.interval.ms": 100} if protocol == "classic" else {}),
                }
            )
            for name in CONSUMERS
        ]
        self._thread = threading.Thread(target=self._poll)

    def start(self) -> None:
        for consumer in self._consumers:
            consumer.subscribe(["orders"])
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        for consumer in self._consumers:
            consumer.close()

    def _poll(self) -> None:
        while not self._stopping.is_set():
            for consumer in self._consumers:
                message = consumer.poll(0.01)
                if message is not None and message.error() is None:
                    self.received.append((message.partition(), message.offset()))


@contextmanager
def consuming(server: ServerProcess, callboard: Program, protocol: str) -> Iterator[Consuming]:
    """Two consumers, each of which has consumed one partition and committed its end."""
    consumers = Consuming(server, "shop", protocol)
    consumers.start()
    try:
        wait_until(lambda: committed(callboard), {(0, 100), (1, 100)}.__eq__, "all records to be committed")
        yield consumers
    finally:
        consumers.stop()


def committed(callboard: Program) -> set[tuple[int, int]]:
    found = callboard.groups("offsets", "shop", "--json")
    return set() if found.code else {(row["partition"], row["committed"]) for row in found.json}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_running_consumers_go_on_at_the_new_offsets_and_back(
    server: ServerProcess, callboard: Program, protocol: str
) -> None:
    with consuming(server, callboard, protocol) as consumers:
        arguments = ("reset", "shop", "--topic", "orders", "--to-offset", str(TO), "--evict")
        plan = callboard(*arguments)
        assert plan.code == 0 and "dry run: 2 members would be removed, and 2 offsets of group 'shop' set" in plan.out
        assert "  127.0.0.1  " in plan.out
        assert committed(callboard) == {(0, 100), (1, 100)}
        consumers.received.clear()
        done = callboard(*arguments, "--execute", "--reason", "release 7 skipped orders", "--json").json
        assert done["progress"]["sentence"].startswith("2 of 2 members are back after ")
        assert done["progress"]["sentence"].endswith(" s, all positions fetched")
        wait_until(lambda: committed(callboard), {(0, 100), (1, 100)}.__eq__, "all records to be committed again")
        assert min(consumers.received) == (0, TO) and min(offset for _, offset in consumers.received) == TO
        listed = callboard("resets", "shop")
        assert done["change"] in listed.out and "release 7 skipped orders" in listed.out
        watched = callboard("watch", done["change"])
        assert (watched.code, watched.out) == (0, done["progress"]["sentence"] + "\n")
        undone = callboard("undo", done["change"], "--execute")
        assert undone.code == 0 and "2 of 2 members are back after" in undone.out
        again = callboard("undo", done["change"])
        assert again.code == 1 and "it was undone by change" in again.err


def test_targets_of_the_command(callboard: Program, tmp_path: Path) -> None:
    callboard.groups.commit("simple", orders_0=50, refunds_0=3)
    callboard.groups.commit("other", orders_0=7)
    file = tmp_path / "offsets.csv"
    file.write_text("group,topic,partition,offset,owner\nsimple,orders,0,30,x\n")
    for options, expected in (
        (["--topic", "orders", "--to-earliest"], {("orders", 0): 0, ("orders", 1): 0}),
        (["--topic", "orders:0", "--to-latest"], {("orders", 0): 100}),
        (["--topic", "orders:0", "--to-offset", "1000"], {("orders", 0): 100}),
        (["--all-topics", "--shift-by", "-2"], {("orders", 0): 48, ("refunds", 0): 1}),
        (["--topic", "orders:0", "--to-datetime", "2026-01-01T00:00:30"], {("orders", 0): 30}),
        (["--topic", "orders:0", "--to-offsets-of", "other"], {("orders", 0): 7}),
        (["--from-file", str(file)], {("orders", 0): 30}),
    ):
        plan = callboard("reset", "simple", *options, "--evict", "--json").json
        assert {(row["topic"], row["partition"]): row["after"] for row in plan["partitions"]} == expected, options
    refused = callboard("reset", "simple", "--topic", "orders", "--to-offsets-of", "other", "--evict")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "group 'other' has no committed offset of orders-1" in refused.err


def test_member_that_does_not_come_back_is_named(callboard: Program) -> None:
    callboard.groups.add_static_member("gone", b"")
    options = ("--topic", "orders:0", "--to-earliest", "--evict", "--execute", "--wait", "0.3")
    result = callboard("reset", "gone", *options)
    assert result.code == 1 and "0 of 1 member is back after 0." in result.out and "seat (127.0.0.1)" in result.out
    assert "not all members are back; `callboard groups watch " in result.err
    done = callboard("reset", "gone", *options, "--json").json
    assert done["guarded_until"] is not None
    assert callboard.groups("describe", "gone", "--json").json["guarded_until"] == done["guarded_until"]
    assert ["reset", "guarded", "until", done["guarded_until"]] in callboard.groups("describe", "gone").lines


def test_evict_needs_the_api_and_says_what_to_do_with_a_kafka(callboard: Program) -> None:
    result = callboard.groups("reset", "shop", "--topic", "orders", "--to-earliest", "--evict")
    assert result.code == 2
    assert "--evict needs --http-api URL" in result.err and "With a Kafka: stop the consumers" in result.err


@pytest.mark.parametrize("url", ["127.0.0.1:9095", "ftp://a", "http://", "http://a:x", "http://a/?b=c"])
def test_bad_url(url: str, callboard: Program) -> None:
    result = callboard("resets", "shop", url=url)
    assert result.code == 2 and f"--http-api '{url}': expected the address of serve --web" in result.err


def test_server_without_the_api(server: ServerProcess, callboard: Program) -> None:
    nothing = callboard("resets", "shop", url="http://127.0.0.1:1")
    assert nothing.code == 1 and "no HTTP API at http://127.0.0.1:1: " in nothing.err
    other = callboard("resets", "shop", "--timeout", "1", url=f"http://{server.bootstrap}")
    assert other.code == 1 and f"no HTTP API at http://{server.bootstrap}: " in other.err


def test_login_is_for_the_proxy_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    api = http_client.HttpApi("https://ann:s%40fe@example.com/groups/", DEADLINE_S)
    seen: list[str] = []

    def exchange(method: str, target: str, _body: bytes | None) -> tuple[int, bytes]:
        seen.extend((method, target, api._headers["Authorization"]))
        return 502, b"<html>"

    monkeypatch.setattr(api, "_exchange", exchange)
    with pytest.raises(ClientError) as raised:
        api.get("groups", "a/b", "resets")
    assert seen == ["GET", "/groups/api/v1/groups/a%2Fb/resets", "Basic YW5uOnNAZmU="]
    assert str(raised.value).startswith("https://example.com answers with status 502, and not as Callboard's")


def test_reset_without_a_record_names_no_id_to_undo_it(capsys: pytest.CaptureFixture[str]) -> None:
    """On a full disk the offsets may be set, and the record of the reset be lost."""
    done = {
        "group": "g",
        "change": None,
        "is_plan": False,
        "partitions": [{"topic": "t", "partition": 0, "before": 5, "after": 0, "note": None}],
        "members": [],
        "removed": [],
        "warnings": ["its record was lost"],
    }
    live_reset.show_and_watch(http_client.HttpApi("http://127.0.0.1:1/api/v1", 1.0), done, as_json=False, wait_s=1)
    assert "; to undo it: put the column 'before' into a file, and reset with --from-file\n" in capsys.readouterr().out
