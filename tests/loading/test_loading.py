"""A server listens before it has loaded: loaded partitions are served, others return a retriable error."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import count, islice
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

from callboard.actors.coordinator import group_actors
from callboard.actors.group.actor import GroupActor
from callboard.actors.javahash import offsets_partition
from callboard.actors.records import GroupRecord, GroupValue, OffsetRecord, OffsetValue
from callboard.runtime.common import child_process
from callboard.runtime.disk.disk import Disk
from callboard.runtime.loading import child as load_child
from callboard.runtime.loading import loader as loading
from callboard.runtime.loading import local_store as loading_module
from callboard.runtime.loading.loader import load_inline
from callboard.runtime.log.format.batch import encode_batch, frame_record
from callboard.runtime.log.format.records import encode
from callboard.runtime.log.partition import folder_name
from callboard.runtime.log.pieces import LoadJob, LoadReport, PieceHandler
from callboard.runtime.log.reading.newest import LoadedPartition, load_partition
from callboard.runtime.log.reading.segment import segment_name

PARTITIONS = 4
GROUPS = [f"g{number}" for number in range(8)]
Pair = tuple[bytes, bytes | None]


def home(group_id: str) -> int:
    return offsets_partition(group_id, PARTITIONS)


SLOW = home("g0")
FAST = next(group_id for group_id in GROUPS if home(group_id) != SLOW)


def write_log(data: Path, pairs: Iterable[tuple[int, Pair]]) -> None:
    """Write a data folder that has only segments, as a copy of Kafka's partitions has."""
    by_partition: dict[int, list[Pair]] = {}
    for partition, pair in pairs:
        by_partition.setdefault(partition, []).append(pair)
    for partition in range(PARTITIONS):
        folder, records = data / folder_name(partition), by_partition.get(partition, [])
        folder.mkdir(parents=True)
        if not records:
            continue
        framed = [frame_record(0, delta, *pair) for delta, pair in enumerate(records)]
        (folder / segment_name(0)).write_bytes(encode_batch(0, 5, 5, framed))


def committed(group_id: str, offset: int) -> tuple[int, Pair]:
    return home(group_id), encode(OffsetRecord(group_id, "t", 0, OffsetValue(offset, -1, "", 5)))


class Gate:
    """Replaces the loading subprocesses: the partition SLOW is loaded when the gate opens, others at once."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def load(self, jobs: Iterable[LoadJob], on_piece: PieceHandler) -> None:
        jobs = list(jobs)
        load_inline([job for job in jobs if job.partition != SLOW], on_piece)
        await self.open.wait()
        load_inline([job for job in jobs if job.partition == SLOW], on_piece)


@asynccontextmanager
async def half_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[NodeHarness, Client, Gate]]:
    """A running node whose partition SLOW is loaded when the gate opens."""
    gate = Gate()
    monkeypatch.setattr(loading_module, "AT_ONCE_BYTES", -1)
    monkeypatch.setattr(loading_module, "load_in_subprocesses", gate.load)
    async with running_node(folder) as harness:
        yield harness, await harness.connect(), gate


def errors(response: object) -> set[str]:
    """All error codes of a response, at any depth."""
    if isinstance(response, dict):
        own = {response["error_code"]} if "error_code" in response else set()
        return own.union(*(errors(value) for value in response.values()))
    return set().union(*(errors(item) for item in response)) if isinstance(response, list) else set()


LOADING = {"COORDINATOR_LOAD_IN_PROGRESS"}
MEMBER_1: dict[str, Any] = {"generation_id": 1, "member_id": "m"}
ONE_PARTITION = {"name": "t", "partitions": [{"partition_index": 0}]}


@async_test
async def test_request_to_loading_partition_returns_coordinator_load_in_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each API answers as Kafka does. A heartbeat succeeds, so that a starting server causes no rebalance."""
    write_log(tmp_path, [committed(group_id, 7) for group_id in GROUPS])
    unknown_member = Member("m", 1)
    async with half_loaded(tmp_path, monkeypatch) as (_, client, gate):
        joined = await client.ask("join_group", **join_values("g0", "m"))
        assert (errors(joined), joined["member_id"]) == (LOADING, "")
        assert errors(await client.ask("offset_commit", 9, **commit_values("g0"))) == LOADING
        assert errors(await client.ask("offset_fetch", 9, **fetch_values("g0"))) == LOADING
        assert errors(await client.ask("sync_group", 0, group_id="g0", **MEMBER_1, assignments=[])) == LOADING
        assert errors(await client.ask("leave_group", 2, group_id="g0", member_id="m")) == LOADING
        assert errors(await client.ask("offset_delete", group_id="g0", topics=[ONE_PARTITION])) == LOADING
        assert errors(await client.ask("delete_groups", groups_names=["g0"])) == LOADING
        describe: dict[str, Any] = {"groups": ["g0"], "include_authorized_operations": False}
        assert errors(await client.ask("describe_groups", **describe)) == LOADING
        listed = await client.ask("list_groups", states_filter=[], types_filter=[])
        assert (errors(listed), listed["groups"]) == (LOADING, [])
        assert errors(await client.ask("heartbeat", **heartbeat_values("g0", unknown_member))) == {"NONE"}
        coordinators = await client.ask("find_coordinator", key_type=0, coordinator_keys=["g0"])
        assert errors(coordinators) == {"NONE"}
        gate.open.set()
        await wait_for_offsets(client, "g0", {("t", 0): 7})
        assert errors(await client.ask("heartbeat", **heartbeat_values("g0", unknown_member))) == {"UNKNOWN_MEMBER_ID"}


