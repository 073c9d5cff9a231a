"""Runs ``callboard groups`` in this process, against a server with some records."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from peers.server import TEST_SETTINGS, ServerProcess
from peers.wire import Wire

from callboard.runtime.cli.groups import commands
from callboard.runtime.common.errors import StartError

DEADLINE_S = 300.0
ENDS = {("orders", 0): 100, ("orders", 1): 100, ("refunds", 0): 10}
START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[list[str]]:
        assert self.code == 0, self.err
        return [line.split() for line in self.out.splitlines()]


class GroupsCommand:
    """Calls the command in this process; the server runs in another one."""

    def __init__(self, server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
        self.server = server
        self.wire = Wire(server.host, server.port)
        self._capsys = capsys

    def __call__(self, *arguments: str) -> CommandResult:
        return self.at(self.server.bootstrap, *arguments)

    def at(self, bootstrap: str, *arguments: str) -> CommandResult:
        try:
            code: Any = commands.main([*arguments, "--bootstrap-server", bootstrap])
        except StartError as error:
            return CommandResult(2, self._capsys.readouterr().out, f"{error}\n")
        except SystemExit as end:
            code = end.code
        out, err = self._capsys.readouterr()
        return CommandResult(code or 0, out, err)

    def commit(self, group: str, **offsets: int) -> None:
        """``orders_0=5`` commits 5 for partition 0 of orders."""
        topics = []
        for name, offset in offsets.items():
            topic, partition = name.split("_")
            row = {
                "partition_index": int(partition),
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": f"{topic}'s",
            }
            topics.append({"name": topic, "partitions": [row]})
        values = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        answer = self.wire.ask("offset_commit", 8, **values, topics=topics)
        assert {row["error_code"] for topic in answer["topics"] for row in topic["partitions"]} == {"NONE"}

    def add_consumer(self, group: str, member_id: str, topic: str, instance_id: str | None = None) -> int:
        """A member of the consumer protocol joins. Returns its epoch."""
        joined = self.wire.ask(
            "consumer_group_heartbeat",
            1,
            group_id=group,
            member_id=member_id,
            member_epoch=0,
            instance_id=instance_id,
            rack_id=None,
            rebalance_timeout=60_000,
            subscribed_topic_names=[topic],
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=[],
        )
        assert joined["error_code"] == "NONE", joined
        return int(joined["member_epoch"])

    def add_static_member(self, group: str, assignment: bytes) -> str:
        """Create a stable group with one static member; return the member id."""
        protocols = [{"name": "range", "metadata": struct.pack(">hih6si", 0, 1, 6, b"orders", -1)}]
        joined = self.wire.ask(
            "join_group",
            5,
            group_id=group,
            session_timeout=60_000,
            rebalance_timeout=60_000,
            member_id="",
            group_instance_id="seat",
            protocol_type="consumer",
            protocols=protocols,
        )
        member: str = joined["member_id"]
        values = {"group_id": group, "generation_id": 1, "member_id": member, "group_instance_id": "seat"}
        assignments = [{"member_id": member, "assignment": assignment}]
        assert self.wire.ask("sync_group", 3, **values, assignments=assignments)["error_code"] == "NONE"
        return member


def assigned(**topics: list[int]) -> bytes:
    parts = b"".join(
        struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name.encode(), len(numbers), *numbers)
        for name, numbers in topics.items()
    )
    return struct.pack(">hi", 1, len(topics)) + parts + struct.pack(">i", -1)


@contextmanager
def filled_server(folder: Path) -> Iterator[ServerProcess]:
    """A server with 100 records in each partition of orders and 10 in refunds, one per second from ``START_MS`` on."""
    options = ["--topic", "orders:2", "--topic", "refunds:1"]
    with ServerProcess(
        folder, settings={**TEST_SETTINGS, "group_consumer_assignment_interval_ms": 0}, options=options
    ) as server:
        fill(server)
        yield server


def fill(server: ServerProcess) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": server.bootstrap, "batch.num.messages": 1})
    for (topic, partition), end in ENDS.items():
        for number in range(end):
            producer.produce(topic, b"x", partition=partition, timestamp=START_MS + 1000 * number)
    assert producer.flush(DEADLINE_S) == 0


@contextmanager
def program_at(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> Iterator[GroupsCommand]:
    """The command. Deletes all groups at the end."""
    program = GroupsCommand(server, capsys)
    with program.wire as wire:
        yield program
        for group in wire.ask("list_groups", 4, states_filter=[])["groups"]:
            for member_id in (*member_ids(wire, group["group_id"]), *consumer_ids(wire, group["group_id"])):
                leaving = {"member_id": member_id, "group_instance_id": None}
                wire.ask("leave_group", 3, group_id=group["group_id"], members=[leaving])
            wire.ask("delete_groups", 1, groups_names=[group["group_id"]])


def member_ids(wire: Wire, group: str) -> list[str]:
    [description] = wire.ask("describe_groups", 4, groups=[group], include_authorized_operations=False)["groups"]
    return [member["member_id"] for member in description["members"]]


def consumer_ids(wire: Wire, group: str) -> list[str]:
    answer = wire.ask("consumer_group_describe", 1, group_ids=[group], include_authorized_operations=False)
    return [member["member_id"] for member in answer["groups"][0]["members"]]


def committed(program: GroupsCommand, group: str = "simple") -> dict[str, int]:
    lines = program("offsets", group, "--json").json
    return {f"{line['topic']}_{line['partition']}": line["committed"] for line in lines}
