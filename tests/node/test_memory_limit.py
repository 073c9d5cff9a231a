"""Above ``memory_limit_bytes`` nothing new is admitted, and everything that exists goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import (
    NodeHarness,
    async_test,
    commit_values,
    heartbeat_values,
    join_and_sync,
    join_values,
    offsets,
    running_node,
)
from peers.wire import Plain

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
