"""Each limit that refuses clients: the refusal is counted, and the log names the client once with its request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harness import (
    Client,
    NodeHarness,
    async_test,
    commit_values,
    committed_partition,
    frame,
    join_and_sync,
    join_values,
    offsets,
    running_node,
)
from peers.wire import Plain
from transaction_api_helpers import TX, commit_offsets, init_producer_id

from callboard.actors.text import LogLine
from callboard.runtime.kafka.connections.over_limit import CONNECTIONS, LIMITS

CLIENT_ID = "wire"
LARGE_ITEMS = 10_001
MANY_COMMITS = 300
PRODUCER: dict[str, Plain] = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}


async def join_with_protocols(harness: NodeHarness) -> None:
    protocols = [{"name": f"p{number}", "metadata": b""} for number in range(2)]
    await (await harness.connect()).ask("join_group", 5, **join_values("g", protocols=protocols))


async def join_twice(harness: NodeHarness) -> None:
    client = await harness.connect()
    for _ in range(2):
        await client.ask("join_group", 5, **join_values("g"))


async def join_full_group(harness: NodeHarness) -> None:
    await join_and_sync(await harness.connect(), "g")
    await (await harness.connect()).ask("join_group", 5, **join_values("g"))


def new_topics(*names: str) -> dict[str, Plain]:
    fields = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    return {"topics": [{"name": name, **fields} for name in names], "timeout": 1000, "validate_only": False}


async def create_topics(harness: NodeHarness) -> None:
    """Two topics of one request are refused: it counts once."""
    await (await harness.connect()).ask("create_topics", 7, **new_topics("new", "newer"))


async def create_topic_by_metadata(harness: NodeHarness) -> None:
    topics: Plain = [{"name": "new"}, {"name": "newer"}]
    await (await harness.connect()).ask(*("metadata", 4), topics=topics, allow_auto_topic_creation=True)


async def add_partitions(harness: NodeHarness) -> None:
    topics: Plain = [{"name": "t", "count": 9, "assignments": None}]
    await (await harness.connect()).ask("create_partitions", 3, topics=topics, timeout=1000, validate_only=False)


async def leave_many(harness: NodeHarness) -> None:
    members = [{"member_id": "m", "group_instance_id": None, "reason": None}] * LARGE_ITEMS
    await (await harness.connect()).ask("leave_group", 5, group_id="g", members=members)


async def describe_many(harness: NodeHarness) -> None:
    """The answer has no error of the whole request, so the connection is closed."""
    resources = [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}] * LARGE_ITEMS
    await send_until_closed(harness, frame("describe_configs", 1, resources=resources, include_synonyms=False))


async def send_until_closed(harness: NodeHarness, data: bytes) -> None:
    client = await harness.connect()
    await client.ask("api_versions", 0)
    client.write(data)
    assert await client.responses_until_disconnect() == []


async def two_transactional_ids(harness: NodeHarness) -> None:
    client = await harness.connect()
    for name in "ab":
        await client.ask("init_producer_id", 4, transactional_id=name, **PRODUCER)


async def commit(harness: NodeHarness, count: int = 1) -> None:
    partitions: list[Plain] = [committed_partition(number % 3, metadata="long") for number in range(count)]
    topics: Plain = [{"name": "t", "partitions": partitions}]
    await (await harness.connect()).ask("offset_commit", 8, **{**commit_values("g"), "topics": topics})


async def commit_many(harness: NodeHarness) -> None:
    await commit(harness, MANY_COMMITS)


async def commit_topic_twice(harness: NodeHarness) -> None:
    topic: Plain = {"name": "t", "partitions": [committed_partition(0, metadata="long")]}
    await (await harness.connect()).ask("offset_commit", 8, **{**commit_values("g"), "topics": [topic, topic]})


async def commit_in_transaction(harness: NodeHarness) -> None:
    client = await harness.connect()
    producer = await init_producer_id(client)
    added = await client.ask("add_offsets_to_txn", 3, transactional_id=TX, group_id="g", **producer)
    assert added["error_code"] == "NONE"
    topics: Plain = [{"name": "t", "partitions": [committed_partition(0, metadata="long")]}]
    await commit_offsets(client, producer, 1, topics=topics)


async def fill_memory(harness: NodeHarness, refused: Callable[[NodeHarness], Awaitable[None]]) -> None:
    harness.node.groups.memory_limit.sources["test"] = lambda: 2 * harness.node.settings.memory_limit_bytes
    await refused(harness)


def when_full(refused: Callable[[NodeHarness], Awaitable[None]]) -> Callable[[NodeHarness], Awaitable[None]]:
    return lambda harness: fill_memory(harness, refused)


async def join_new_group(harness: NodeHarness) -> None:
    await (await harness.connect()).ask("join_group", 5, **join_values("new"))


async def join_existing_group(harness: NodeHarness) -> None:
    await join_and_sync(await harness.connect(), "g")
    await fill_memory(harness, join_twice_into_g)


async def join_twice_into_g(harness: NodeHarness) -> None:
    await (await harness.connect()).ask("join_group", 5, **join_values("g"))


async def join_consumer_group(harness: NodeHarness) -> None:
    values: dict[str, Plain] = {
        "group_id": "c",
        "member_id": "",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": ["t"],
        "server_assignor": None,
        "topic_partitions": [],
    }
    await (await harness.connect()).ask("consumer_group_heartbeat", 0, **values)


async def join_full_consumer_group(harness: NodeHarness) -> None:
    for _ in range(2):
        await join_consumer_group(harness)


async def new_transactional_id(harness: NodeHarness) -> None:
    await (await harness.connect()).ask("init_producer_id", 4, transactional_id="new", **PRODUCER)


async def send_half_requests(harness: NodeHarness) -> None:
    """The connection that has waited longest is closed for the next one."""
    half = frame("leave_group", 5, group_id="x" * 30_000, members=[])[:-1]
    first, second = await harness.connect(), await harness.connect()
    await first.ask("api_versions", 0)
    first.write(half)
    while not harness.node.services.buffers.unread.total_bytes:
        await asyncio.sleep(0.001)
    second.write(half)
    assert await first.responses_until_disconnect() == []


async def read_nothing(harness: NodeHarness) -> None:
    """A response is waiting in the transport, as that of a client that does not read, and another client's too."""
    client = await harness.connect()
    await client.ask("list_groups", 3)
    other = await harness.connect()
    await other.ask("api_versions", 0)
    for connection in sorted(harness.node.connections, key=lambda each: each.requests.answered_last.name):  # type: ignore[union-attr]
        connection.pause_writing()
    assert await other.responses_until_disconnect() == []