async def wait_for_offsets(client: Client, group_id: str, expected: dict[tuple[str, int], int]) -> None:
    """Retry until the group is loaded, then compare its offsets."""
    while errors(await client.ask("offset_fetch", 9, **fetch_values(group_id))) == LOADING:
        await asyncio.sleep(0)
    assert await offsets(client, group_id) == expected


@async_test
async def test_loaded_partitions_are_served_while_others_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path, [committed(group_id, 7) for group_id in GROUPS])
    async with half_loaded(tmp_path, monkeypatch) as (harness, client, gate):
        await wait_for_offsets(client, FAST, {("t", 0): 7})
        assert errors(await client.ask("offset_commit", 9, **commit_values(FAST, offset=8))) == {"NONE"}
        await join_and_sync(client, FAST)
        assert harness.node.is_loading
        gate.open.set()
        loaded = await harness.node.wait_until_loaded()
        assert loaded.records == len(GROUPS) and not harness.node.is_loading
        listed = await client.ask("list_groups", states_filter=[], types_filter=[])
        assert {group["group_id"] for group in listed["groups"]} == set(GROUPS)
        assert await offsets(client, FAST) == {("t", 0): 8}


@async_test
async def test_transactions_and_topic_ends_wait_for_last_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any group may have open transactions, and a topic must not end below a committed offset of any group."""
    write_log(tmp_path, [committed(group_id, 7) for group_id in GROUPS])
    values = {"transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
    async with half_loaded(tmp_path, monkeypatch) as (harness, client, gate):
        for name in ("tx", None):
            response = await client.ask("init_producer_id", transactional_id=name, **values)
            assert errors(response) == LOADING
        topics = [{"name": "t", "topic_id": None}]
        assert errors(await client.ask("delete_topics", topics=topics, timeout=1000)) == {"REQUEST_TIMED_OUT"}
        gate.open.set()
        await harness.node.wait_until_loaded()
        topic = harness.node.topics.get("t")
        assert topic is not None and topic.partitions[0].end_offset == 7
        response = await client.ask("init_producer_id", transactional_id="tx", **values)
        assert errors(response) == {"NONE"}


@async_test
async def test_stop_during_loading_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path, [committed(group_id, 7) for group_id in GROUPS])
    async with half_loaded(tmp_path, monkeypatch) as (_, client, _gate):
        await wait_for_offsets(client, FAST, {("t", 0): 7})
    monkeypatch.undo()
    async with running_node(tmp_path) as harness:
        assert await offsets(await harness.connect(), "g0") == {("t", 0): 7}


@async_test
async def test_large_log_is_loaded_by_subprocesses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With real subprocesses: a group with a member and committed offsets is restored."""
    monkeypatch.setattr(loading_module, "AT_ONCE_BYTES", -1)
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
    """The server loads all partitions itself when the subprocesses end early."""
    write_log(tmp_path, [committed(group_id, 7) for group_id in GROUPS])
    monkeypatch.setattr(loading_module, "AT_ONCE_BYTES", -1)
    monkeypatch.setattr(child_process, "PROGRAM", command)
    async with running_node(tmp_path) as harness:
        await harness.node.wait_until_loaded()
        client = await harness.connect()
        for group_id in GROUPS:
            assert await offsets(client, group_id) == {("t", 0): 7}


