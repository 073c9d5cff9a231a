"""DescribeTransactions and ListTransactions: compared with Kafka 4.3.1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import async_test, frame, running_node
from transaction_api_helpers import TX, add_offsets, begin_with_record, init_producer_id


@async_test
async def test_describe_transactions(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        producer = await init_producer_id(client)
        before_ms = harness.node.clock.wall_ms()
        await begin_with_record(client, b"x", producer)
        await add_offsets(client, producer)
        await init_producer_id(client, "idle")
        answer = await client.ask("describe_transactions", transactional_ids=[TX, "nobody", "", TX])
        open_one, nobody, nameless, again = answer["transaction_states"]
        assert open_one == again
        assert (open_one["transaction_state"], open_one["transaction_timeout"]) == ("Ongoing", 60_000)
        assert open_one["transaction_start_time"].timestamp() * 1000 >= before_ms
        assert {key: open_one[key] for key in producer} == producer
        [ours, theirs] = open_one["topics"]
        assert (ours["topic"], len(ours["partitions"]), theirs) == (
            "__consumer_offsets",
            1,
            {"topic": "t", "partitions": [0]},
        )
        assert (nobody["error_code"], nameless["error_code"]) == ("TRANSACTIONAL_ID_NOT_FOUND", "INVALID_REQUEST")
        client.write(frame("describe_transactions", 0, transactional_ids=["idle"]))
        state = b"\x05idle\x06Empty" + (60_000).to_bytes(4, "big") + b"\xff" * 8  # no start time
        assert state in await client.receive_frame()


@pytest.mark.parametrize(
    ("states", "of_idle", "age_ms", "found", "unknown"),
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
    tmp_path: Path, states: list[str], of_idle: bool, age_ms: int, found: list[str], unknown: list[str]
) -> None:
    """A transaction that has not begun matches every duration filter, as in Kafka."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        idle = (await init_producer_id(client, "idle"))["producer_id"]
        await begin_with_record(client, b"x", await init_producer_id(client))
        asked: dict[str, Any] = {
            "state_filters": states,
            "producer_id_filters": [idle] if of_idle else [],
            "duration_filter": age_ms,
        }
        answer = await client.ask("list_transactions", **asked)
        assert sorted(one["transactional_id"] for one in answer["transaction_states"]) == found
        assert answer["unknown_state_filters"] == unknown
