"""Restoring earlier offsets through a running server: target group, journal of changes, and undo."""

from __future__ import annotations

import importlib
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from groups_program import DEADLINE_S, GroupsCommand, assigned, filled_server, member_ids, program_at
from peers.server import ServerProcess
from peers.waiting import wait_until
from pyspark.sql import SparkSession

from callboard.runtime.client.cluster import Cluster, OffsetAndMetadata
from callboard.runtime.client.errors import ClientError
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.compaction.history import remove_history_mark
from callboard.runtime.log.reading.partition_reader import live_offsets, partition_folders
from callboard.runtime.settings.address import parse_address
from callboard.spark.commands import history as commands
from callboard.spark.history import HistoryTable, keep
from callboard.spark.history.changes import Change, OffsetChange, read_changes, record_end, record_start
from callboard.spark.history.restore import find_change_to_undo, plan_restore, plan_undo

importlib.import_module("hypothesis")  # which the command hides


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with filled_server(tmp_path_factory.mktemp("server")) as server:
        yield server


class History:
    """The command with a server and a table of its log."""

    def __init__(
        self, spark: SparkSession, server: ServerProcess, groups: GroupsCommand, table: Path, capsys: Any
    ) -> None:
        self.groups = groups
        self.table = table
        self._server = server
        self._capsys = capsys
        keep(spark, server.data, table)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        command_arguments = [*arguments, "--table", str(self.table), "--bootstrap-server", self._server.bootstrap]
        if arguments[0] == "restore":
            command_arguments += ["--data", str(self._server.data)]
        try:
            code: Any = commands.main(command_arguments)
        except StartError as error:
            return 2, self._capsys.readouterr().out, str(error)
        except SystemExit as exit:
            code = exit.code
        return int(code or 0), *self._capsys.readouterr()

    def now(self, group: str, **offsets: int) -> str:
        """The current time, once the log's files contain these offsets."""

        def written() -> dict[str, int]:
            live_by_partition = [live_offsets(folder) for folder in partition_folders(self._server.data).values()]
            return {
                f"{key[1]}_{key[2]}": value[1].offset
                for group_offsets in live_by_partition
                for key, value in group_offsets.items()
                if key[0] == group
            }

        wait_until(written, lambda offsets_in_log: offsets_in_log == offsets, "that the log's files have the commits")
        now = datetime.now(UTC).isoformat()
        time.sleep(0.002)  # times in the log have a resolution of 1 ms
        return now

    def committed(self, group: str) -> dict[str, int]:
        lines = self.groups("offsets", group, "--json").json
        return {f"{line['topic']}_{line['partition']}": line["committed"] for line in lines}

    def notes(self) -> list[Change]:
        return list(read_changes(HistoryTable.open(self.table)).values())