@async_test
async def test_loading_thread_ends_when_loading_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the loop waits for its threads, and a partition can take minutes to load."""
    for base in range(3):
        data = encode_batch(base, 5, 5, [frame_record(0, 0, *committed("g0", base)[1])])
        (tmp_path / segment_name(base)).write_bytes(data)
    monkeypatch.setattr(child_process, "PROGRAM", "raise SystemExit(1)")
    loop, started, resume, reads = asyncio.get_running_loop(), asyncio.Event(), threading.Event(), list[int]()

    def read_when_resumed(disk: Disk, fd: int, size: int, position: int) -> bytes:
        reads.append(position)
        loop.call_soon_threadsafe(started.set)
        assert resume.wait(WAIT_TIMEOUT_S)
        return os.pread(fd, size, position)

    monkeypatch.setattr(Disk, "read", read_when_resumed)
    job = LoadJob(0, str(tmp_path), False, 1)
    task = asyncio.create_task(loading.load_in_subprocesses([job], lambda _job, _piece: None))
    await started.wait()
    task.cancel()
    await asyncio.wait({task})
    resume.set()
    await loop.shutdown_default_executor()
    assert len(reads) == 1


@pytest.mark.parametrize(("partition_bytes", "processes", "expected"), [(64, 1, True), (64, 2, False), (128, 2, True)])
def test_numpy_is_used_from_a_size_per_process(partition_bytes: int, processes: int, expected: bool) -> None:
    jobs = [LoadJob(number, "", False, partition_bytes * 1024 * 1024) for number in range(2)]
    assert loading.is_numpy_worthwhile(jobs, processes) is expected


@pytest.mark.parametrize(("sampled", "is_found"), [(False, True), (True, False)])
def test_one_misplaced_name_among_many_is_found_unless_they_are_sampled(
    tmp_path: Path, sampled: bool, is_found: bool
) -> None:
    """The newest group is the last one that is loaded, so it is not in the sample."""
    folder = tmp_path / folder_name(SLOW)
    folder.mkdir()
    names = (name for number in count() if home(name := f"name-{number}") == SLOW)
    own = list(islice(names, 2 * load_child.SAMPLE_NAMES))
    records = [frame_record(0, delta, *committed(name, 1)[1]) for delta, name in enumerate([*own, FAST])]
    (folder / segment_name(0)).write_bytes(encode_batch(0, 5, 5, records))
    job = LoadJob(SLOW, str(folder), False, 1, topic_partitions=PARTITIONS, sampled=sampled)
    *_, report = load_child.run(job)
    assert isinstance(report, LoadReport)
    assert (FAST in report.misplaced) is is_found


def test_wrong_number_of_partitions_is_found_by_a_sample(tmp_path: Path) -> None:
    folder = tmp_path / folder_name(SLOW)
    folder.mkdir()
    records = [frame_record(0, delta, *committed(name, 1)[1]) for delta, name in enumerate(GROUPS)]
    (folder / segment_name(0)).write_bytes(encode_batch(0, 5, 5, records))
    job = LoadJob(SLOW, str(folder), False, 1, topic_partitions=PARTITIONS, sampled=True)
    [report] = load_child.run(job)
    assert isinstance(report, LoadReport)
    assert report.misplaced


UNFINISHED = """
from callboard.runtime.common.child_main import serve
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
    """Otherwise a group with members would have two actors, and requests would go to the one without its commits."""
    started: list[str] = []

    class Counted(GroupActor):
        def on_start(self) -> None:
            started.append(self.group_id)
            super().on_start()

    async with running_node(tmp_path) as harness:
        await join_and_sync(await harness.connect(), "g0")
        monkeypatch.setattr(loading_module, "AT_ONCE_BYTES", -1)
        monkeypatch.setattr(child_process, "PROGRAM", UNFINISHED)
        monkeypatch.setattr(group_actors, "GroupActor", Counted)
        await harness.restart()
        await harness.node.wait_until_loaded()
        assert started == ["g0"]


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
        assert await offsets(client, FAST) == {("t", 0): 7}
        listed = await client.ask("list_groups", states_filter=[], types_filter=[])
        assert (errors(listed), {group["group_id"] for group in listed["groups"]} & {"g0", FAST}) == ({"NONE"}, {FAST})
        assert "the disk is gone" in harness.node.groups.partitions[SLOW].failure


@async_test
async def test_invalid_record_quarantines_only_its_group(tmp_path: Path) -> None:
    """The group's description has the cause. Other groups of the partition work, and no request removes its records."""
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
            describe: dict[str, Any] = {"groups": ["g0"], "include_authorized_operations": False}
            [group] = (await client.ask("describe_groups", **describe))["groups"]
            assert (group["error_code"], group["group_state"]) == ("COORDINATOR_NOT_AVAILABLE", "Dead")
            message = str(group["error_message"])
            assert "at offset 2" in message and f"{folder_name(SLOW)}/{segment_name(0)}" in message and "g0" in message
            [old] = (await client.ask("describe_groups", 5, **describe))["groups"]
            assert (old["error_code"], old["group_state"]) == ("COORDINATOR_NOT_AVAILABLE", "Dead")
            listed = (await client.ask("list_groups", states_filter=["Dead"], types_filter=[]))["groups"]
            assert [group["group_id"] for group in listed] == ["g0"]
            await harness.restart()


@async_test
async def test_group_that_cannot_be_created_is_quarantined_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The constructor raises, because of a bug or of records that are valid but inconsistent. Other groups work."""

    class FailsForG0(GroupActor):
        def __init__(self, group_id: str, *rest: Any) -> None:
            if group_id == "g0":
                raise ValueError("cannot be created")
            super().__init__(group_id, *rest)

    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        members = {group_id: await join_and_sync(client, group_id) for group_id in GROUPS}
        monkeypatch.setattr(group_actors, "GroupActor", FailsForG0)
        await harness.restart()
        client = await harness.connect()
        for group_id, member in members.items():
            expected = "COORDINATOR_NOT_AVAILABLE" if group_id == "g0" else "NONE"
            assert errors(await client.ask("heartbeat", **heartbeat_values(group_id, member))) == {expected}
        assert "cannot be created" in harness.node.groups.partitions.quarantined["g0"].reason