LARGE = frame("heartbeat", 4, group_id="g" * 3_000, generation_id=1, member_id="m", group_instance_id=None)


async def connect_twice(harness: NodeHarness) -> None:
    await (await harness.connect()).ask("api_versions", 0)
    assert await (await harness.connect()).responses_until_disconnect() == []


class Case(NamedTuple):
    """A limit with the value that it is set to, who is over it, and the request that the log names."""

    limit: str
    value: int
    act: Callable[[NodeHarness], Awaitable[None]]
    request: str
    client_id: str = CLIENT_ID


async def join_two_groups(harness: NodeHarness) -> None:
    client = await harness.connect()
    answers = [await client.ask("join_group", 5, **join_values(group)) for group in ("a", "b")]
    assert [answer["error_code"] for answer in answers] == ["MEMBER_ID_REQUIRED", "GROUP_MAX_SIZE_REACHED"]


async def commit_to_two_groups(harness: NodeHarness) -> None:
    client = await harness.connect()
    codes = [await commit_codes(client, group, 0) for group in ("a", "b", "a")]
    assert codes == [["NONE"], ["INVALID_COMMIT_OFFSET_SIZE"], ["NONE"]]


async def commit_codes(client: Client, group: str, *partitions: int) -> list[str]:
    topics: Plain = [{"name": "t", "partitions": [committed_partition(number, 1) for number in partitions]}]
    answer: Any = await client.ask("offset_commit", 8, **{**commit_values(group), "topics": topics})
    return [partition["error_code"] for partition in answer["topics"][0]["partitions"]]


async def commit_too_many_partitions(harness: NodeHarness) -> None:
    client = await harness.connect()
    assert await commit_codes(client, "g", 1) == ["NONE"]
    assert await commit_codes(client, "g", 1, 0, 2, 0) == ["NONE", "NONE", "INVALID_COMMIT_OFFSET_SIZE", "NONE"]
    assert await offsets(client, "g") == {("t", 0): 1, ("t", 1): 1}


async def commit_too_many_partitions_in_a_transaction(harness: NodeHarness) -> None:
    client = await harness.connect()
    producer = await init_producer_id(client)
    added = await client.ask("add_offsets_to_txn", 3, transactional_id=TX, group_id="g", **producer)
    assert added["error_code"] == "NONE"
    outcomes = []
    for numbers in ((0, 1), (1, 2)):
        partitions: Plain = [committed_partition(number, 1) for number in numbers]
        topics: Plain = [{"name": "t", "partitions": partitions}]
        outcomes.append(await commit_offsets(client, producer, 1, topics=topics))
    assert outcomes == [
        {("t", 0): "NONE", ("t", 1): "NONE"},
        {("t", 1): "NONE", ("t", 2): "INVALID_COMMIT_OFFSET_SIZE"},
    ]


