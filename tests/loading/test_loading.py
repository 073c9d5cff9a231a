"""A server listens before it has loaded: what is there is served, what is not is told to come again."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import (
    Client,
    Member,
    NodeHarness,
    async_test,
    commit_values,
    fetch_values,
    heartbeat_values,
    join_and_sync,
    join_values,
    offsets,
    running_node,
)
from log_helpers import WAIT_TIMEOUT_S

from callboard.actors.coordinator import actor as coordinator
from callboard.actors.group.actor import GroupActor
from callboard.actors.javahash import offsets_partition
from callboard.actors.records import GroupRecord, GroupValue, OffsetRecord, OffsetValue
from callboard.runtime.common import child_process
from callboard.runtime.disk.disk import Disk
from callboard.runtime.loading import child as load_child
from callboard.runtime.loading import loader as loading
from callboard.runtime.loading.loader import PieceHandler, load_inline
from callboard.runtime.loading.pieces import LoadJob
from callboard.runtime.log.format.batch import encode_batch, frame_record
from callboard.runtime.log.format.records import encode
from callboard.runtime.log.partition import folder_name
from callboard.runtime.log.reading.newest import LoadedPartition, load_partition
from callboard.runtime.log.reading.segment import segment_name
from callboard.runtime.node import node as node_module

PARTITIONS = 4
GROUPS = [f"g{number}" for number in range(8)]
Pair = tuple[bytes, bytes | None]


def home(group_id: str) -> int:
    return offsets_partition(group_id, PARTITIONS)


SLOW = home("g0")
QUICK = next(group_id for group_id in GROUPS if home(group_id) != SLOW)


def write_log(data: Path, pairs: Iterable[tuple[int, Pair]]) -> None:
    """A data folder as a copy of Kafka's partitions is one: nothing but segments."""
    by_partition: dict[int, list[Pair]] = {}
    for partition, pair in pairs:
        by_partition.setdefault(partition, []).append(pair)
    for partition in range(PARTITIONS):
        folder, found = data / folder_name(partition), by_partition.get(partition, [])
        folder.mkdir(parents=True)
        if not found:
            continue
        framed = [frame_record(0, delta, *pair) for delta, pair in enumerate(found)]
        (folder / segment_name(0)).write_bytes(encode_batch(0, 5, 5, framed))


def committed(group_id: str, offset: int) -> tuple[int, Pair]:
    return home(group_id), encode(OffsetRecord(group_id, "t", 0, OffsetValue(offset, -1, "", 5)))