@pytest.fixture
def history(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[History]:
    with program_at(server, capsys) as groups:
        yield History(spark, server, groups, tmp_path / "table", capsys)
    remove_history_mark(Disk(), server.data)


def test_restore_and_undo_change_offsets(history: History) -> None:
    """Earlier offsets are restored, later ones kept; undo reverts only the offsets that were written."""
    history.groups.commit("shop", orders_0=5, orders_1=7)
    time = history.now("shop", orders_0=5, orders_1=7)
    history.groups.commit("shop", orders_0=50, refunds_0=3)

    code, out, err = history("restore", "--group", "shop", "--at", time, "--dry-run")
    assert (code, err) == (0, "") and "dry run: group 'shop': 1 offset written" in out
    assert history.committed("shop") == {"orders_0": 50, "orders_1": 7, "refunds_0": 3} and history.notes() == []

    code, out, _ = history("restore", "--group", "shop", "--at", time, "--reason", "a bad release")
    assert code == 0 and "group 'shop': 1 offset written, and verified" in out
    undo = out.rpartition("callboard history ")[2].split()
    assert undo[:3] == ["undo", "--table", str(history.table)]
    lines = {tuple(line.split()[:2]): line.split()[2:] for line in out.splitlines()[1:4]}
    assert lines["orders", "0"] == ["50", "5", "-"] and lines["orders", "1"] == ["7", "7", "unchanged"]
    assert lines["refunds", "0"][2] == "kept:"
    assert history.committed("shop") == {"orders_0": 5, "orders_1": 7, "refunds_0": 3}
    [note] = history.notes()
    assert (note.what, note.group, note.reason, note.ended) == ("restore", "shop", "a bad release", "done")
    assert "@" in note.who and note.offsets[0].before == OffsetAndMetadata(50, -1, "orders's")

    assert history("undo", "--reason", "it was not that")[0] == 0
    assert history.committed("shop") == {"orders_0": 50, "orders_1": 7, "refunds_0": 3}
    assert [note.of for note in history.notes()] == ["", note.change_id]
    code, _, err = history("undo")
    assert (code, err) == (1, "callboard: there is no restore that could be undone\n")
    assert "was already undone" in history("undo", "--id", note.change_id)[2]
    assert "there is no change 'x'" in history("undo", "--id", "x")[2]


def test_restore_to_another_group_and_undo_removes_its_offsets(history: History) -> None:
    history.groups.commit("shop", orders_0=5)
    time = history.now("shop", orders_0=5)
    code, out, _ = history("restore", "--group", "shop", "--at", time, "--to-group", "copy", "--json")
    assert code == 0 and json.loads(out)["group"] == "copy"
    assert history.committed("copy") == {"orders_0": 5}
    assert history("undo")[0] == 0
    assert history("restore", "--group", "shop", "--at", time)[1].endswith("already has these offsets\n")
    with Cluster(parse_address("", history.groups.server.bootstrap), DEADLINE_S) as cluster:
        assert cluster.committed("copy") == {}


def test_undo_after_other_commits_is_refused(history: History) -> None:
    history.groups.commit("shop", orders_0=5)
    time = history.now("shop", orders_0=5)
    history.groups.commit("shop", orders_0=50)
    assert history("restore", "--group", "shop", "--at", time)[0] == 0
    history.groups.commit("shop", orders_0=6)
    code, _, err = history("undo")
    assert code == 1 and "has changed since: orders:0 is at 6, expected the offsets written by restore" in err
    assert history.committed("shop") == {"orders_0": 6}
    assert history("undo", "--force")[0] == 0
    assert history.committed("shop") == {"orders_0": 50}


def test_restore_of_group_with_members_is_refused_without_fence(history: History) -> None:
    """The static member is removed, and its commits are refused."""
    history.groups.commit("shop", orders_0=5)
    time = history.now("shop", orders_0=5)
    history.groups.commit("shop", orders_0=50)
    history.groups.add_static_member("shop", assigned(orders=[0]))
    code, _, err = history("restore", "--group", "shop", "--at", time)
    assert code == 1 and "group 'shop' is Stable with 1 member" in err and "--fence" in err
    assert history.committed("shop") == {"orders_0": 50} and history.notes() == []
    assert history("restore", "--group", "shop", "--at", time, "--fence")[0] == 0
    assert history.committed("shop") == {"orders_0": 5}
    assert member_ids(history.groups.wire, "shop") == []


def test_fenced_consumer_continues_at_restored_offset(history: History) -> None:
    """It rejoins by itself, and reads from there."""
    from confluent_kafka import Consumer

    history.groups.commit("live", orders_0=5, orders_1=5)
    time = history.now("live", orders_0=5, orders_1=5)
    settings = {"bootstrap.servers": history.groups.server.bootstrap, "group.id": "live", "enable.auto.commit": False}
    consumer = Consumer({**settings, "heartbeat.interval.ms": 200, "session.timeout.ms": 6000})
    read_from: list[int] = []
    stop = threading.Event()

    def consume() -> None:
        while not stop.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None and message.partition() == 0:
                read_from.append(message.offset() or 0)
                if message.offset() == 99:
                    consumer.commit(message=message, asynchronous=False)

    consumer.subscribe(["orders"])
    thread = threading.Thread(target=consume)
    thread.start()
    try:
        wait_until(
            lambda: history.committed("live"), lambda committed: committed["orders_0"] == 100, "that it has read all"
        )
        code, _, err = history("restore", "--group", "live", "--at", time, "--fence")
        assert code == 0, err
        wait_until(lambda: read_from.count(5), lambda count: count == 2, "that it reads offset 5 again")
    finally:
        stop.set()
        thread.join(DEADLINE_S)
        consumer.close()


def test_restore_errors_are_one_line(
    history: History, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = history("restore", "--group", "nobody", "--at", "1h")
    assert code == 1 and "group 'nobody' had no offsets at" in err
    assert history("restore", "--group", "shop", "--at", "noon")[0] == 2
    assert history("undo", "--bootstrap-server", "127.0.0.1:1")[2].startswith("callboard: there is no restore")
    monkeypatch.setattr(commands, "session", None)  # the error is reported before Spark starts
    arguments = ("restore", "--table", str(history.table), "--group", "x", "--at", "1h", "-b", "127.0.0.1:1")
    for extra_arguments in ((), ("--dry-run",), ("--fence",)):
        assert commands.main([*arguments, *extra_arguments]) == 1
        assert capsys.readouterr().err.startswith("callboard: cannot reach 127.0.0.1:1")


# The plan and the notes, without a server ----------------------------------------------------------------------------

ONE, TWO, THREE = (OffsetAndMetadata(number, -1, "") for number in (1, 2, 3))
NOTE = Change(
    "abc", "restore", "g", "g", "then", "now", "me@here", "why", "h:1", "", (OffsetChange(("t", 0), ONE, TWO),)
)


def test_plan_restore() -> None:
    steps = plan_restore({("t", 0): ONE, ("t", 1): TWO}, {("t", 1): TWO, ("t", 2): THREE})
    assert [(step.change.after, step.is_changed) for step in steps] == [(ONE, True), (TWO, False), (THREE, False)]


def test_plan_undo_after_interrupted_restore() -> None:
    """Some offsets are written, others are not; both are accepted."""
    change = NOTE._replace(offsets=(OffsetChange(("t", 0), ONE, TWO), OffsetChange(("t", 1), None, TWO)))
    steps = plan_undo(change, {("t", 0): TWO}, force=False)
    assert [(step.change.after, step.is_changed) for step in steps] == [(ONE, True), (None, False)]
    with pytest.raises(ClientError, match="t:0 is at 3, expected the offsets written by restore abc"):
        plan_undo(change, {("t", 0): THREE}, force=False)


def test_undo_of_undo_makes_restore_effective_again() -> None:
    undo = NOTE._replace(change_id="u1", what="undo", of="abc", ended="done")
    second_undo = undo._replace(change_id="u2", of="u1")
    ended_note = NOTE._replace(ended="done")
    with pytest.raises(ClientError, match="no restore that could be undone"):
        find_change_to_undo({"abc": ended_note, "u1": undo}, None)
    assert find_change_to_undo({"abc": ended_note, "u1": undo, "u2": second_undo}, None) == ended_note
    with pytest.raises(ClientError, match="'u1' was already undone"):
        find_change_to_undo({"abc": ended_note, "u1": undo, "u2": second_undo}, "u1")
    assert find_change_to_undo({"abc": ended_note, "u1": undo._replace(ended="failed: x")}, None) == ended_note


def test_changes_file_torn_at_any_byte_is_readable(tmp_path: Path) -> None:
    """A torn line is ignored, and the next line is complete."""
    (tmp_path / "_callboard").mkdir()
    table: Any = HistoryTable.__new__(HistoryTable)
    table.path = tmp_path
    record_start(table, NOTE)
    record_end(table, "abc", "done")
    file = tmp_path / "_callboard" / "changes.jsonl"
    content = file.read_bytes()
    assert read_changes(table) == {"abc": NOTE._replace(ended="done")}
    for size in range(content.index(b"\n") + 1, len(content)):
        file.write_bytes(content[:size])
        assert read_changes(table) == {"abc": NOTE}
        record_end(table, "abc", "failed: why")
        assert read_changes(table) == {"abc": NOTE._replace(ended="failed: why")}
    file.write_bytes(b"[1]\n")
    with pytest.raises(StartError, match="line 1 is not a change"):
        read_changes(table)


def test_reason_that_is_not_utf_8_is_recorded(tmp_path: Path) -> None:
    """As an argument in the encoding of another terminal. It ended with a traceback, before anything was changed."""
    (tmp_path / "_callboard").mkdir()
    table: Any = HistoryTable.__new__(HistoryTable)
    table.path = tmp_path
    change = NOTE._replace(reason="caf\udce9 f\u00fcr")
    record_start(table, change)
    assert read_changes(table) == {"abc": change}


def test_changes_file_with_a_flipped_bit_is_refused_or_the_same(tmp_path: Path) -> None:
    """A changed digit would make `undo` write an offset that nobody had committed. Older files have no checksums."""
    (tmp_path / "_callboard").mkdir()
    table: Any = HistoryTable.__new__(HistoryTable)
    table.path = tmp_path
    record_start(table, NOTE._replace(offsets=(OffsetChange(("t", 0), ONE, TWO),)))
    record_end(table, "abc", "done")
    file, expected = tmp_path / "_callboard" / "changes.jsonl", read_changes(table)
    content = file.read_bytes()
    for at in range(len(content) - 1):  # without the last line's end it is torn
        for bit in (1, 4, 16):
            file.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
            try:
                assert read_changes(table) == expected, (at, bit)
            except StartError as error:
                assert "is not a change" in str(error)
    lines = [json.loads(line) for line in content.splitlines()]
    for line in lines:
        del line["checksum"]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_changes(table) == expected
