"""Above ``memory_limit_bytes`` nothing new is admitted, and everything that exists goes on."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from actor_system.instances import instance
from consumer_requests import beat, join
from harness import (
    NodeHarness,
    async_test,
    commit_values,
    committed_partition,
    frame,
    heartbeat_values,
    join_and_sync,
    join_values,
    offsets,
    running_node,
)
from peers.wire import Plain

from callboard.runtime.kafka.connections.pending_requests import MAX_BYTES_OPEN

REFUSED = "COORDINATOR_NOT_AVAILABLE"
INSTANCE = {"group_instance_id": "i"}
AUTO_CREATE: dict[str, Plain] = {
    "topics": [{"name": "more"}],
    "allow_auto_topic_creation": True,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}
PRODUCER: dict[str, Plain] = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}


@contextmanager
def limit_reached(harness: NodeHarness) -> Iterator[None]:
    """While this is open, a source counts more than the limit."""
    sources = harness.node.groups.memory_limit.sources
    sources["test"] = lambda: harness.node.settings.memory_limit_bytes
    try:
        yield
    finally:
        del sources["test"]


def counted_bytes(harness: NodeHarness) -> tuple[int, int]:
    memory = harness.node.groups.partitions.memory
    return memory.active_bytes, memory.packed_bytes


@async_test
async def test_limit_refuses_new_groups_and_members(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await join_and_sync(client, "g")
        with limit_reached(harness):
            for group_id in ("g", "new"):
                joined = await client.ask("join_group", **join_values(group_id))
                assert joined["error_code"] == REFUSED, group_id
            committed = await client.ask("offset_commit", 9, **commit_values("new"))
            assert committed["topics"][0]["partitions"][0]["error_code"] == REFUSED
            assert list(harness.node.groups.groups) == ["g"]
        joined = await client.ask("join_group", **join_values("new"))
        assert joined["error_code"] == "MEMBER_ID_REQUIRED"


@async_test
async def test_limit_leaves_existing_members_alone(tmp_path: Path) -> None:
    """Heartbeats, commits, rejoins, and a static member that restarts."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        member = await join_and_sync(client, "g", **INSTANCE)
        pending = await client.ask("join_group", **join_values("pending"))
        with limit_reached(harness):
            beat = await client.ask("heartbeat", **{**heartbeat_values("g", member), **INSTANCE})
            assert beat["error_code"] == "NONE"
            committed = await client.ask("offset_commit", 9, **{**commit_values("g", member), **INSTANCE})
            assert committed["topics"][0]["partitions"][0]["error_code"] == "NONE"
            assert await offsets(client, "g") == {("t", 0): 42}
            joined = await client.ask("join_group", **join_values("pending", pending["member_id"]))
            assert joined["error_code"] == "NONE"
            joined = await client.ask("join_group", **join_values("g", **INSTANCE))
            assert joined["error_code"] == "NONE"
            assert joined["member_id"] != member.member_id