class Gate:
    """Stands in for the processes that load: everything but the slow partition is there, that comes when it opens."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def load(self, jobs: Iterable[LoadJob], take: PieceHandler) -> None:
        jobs = list(jobs)
        load_inline([job for job in jobs if job.partition != SLOW], take)
        await self.open.wait()
        load_inline([job for job in jobs if job.partition == SLOW], take)


@asynccontextmanager
async def half_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[NodeHarness, Client, Gate]]:
    """A node of which one partition is not there before the gate opens."""
    gate = Gate()
    monkeypatch.setattr(node_module, "AT_ONCE_BYTES", -1)
    monkeypatch.setattr(node_module, "load_in_subprocesses", gate.load)
    async with running_node(folder) as harness:
        yield harness, await harness.connect(), gate


def errors(answer: object) -> set[str]:
    """All that an answer says of errors, wherever it stands."""
    if isinstance(answer, dict):
        own = {answer["error_code"]} if "error_code" in answer else set()
        return own.union(*(errors(value) for value in answer.values()))
    return set().union(*(errors(one) for one in answer)) if isinstance(answer, list) else set()


LOADING = {"COORDINATOR_LOAD_IN_PROGRESS"}
MEMBER_1: dict[str, Any] = {"generation_id": 1, "member_id": "m"}
ONE_PARTITION = {"name": "t", "partitions": [{"partition_index": 0}]}


@async_test
async def test_request_to_loading_partition_returns_coordinator_load_in_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each API as Kafka answers it. A heartbeat is not refused: nobody need rebalance because a server starts."""
    write_log(tmp_path, [committed(group_id, 7) for group_id in GROUPS])
    nobody = Member("m", 1)
    async with half_loaded(tmp_path, monkeypatch) as (_, client, gate):
        assert errors(await client.ask("join_group", **join_values("g0"))) == LOADING
        assert errors(await client.ask("offset_commit", 9, **commit_values("g0"))) == LOADING
        assert errors(await client.ask("offset_fetch", 9, **fetch_values("g0"))) == LOADING
        assert errors(await client.ask("sync_group", 0, group_id="g0", **MEMBER_1, assignments=[])) == LOADING
        assert errors(await client.ask("leave_group", 2, group_id="g0", member_id="m")) == LOADING
        assert errors(await client.ask("offset_delete", group_id="g0", topics=[ONE_PARTITION])) == LOADING
        assert errors(await client.ask("delete_groups", groups_names=["g0"])) == LOADING
        asked: dict[str, Any] = {"groups": ["g0"], "include_authorized_operations": False}
        assert errors(await client.ask("describe_groups", **asked)) == LOADING
        listed = await client.ask("list_groups", states_filter=[], types_filter=[])
        assert (errors(listed), listed["groups"]) == (LOADING, [])
        assert errors(await client.ask("heartbeat", **heartbeat_values("g0", nobody))) == {"NONE"}
        found = await client.ask("find_coordinator", key_type=0, coordinator_keys=["g0"])
        assert errors(found) == {"NONE"}
        gate.open.set()
        await client_sees(client, "g0", {("t", 0): 7})
        assert errors(await client.ask("heartbeat", **heartbeat_values("g0", nobody))) == {"UNKNOWN_MEMBER_ID"}


async def client_sees(client: Client, group_id: str, expected: dict[tuple[str, int], int]) -> None:
    """Come again, as clients do, until the group is there."""
    while errors(await client.ask("offset_fetch", 9, **fetch_values(group_id))) == LOADING:
        await asyncio.sleep(0)
    assert await offsets(client, group_id) == expected


@async_test
async def test_loaded_partitions_are_served_while_others_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path, [committed(group_id, 7) for group_id in GROUPS])
    async with half_loaded(tmp_path, monkeypatch) as (harness, client, gate):
        await client_sees(client, QUICK, {("t", 0): 7})
        assert errors(await client.ask("offset_commit", 9, **commit_values(QUICK, offset=8))) == {"NONE"}
        await join_and_sync(client, QUICK)
        assert harness.node.is_loading
        gate.open.set()
        arrival = await harness.node.wait_until_loaded()
        assert arrival.records == len(GROUPS) and not harness.node.is_loading
        listed = await client.ask("list_groups", states_filter=[], types_filter=[])
        assert {group["group_id"] for group in listed["groups"]} == set(GROUPS)
        assert await offsets(client, QUICK) == {("t", 0): 8}


@async_test
async def test_transactions_and_topic_ends_wait_for_last_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transactions may be open in any group, and topics may not end below any committed offset."""
    write_log(tmp_path, [committed(group_id, 7) for group_id in GROUPS])
    beginning = {"transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
    async with half_loaded(tmp_path, monkeypatch) as (harness, client, gate):
        for name in ("tx", None):
            asked = await client.ask("init_producer_id", transactional_id=name, **beginning)
            assert errors(asked) == LOADING
        topics = [{"name": "t", "topic_id": None}]
        assert errors(await client.ask("delete_topics", topics=topics, timeout=1000)) == {"REQUEST_TIMED_OUT"}
        gate.open.set()
        await harness.node.wait_until_loaded()
        topic = harness.node.topics.get("t")
        assert topic is not None and topic.partitions[0].end_offset == 7
        asked = await client.ask("init_producer_id", transactional_id="tx", **beginning)
        assert errors(asked) == {"NONE"}


@async_test
async def test_stop_during_loading_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path, [committed(group_id, 7) for group_id in GROUPS])
    async with half_loaded(tmp_path, monkeypatch) as (_, client, _gate):
        await client_sees(client, QUICK, {("t", 0): 7})
    monkeypatch.undo()
    async with running_node(tmp_path) as harness:
        assert await offsets(await harness.connect(), "g0") == {("t", 0): 7}


@async_test
async def test_large_log_is_loaded_by_subprocesses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real ones: groups with members and an open transaction come through, too."""
    monkeypatch.setattr(node_module, "AT_ONCE_BYTES", -1)
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        member = await join_and_sync(client, "g0")
        await client.ask("offset_commit", 9, **commit_values("g0", member, offset=5))
        await client.ask("offset_commit", 9, **commit_values("g1", offset=6))
        await harness.restart()
        client = await harness.connect()
        assert (await harness.node.wait_until_loaded()).records > 2
        assert errors(await client.ask("heartbeat", **heartbeat_values("g0", member))) == {"NONE"}
        assert await offsets(client, "g0") == {("t", 0): 5}
        assert await offsets(client, "g1") == {("t", 0): 6}


