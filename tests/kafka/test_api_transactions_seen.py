"""DescribeTransactions and ListTransactions: compared with Kafka 4.3.1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import async_test, frame, running_node
from transaction_api_helpers import TX, add_offsets, begin_with_record, init_producer_id

from callboard.runtime.kafka.api import describe_transactions


@async_test
async def test_describe_transactions(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        producer = await init_producer_id(client)
        before_ms = harness.node.environment.clock.wall_ms()
        await begin_with_record(client, b"x", producer)
        await add_offsets(client, producer)
        await init_producer_id(client, "idle")
        answer = await client.ask("describe_transactions", transactional_ids=[TX, "nobody", "", TX])
        ongoing, unknown, empty, repeated = answer["transaction_states"]
        assert ongoing == repeated
        assert (ongoing["transaction_state"], ongoing["transaction_timeout"]) == ("Ongoing", 60_000)
        assert ongoing["transaction_start_time"].timestamp() * 1000 >= before_ms
        assert {key: ongoing[key] for key in producer} == producer
        [offsets_topic, records_topic] = ongoing["topics"]
        assert (offsets_topic["topic"], len(offsets_topic["partitions"]), records_topic) == (
            "__consumer_offsets",
            1,
            {"topic": "t", "partitions": [0]},
        )
        assert (unknown["error_code"], empty["error_code"]) == ("TRANSACTIONAL_ID_NOT_FOUND", "INVALID_REQUEST")
        client.write(frame("describe_transactions", 0, transactional_ids=["idle"]))
        state = b"\x05idle\x06Empty" + (60_000).to_bytes(4, "big") + b"\xff" * 8  # no start time
        assert state in await client.receive_frame()


@async_test
async def test_described_transaction_that_is_requested_often_is_encoded_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its partitions would fill the memory with each repetition."""
    described: list[Any] = []
    original = describe_transactions.described

    def count_and_describe(*values: Any) -> Any:
        described.append(values)
        return original(*values)

    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await begin_with_record(client, b"x", await init_producer_id(client))
        monkeypatch.setattr(describe_transactions, "described", count_and_describe)
        answer = await client.ask("describe_transactions", transactional_ids=[TX] * 100)
    assert len(answer["transaction_states"]) == 100
    assert len(described) == 1


@pytest.mark.parametrize(
    ("states", "is_idle_only", "age_ms", "listed", "unknown"),
    [
        ([], False, -1, ["idle", TX], []),
        (["Ongoing"], False, -1, [TX], []),
        (["Ongoing", "Empty", "x"], False, -1, ["idle", TX], ["x"]),
        (["ongoing", "ongoing"], False, -1, [], ["ongoing"]),
        ([], True, -1, ["idle"], []),
        (["Ongoing"], True, -1, [], []),
        ([], False, 3_600_000, ["idle"], []),
    ],
)
@async_test
async def test_list_transactions_filters(
    tmp_path: Path, states: list[str], is_idle_only: bool, age_ms: int, listed: list[str], unknown: list[str]
) -> None:
    """A transaction that has not begun matches every duration filter, as in Kafka."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        idle = (await init_producer_id(client, "idle"))["producer_id"]
        await begin_with_record(client, b"x", await init_producer_id(client))
        filters: dict[str, Any] = {
            "state_filters": states,
            "producer_id_filters": [idle] if is_idle_only else [],
            "duration_filter": age_ms,
        }
        answer = await client.ask("list_transactions", **filters)
        assert sorted(transaction["transactional_id"] for transaction in answer["transaction_states"]) == listed
        assert answer["unknown_state_filters"] == unknown
