"""Long requests are handled in pieces: the work between two turns of the event loop does not grow with the request."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from consumer_requests import consumer_heartbeat_values
from consumer_requests import join as join_consumer
from harness import (
    MemoryClient,
    NodeHarness,
    async_test,
    commit_values,
    committed_partition,
    fetch_values,
    frame,
    join_and_sync,
    running_node,
)
from peers.wire import Plain, decode
from transaction_api_helpers import TX, begin_with_record, init_producer_id
from work_counter import WorkCounter, _one_step_a_turn, endless_clock

from callboard.actors.assignors.consumer_protocol import Subscription, write_subscription
from callboard.runtime.node.environment import Environment, WorkClocks

__all__ = ["_one_step_a_turn"]

ITEMS = 8_000
PIECE_MAX = 7_000
"""Executed lines. A loop over all items takes at least ``ITEMS``; decoding 32 topics takes some 4,000."""

MANY_TOPICS = [f"unknown-{number}" for number in range(ITEMS // 2)]
COMMIT = {**commit_values("g"), "topics": [{"name": "t", "partitions": [committed_partition(0)] * ITEMS}]}
TXN = {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0}
TXN_COMMIT = {**TXN, "group_id": "g", "member_id": "", "generation_id": -1, "group_instance_id": None}
MEMBER = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
SYNC = {**MEMBER, "protocol_type": "consumer", "protocol_name": "range"}


NAMES = [f"unknown-{number * 7_919 % ITEMS}" for number in range(ITEMS)]
DELETE_OFFSETS: dict[str, Plain] = {
    "group_id": "g",
    "topics": [{"name": name, "partitions": [{"partition_index": 0}]} for name in ("t", "u")],
}


def joining(member_id: str, *names: str) -> dict[str, Plain]:
    fields = {"rebalance_timeout": 60_000, "topic_partitions": [], "subscribed_topic_names": list(names)}
    return consumer_heartbeat_values(member_id, 0, **fields)


def partitions_of_topics(**partition: Plain) -> list[Plain]:
    return [{"name": name, "partitions": [dict(partition)]} for name in MANY_TOPICS]


class Case(NamedTuple):
    """A request with ``ITEMS`` items."""

    api: str
    version: int
    values: dict[str, Plain]
    piece_max: int = PIECE_MAX


def new_topic(number: int) -> Plain:
    """A topic whose settings no other one has."""
    settings = [{"name": "retention.ms", "value": str(number)}]
    name = f"new-{number}"
    return {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": settings}


CASES = {
    "CreateTopics with different settings": Case(
        "create_topics",
        7,
        {"topics": [new_topic(number) for number in range(200)], "timeout": 1000, "validate_only": True},
        piece_max=20_000,  # the settings of one topic are encoded at once
    ),
    "DeleteGroups": Case("delete_groups", 2, {"groups_names": [f"g{number}" for number in range(ITEMS)]}),
    "DescribeGroups": Case(
        "describe_groups",
        6,
        {"groups": [f"g{number}" for number in range(ITEMS)], "include_authorized_operations": False},
    ),
    "AddPartitionsToTxn": Case(
        "add_partitions_to_txn",
        3,
        {
            **{f"v3_and_below_{name}": value for name, value in TXN.items()},
            "v3_and_below_topics": [{"name": "t", "partitions": list(range(ITEMS))}],
        },
    ),
    "AddPartitionsToTxn of many topics": Case(
        "add_partitions_to_txn",
        3,
        {
            **{f"v3_and_below_{name}": value for name, value in TXN.items()},
            "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in MANY_TOPICS],
        },
    ),
    "OffsetCommit": Case("offset_commit", 8, COMMIT),
    "OffsetCommit of topics without partitions": Case(
        "offset_commit", 8, {**COMMIT, "topics": [{"name": name, "partitions": []} for name in MANY_TOPICS]}
    ),
    "TxnOffsetCommit of many topics": Case(
        "txn_offset_commit", 3, {**TXN_COMMIT, "topics": partitions_of_topics(**committed_partition(0))}
    ),
    "TxnOffsetCommit": Case(
        "txn_offset_commit",
        3,
        {**TXN_COMMIT, "topics": [{"name": "t", "partitions": [committed_partition(0)] * ITEMS}]},
    ),
    "LeaveGroup": Case(
        "leave_group",
        5,
        {
            "group_id": "g",
            "members": [{"member_id": f"m{n}", "group_instance_id": None, "reason": None} for n in range(ITEMS)],
        },
    ),
    "OffsetFetch": Case("offset_fetch", 8, fetch_values("g", *range(ITEMS))),
    "OffsetDelete": Case(
        "offset_delete",
        0,
        {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": n} for n in range(ITEMS)]}]},
    ),
    "SyncGroup": Case(
        "sync_group", 5, {**SYNC, "assignments": [{"member_id": f"m{n}", "assignment": b"x"} for n in range(ITEMS)]}
    ),
}


@pytest.mark.usefixtures("_one_step_a_turn")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@async_test
async def test_work_between_two_turns_does_not_grow_with_the_request(tmp_path: Path, case: Case) -> None:
    environment = Environment(work_clocks=WorkClocks(slice_ns=endless_clock()))
    async with running_node(tmp_path, {"sync": "none"}, environment=environment) as harness:
        warm = MemoryClient(harness.node)  # loads the API, creates the group and fills caches
        data = frame(case.api, case.version, **case.values)
        warm.feed(frame("offset_commit", 8, **commit_values("g")) + data)
        await warm.answered(2)
        client, counter = MemoryClient(harness.node), WorkCounter()
        with counter.counting():
            client.feed(data)
            await counter.count_turns_until(lambda: bool(client.transport.written))
        assert counter.longest < case.piece_max


async def longest_piece(harness: NodeHarness, data: bytes) -> tuple[bytes, int]:
    """The answer to a request on a connection of its own, and the lines of the longest piece of the work."""
    client, counter = MemoryClient(harness.node), WorkCounter()
    with counter.counting():
        client.feed(data)
        await counter.count_turns_until(lambda: bool(client.transport.written))
    [answer] = await client.answered(1)
    return answer, counter.longest


@pytest.mark.usefixtures("_one_step_a_turn")
@async_test
async def test_subscription_to_many_topics_is_handled_in_pieces(tmp_path: Path) -> None:
    """A member of the consumer protocol joins, changes its subscription, and leaves; offsets are deleted meanwhile."""
    environment = Environment(work_clocks=WorkClocks(slice_ns=endless_clock()))
    settings = {"group_consumer_assignment_interval_ms": 0}
    async with running_node(tmp_path, {"sync": "none"}, environment=environment, **settings) as harness:
        client = await harness.connect()
        await join_consumer(client, "warm", "t", group_id="warm")  # loads the API
        await client.ask("offset_delete", 0, group_id="warm", topics=[])
        await client.ask("offset_commit", 9, **commit_values("g"))  # the join makes this group one of the other kind
        for values in (joining("m", "u", *NAMES), joining("n", "t"), joining("m", "t", *NAMES)):
            answer, longest = await longest_piece(harness, frame("consumer_group_heartbeat", 1, **values))
            assert decode("consumer_group_heartbeat", 1, answer)["error_code"] == "NONE"
            assert longest < PIECE_MAX
        answer, longest = await longest_piece(harness, frame("offset_delete", 0, **DELETE_OFFSETS))
        topics = decode("offset_delete", 0, answer)["topics"]
        errors = {topic["name"]: topic["partitions"][0]["error_code"] for topic in topics}
        assert errors == {"t": "GROUP_SUBSCRIBED_TO_TOPIC", "u": "NONE"}
        assert longest < PIECE_MAX
        listed = await client.ask("list_groups", states_filter=[], types_filter=["consumer"])
        assert [group["group_id"] for group in listed["groups"]] == ["warm", "g"]
        leaving = consumer_heartbeat_values("m", -1)
        answer, longest = await longest_piece(harness, frame("consumer_group_heartbeat", 1, **leaving))
        assert decode("consumer_group_heartbeat", 1, answer)["error_code"] == "NONE"
        assert longest < PIECE_MAX


@pytest.mark.usefixtures("_one_step_a_turn")
@async_test
async def test_subscription_of_classic_member_to_many_topics_is_read_in_pieces(tmp_path: Path) -> None:
    environment = Environment(work_clocks=WorkClocks(slice_ns=endless_clock()))
    async with running_node(tmp_path, {"sync": "none"}, environment=environment) as harness:
        client = await harness.connect()
        metadata = write_subscription(Subscription(("t", *NAMES)))
        await join_and_sync(client, "g", protocols=[{"name": "range", "metadata": metadata}])
        await client.ask("offset_delete", 0, group_id="warm", topics=[])  # loads the API
        answer, longest = await longest_piece(harness, frame("offset_delete", 0, **DELETE_OFFSETS))
        topics = decode("offset_delete", 0, answer)["topics"]
        errors = {topic["name"]: topic["partitions"][0]["error_code"] for topic in topics}
        assert errors == {"t": "GROUP_SUBSCRIBED_TO_TOPIC", "u": "NONE"}
        assert longest < PIECE_MAX


@pytest.mark.usefixtures("_one_step_a_turn")
@pytest.mark.parametrize("topics", [1, ITEMS // 2])
@async_test
async def test_transaction_with_many_partitions_is_described_in_pieces(tmp_path: Path, topics: int) -> None:
    environment = Environment(work_clocks=WorkClocks(slice_ns=endless_clock()))
    async with running_node(tmp_path, {"sync": "none"}, environment=environment) as harness:
        client = await harness.connect()
        await begin_with_record(client, b"x", await init_producer_id(client))
        await client.ask("describe_transactions", transactional_ids=[TX])  # loads the API
        transaction = harness.node.services.transaction_table.get(TX)
        assert transaction is not None
        partitions = {(f"t{number % topics}", number) for number in range(ITEMS)}
        transaction.value = transaction.value._replace(partitions=frozenset(partitions))
        memory_client, counter = MemoryClient(harness.node), WorkCounter()
        with counter.counting():
            memory_client.feed(frame("describe_transactions", 0, transactional_ids=[TX]))
            await counter.count_turns_until(lambda: bool(memory_client.transport.written))
        assert counter.longest < PIECE_MAX
        [answer] = await memory_client.answered(1)
        [state] = decode("describe_transactions", 0, answer)["transaction_states"]
        found = [(topic["topic"], number) for topic in state["topics"] for number in topic["partitions"]]
        assert found == sorted(partitions)