@pytest.mark.parametrize("command", ["raise SystemExit(1)", "import os; os.write(1, b'\\0\\0')"])
@async_test
async def test_jobs_of_ended_subprocess_are_run_in_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The server loads by itself then: slowly, but all of it."""
    write_log(tmp_path, [committed(group_id, 7) for group_id in GROUPS])
    monkeypatch.setattr(node_module, "AT_ONCE_BYTES", -1)
    monkeypatch.setattr(child_process, "PROGRAM", command)
    async with running_node(tmp_path) as harness:
        await harness.node.wait_until_loaded()
        client = await harness.connect()
        for group_id in GROUPS:
            assert await offsets(client, group_id) == {("t", 0): 7}


@async_test
async def test_loading_thread_ends_when_loading_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who ends a loop waits for its threads, and a partition may take minutes."""
    for base in range(3):
        data = encode_batch(base, 5, 5, [frame_record(0, 0, *committed("g0", base)[1])])
        (tmp_path / segment_name(base)).write_bytes(data)
    monkeypatch.setattr(child_process, "PROGRAM", "raise SystemExit(1)")
    loop, begun, go_on, reads = asyncio.get_running_loop(), asyncio.Event(), threading.Event(), list[int]()

    def slowly(disk: Disk, fd: int, size: int, position: int) -> bytes:
        reads.append(position)
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(WAIT_TIMEOUT_S)
        return os.pread(fd, size, position)

    monkeypatch.setattr(Disk, "read", slowly)
    job = LoadJob(0, str(tmp_path), False, 1)
    task = asyncio.create_task(loading.load_in_subprocesses([job], lambda _job, _piece: None))
    await begun.wait()
    task.cancel()
    await asyncio.wait({task})
    go_on.set()
    await loop.shutdown_default_executor()
    assert len(reads) == 1


UNFINISHED = """
from callboard.runtime.common.child_process import serve
from callboard.runtime.loading import child

def run_without_report(job):
    for piece in child.run(job):
        if isinstance(piece, child.LoadReport):
            raise SystemExit(1)
        yield piece

child.run_in_child = run_without_report
serve("callboard.runtime.loading.child:run_in_child")
"""