MEMORY = "memory_limit_bytes"
GIB = 2**30
CASES = [
    Case("group_max_member_protocols", 1, join_with_protocols, "join_group version 5"),
    Case("group_max_pending_members", 1, join_twice, "join_group version 5"),
    Case("group_max_size", 1, join_full_group, "join_group version 5"),
    Case("group_consumer_max_size", 1, join_full_consumer_group, "consumer_group_heartbeat version 0"),
    Case(MEMORY, GIB, when_full(join_consumer_group), "consumer_group_heartbeat version 0"),
    Case("groups_max", 1, join_two_groups, "join_group version 5"),
    Case("groups_max", 1, commit_to_two_groups, "offset_commit version 8"),
    Case("offsets_max_per_group", 2, commit_too_many_partitions, "offset_commit version 8"),
    Case("offsets_max_per_group", 2, commit_too_many_partitions_in_a_transaction, "txn_offset_commit version 3"),
    Case("max_connections_per_ip", 1, connect_twice, "a new connection", ""),
    Case("max_partitions", 4, create_topics, "create_topics version 7"),
    Case("max_partitions", 4, create_topic_by_metadata, "metadata version 4"),
    Case("max_partitions", 4, add_partitions, "create_partitions version 3"),
    Case("max_request_items", 10_000, leave_many, "leave_group version 5"),
    Case("max_request_config_items", 10_000, describe_many, "describe_configs version 1"),
    Case("max_transactional_ids", 1, two_transactional_ids, "init_producer_id version 4"),
    Case(MEMORY, GIB, when_full(join_new_group), "join_group version 5"),
    Case(MEMORY, GIB, join_existing_group, "join_group version 5"),
    Case(MEMORY, GIB, when_full(commit), "offset_commit version 8"),
    Case(MEMORY, GIB, when_full(new_transactional_id), "init_producer_id version 4"),
    Case(MEMORY, GIB, when_full(create_topics), "create_topics version 7"),
    Case(MEMORY, GIB, when_full(create_topic_by_metadata), "metadata version 4"),
    Case("offset_metadata_max_bytes", 3, commit, "offset_commit version 8"),
    Case("offset_metadata_max_bytes", 3, commit_many, "offset_commit version 8"),
    Case("offset_metadata_max_bytes", 3, commit_topic_twice, "offset_commit version 8"),
    Case("offset_metadata_max_bytes", 3, commit_in_transaction, "txn_offset_commit version 3"),
    Case("queued_max_request_bytes", 40_000, send_half_requests, "leave_group version 5"),
    Case("queued_max_response_bytes", 300_000, read_nothing, "api_versions version 0"),
    Case("socket_request_max_bytes", 2_000, lambda harness: send_until_closed(harness, LARGE), "heartbeat version 4"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.limit}-{case.request.split()[0]}")
@async_test
async def test_client_over_a_limit_is_counted_and_named_with_its_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: Case
) -> None:
    settings = {"group_initial_rebalance_delay_ms": 0, case.limit: case.value}
    async with running_node(tmp_path, {"sync": "none"}, **settings) as harness:
        await case.act(harness)
        counts = harness.node.services.over_limit.counts
        assert {limit: count for limit, count in counts.items() if count} == {case.limit: 1}
    [fields] = [record.msg.fields for record in caplog.records if isinstance(record.msg, LogLine)]
    peer, client_id, reason = (fields[name] for name in ("peer", "client_id", "reason"))
    assert (fields["request"], fields["limit"]) == (case.request, case.limit)
    assert str(peer).startswith("127.0.0.1:")
    assert client_id == case.client_id
    assert reason


@async_test
async def test_connection_over_the_limit_is_counted(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await client.ask("api_versions", 0)
        harness.node.connections._limit.maximum = 1  # type: ignore[attr-defined]
        assert await (await harness.connect()).responses_until_disconnect() == []
        assert harness.node.services.over_limit.counts[CONNECTIONS] == 1


TESTED_IN_TLS = {"handshake_timeout_ms", "handshakes_max_open"}


def test_every_limit_has_a_case() -> None:
    assert {case.limit for case in CASES} == set(LIMITS) - {CONNECTIONS} - TESTED_IN_TLS