@async_test
async def test_limit_refuses_new_groups_and_members_of_the_consumer_protocol(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await join(client, "a", "t")
        with limit_reached(harness):
            for group_id, member_id in (("g", "b"), ("g", ""), ("new", "a")):
                version = 1 if member_id else 0
                joined = await join(client, member_id, "t", version=version, group_id=group_id)
                assert joined["error_code"] == REFUSED, (group_id, member_id)
            assert list(harness.node.groups.groups) == ["g"]
            assert harness.node.services.over_limit.counts["memory_limit_bytes"] == 3
        for group_id, member_id in (("g", "b"), ("new", "a")):
            assert (await join(client, member_id, "t", group_id=group_id))["error_code"] == "NONE"


@async_test
async def test_limit_refuses_new_member_of_group_that_has_lost_its_members(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await join(client, "a", "t")
        assert (await beat(client, "a", -1))["error_code"] == "NONE"
        with limit_reached(harness):
            assert (await join(client, "a", "t"))["error_code"] == REFUSED


@async_test
async def test_limit_leaves_existing_members_of_the_consumer_protocol_alone(tmp_path: Path) -> None:
    """Heartbeats, another subscription, commits, rejoins, and a static member that restarts."""
    async with running_node(tmp_path, group_consumer_assignment_interval_ms=0) as harness:
        client = await harness.connect()
        epoch = (await join(client, "a", "t"))["member_epoch"]
        await join(client, "s", "t", instance_id="i")
        with limit_reached(harness):
            for names in (None, ["u"]):
                answer = await beat(client, "a", epoch, subscribed_topic_names=names)
                assert answer["error_code"] == "NONE"
                epoch = answer["member_epoch"]
            commit = {**commit_values("g"), "generation_id_or_member_epoch": epoch, "member_id": "a"}
            committed = await client.ask("offset_commit", 9, **commit)
            assert committed["topics"][0]["partitions"][0]["error_code"] == "NONE"
            assert (await join(client, "a", "t"))["error_code"] == "NONE"
            assert (await beat(client, "s", -2, instance_id="i"))["error_code"] == "NONE"
            assert (await join(client, "another", "t", instance_id="i"))["error_code"] == "NONE"
            assert await offsets(client, "g") == {("t", 0): 42}


@async_test
async def test_limit_refuses_new_topics_and_transactional_ids(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        producer: dict[str, Plain] = {
            "transactional_id": "x",
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        topics: Plain = [
            {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        ]
        creation: dict[str, Plain] = {"topics": topics, "timeout": 1000, "validate_only": False}
        assert (await client.ask("init_producer_id", **producer))["error_code"] == "NONE"
        with limit_reached(harness):
            assert (await client.ask("init_producer_id", **producer))["error_code"] == "NONE"
            refused = await client.ask("init_producer_id", **{**producer, "transactional_id": "y"})
            assert refused["error_code"] == REFUSED
            [created] = (await client.ask("create_topics", **creation))["topics"]
            assert created["error_code"] == "POLICY_VIOLATION"
            assert "memory_limit_bytes" in created["error_message"]
        [created] = (await client.ask("create_topics", **creation))["topics"]
        assert created["error_code"] == "NONE"


@async_test
async def test_topics_of_one_request_are_refused_from_the_limit_on(tmp_path: Path) -> None:
    async with running_node(tmp_path, memory_limit_bytes=200_000) as harness:
        client = await harness.connect()
        names = [f"new-{number}" for number in range(100)]
        topics: list[Plain] = [
            {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            for name in names
        ]
        created = await client.ask("create_topics", topics=topics, timeout=1000, validate_only=False)
        errors = [topic["error_code"] for topic in created["topics"]]
        accepted = errors.count("NONE")
        assert 10 < accepted < 90
        assert errors == ["NONE"] * accepted + ["POLICY_VIOLATION"] * (100 - accepted)
        [created] = (await client.ask("metadata", 9, **AUTO_CREATE))["topics"]
        assert created["error_code"] == "UNKNOWN_TOPIC_OR_PARTITION"


@async_test
async def test_number_of_transactional_ids_is_limited(tmp_path: Path) -> None:
    async with running_node(tmp_path, max_transactional_ids=2) as harness:
        client = await harness.connect()
        errors = [
            (await client.ask("init_producer_id", transactional_id=name, **PRODUCER))["error_code"] for name in "abca"
        ]
        assert errors == ["NONE", "NONE", REFUSED, "NONE"]


@async_test
async def test_number_of_pending_members_is_limited(tmp_path: Path) -> None:
    async with running_node(tmp_path, group_max_pending_members=2) as harness:
        client = await harness.connect()
        answers = [await client.ask("join_group", **join_values("g")) for _ in range(3)]
        assert [answer["error_code"] for answer in answers] == ["MEMBER_ID_REQUIRED"] * 2 + [REFUSED]
        client.write(b"")
        other = await harness.connect()
        joined = await other.ask("join_group", **join_values("g", "", **INSTANCE))
        assert joined["error_code"] == "NONE", "a static member needs no id first"


class HeldLog:
    """The log of a writer, which holds all rounds until ``release``."""

    def __init__(self, harness: NodeHarness) -> None:
        self._writer = instance(harness.node.actors.writer)
        self._log, self._writer._log = self._writer._log, self
        self._held: list[tuple[Any, ...]] = []

    def append(self, *arguments: Any) -> None:
        self._held.append(arguments)

    def append_in_steps(self, *arguments: Any) -> Iterator[None]:
        yield
        self._held.append(arguments)

    @property
    def waiting_requests(self) -> int:
        return len(self._writer._waiting) + len(self._writer._in_flight)

    def release(self) -> None:
        self._writer._log = self._log
        for arguments in self._held:
            self._log.append(*arguments)


def waiting_bytes(harness: NodeHarness) -> int:
    return harness.node.groups.memory_limit.bytes_by_kind()["waiting rounds"]


@async_test
async def test_unanswered_commits_are_counted_until_they_are_durable(tmp_path: Path) -> None:
    async with running_node(tmp_path, memory_limit_bytes=800_000) as harness:
        admin, client = await harness.connect(), await harness.connect()
        member = await join_and_sync(admin, "g")
        held = HeldLog(harness)
        partition = committed_partition(0, metadata="x" * 4000)
        values = commit_values("g", member, topics=[{"name": "t", "partitions": [partition]}])
        client.write(frame("offset_commit", 9, **values) * 200)
        while waiting_bytes(harness) < 200 * 4000:
            await asyncio.sleep(0.001)
        refused = await admin.ask("join_group", **join_values("new"))
        assert refused["error_code"] == REFUSED
        assert (await admin.ask("heartbeat", **heartbeat_values("g", member)))["error_code"] == "NONE"
        held.release()
        for _ in range(200):
            committed = await client.receive("offset_commit", 9)
            assert committed["topics"][0]["partitions"][0]["error_code"] == "NONE"
        assert waiting_bytes(harness) == 0
        assert (await admin.ask("join_group", **join_values("new")))["error_code"] == "MEMBER_ID_REQUIRED"


@pytest.mark.parametrize(
    ("requests", "partitions", "metadata"),
    [(900, 1, ""), (200, 1, "x" * 4000), (200, 50, ""), (20, 3, "y" * 2000)],
    ids=["small", "metadata", "partitions", "few"],
)
@async_test
async def test_counted_bytes_of_unanswered_commits_are_about_those_allocated(
    tmp_path: Path, requests: int, partitions: int, metadata: str
) -> None:
    async with running_node(tmp_path, {"topics": (("t", 50),)}) as harness:
        client = await harness.connect()
        await client.ask("offset_commit", 9, **commit_values("g"))
        held = HeldLog(harness)
        committed: list[Plain] = [committed_partition(index, index, metadata) for index in range(partitions)]
        values = commit_values("g", topics=[{"name": "t", "partitions": committed}])
        data = frame("offset_commit", 9, **values) * requests
        assert len(data) < 0.9 * MAX_BYTES_OPEN, "the last ones would not be read before the first are answered"
        gc.collect()
        tracemalloc.start()
        try:
            client.write(data)
            while held.waiting_requests < requests:
                await asyncio.sleep(0.001)
            gc.collect()
            allocated_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        counted_bytes = waiting_bytes(harness)
        assert allocated_bytes / 1.5 < counted_bytes < allocated_bytes * 1.5
        held.release()
        for _ in range(requests):
            await client.receive_frame()


@async_test
async def test_groups_are_counted_from_creation_to_deletion(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        assert counted_bytes(harness) == (0, 0)
        member = await join_and_sync(client, "g")
        with_member, _ = counted_bytes(harness)
        await client.ask("offset_commit", 9, **commit_values("g", member))
        with_offset, _ = counted_bytes(harness)
        assert 0 < with_member < with_offset
        leaving = [{"member_id": member.member_id, "group_instance_id": None, "reason": None}]
        await client.ask("leave_group", group_id="g", members=leaving)
        assert counted_bytes(harness)[0] < with_offset
        await client.ask("delete_groups", groups_names=["g"])
        assert counted_bytes(harness) == (0, 0)


@async_test
async def test_packed_groups_are_counted_after_restart(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await client.ask("offset_commit", 9, **commit_values("g"))
        await harness.restart()
        active_bytes, packed_bytes = counted_bytes(harness)
        assert active_bytes == 0 < packed_bytes
        client = await harness.connect()
        await client.ask("offset_commit", 9, **commit_values("g"))
        active_bytes, packed_bytes = counted_bytes(harness)
        assert active_bytes > 0 == packed_bytes