@async_test
async def test_pieces_of_ended_subprocess_are_not_loaded_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a group with members there would be two actors, of which one has the commits and the other is asked."""
    made: list[str] = []

    class Counted(GroupActor):
        def on_start(self) -> None:
            made.append(self.group_id)
            super().on_start()

    async with running_node(tmp_path) as harness:
        await join_and_sync(await harness.connect(), "g0")
        monkeypatch.setattr(node_module, "AT_ONCE_BYTES", -1)
        monkeypatch.setattr(child_process, "PROGRAM", UNFINISHED)
        monkeypatch.setattr(coordinator, "GroupActor", Counted)
        await harness.restart()
        await harness.node.wait_until_loaded()
        assert made == ["g0"]


@async_test
async def test_unreadable_partition_fails_only_its_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path, [committed(group_id, 7) for group_id in GROUPS])

    def broken(folder: Path, disk: Disk | None, *, fast: bool | None) -> LoadedPartition:
        if folder.name == folder_name(SLOW):
            raise OSError(5, f"{folder}: the disk is gone")
        return load_partition(folder, disk, fast=fast)

    monkeypatch.setattr(load_child, "load_partition", broken)
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        assert errors(await client.ask("offset_fetch", 9, **fetch_values("g0"))) == {"NOT_COORDINATOR"}
        assert errors(await client.ask("offset_commit", 9, **commit_values("g0"))) == {"NOT_COORDINATOR"}
        assert errors(await client.ask("heartbeat", **heartbeat_values("g0", Member("m", 1)))) == {"NOT_COORDINATOR"}
        assert await offsets(client, QUICK) == {("t", 0): 7}
        listed = await client.ask("list_groups", states_filter=[], types_filter=[])
        assert (errors(listed), {one["group_id"] for one in listed["groups"]} & {"g0", QUICK}) == ({"NONE"}, {QUICK})
        assert "the disk is gone" in harness.node.groups.availability.failed[SLOW]


@async_test
async def test_invalid_record_quarantines_only_its_group(tmp_path: Path) -> None:
    """The group says why; others of its partition live; its records stay, whatever clients try."""
    neighbour = next(group_id for group_id in GROUPS[1:] if home(group_id) == SLOW)
    key, _ = committed("g0", 1)[1]
    bad = SLOW, (key, b"\0\x63no")
    dead_value = encode(GroupRecord("g0", GroupValue("consumer", 3, None, None, 5, ())))
    write_log(tmp_path, [(SLOW, dead_value), committed(neighbour, 7), bad])
    refused = {"COORDINATOR_NOT_AVAILABLE"}
    async with running_node(tmp_path) as harness:
        for _ in range(2):
            client = await harness.connect()
            assert await offsets(client, neighbour) == {("t", 0): 7}
            for name, version, values in (
                ("join_group", None, join_values("g0")),
                ("offset_commit", 9, commit_values("g0")),
                ("offset_fetch", 9, fetch_values("g0")),
                ("delete_groups", None, {"groups_names": ["g0"]}),
            ):
                assert errors(await client.ask(name, version, **values)) == refused
            asked: dict[str, Any] = {"groups": ["g0"], "include_authorized_operations": False}
            [told] = (await client.ask("describe_groups", **asked))["groups"]
            assert (told["error_code"], told["group_state"]) == ("COORDINATOR_NOT_AVAILABLE", "Dead")
            words = str(told["error_message"])
            assert "at offset 2" in words and f"{folder_name(SLOW)}/{segment_name(0)}" in words and "g0" in words
            [old] = (await client.ask("describe_groups", 5, **asked))["groups"]
            assert (old["error_code"], old["group_state"]) == ("COORDINATOR_NOT_AVAILABLE", "Dead")
            listed = (await client.ask("list_groups", states_filter=["Dead"], types_filter=[]))["groups"]
            assert [group["group_id"] for group in listed] == ["g0"]
            await harness.restart()


@async_test
async def test_group_that_cannot_be_created_is_quarantined_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug of ours, or records that fit their schema and nothing else: others that came with it live."""

    class Choosy(GroupActor):
        def __init__(self, group_id: str, *rest: Any) -> None:
            if group_id == "g0":
                raise ValueError("nobody can lead it")
            super().__init__(group_id, *rest)

    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        members = {group_id: await join_and_sync(client, group_id) for group_id in GROUPS}
        monkeypatch.setattr(coordinator, "GroupActor", Choosy)
        await harness.restart()
        client = await harness.connect()
        for group_id, member in members.items():
            expected = "COORDINATOR_NOT_AVAILABLE" if group_id == "g0" else "NONE"
            assert errors(await client.ask("heartbeat", **heartbeat_values(group_id, member))) == {expected}
        assert "nobody can lead it" in harness.node.groups.availability.quarantined["g0"]
