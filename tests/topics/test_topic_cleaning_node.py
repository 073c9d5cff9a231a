"""A running server drops old records and compacts topics, without a request."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from harness import async_test, running_node
from topics_helpers import producer_batch

SETTINGS: dict[str, Any] = {"log_retention_check_interval_ms": 1, "log_cleaner_backoff_ms": 1000}


@pytest.mark.parametrize(
    ("settings", "start_offset", "batches"),
    [({"retention.ms": "1"}, 4, 0), ({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}, 0, 2)],
)
@async_test
async def test_server_cleans_topics(tmp_path: Path, settings: dict[str, str], start_offset: int, batches: int) -> None:
    async with running_node(tmp_path, **SETTINGS) as harness:
        client = await harness.connect()
        configs = [{"name": name, "value": value} for name, value in settings.items()]
        new = {"name": "cleaned", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": configs}
        await client.ask("create_topics", 6, topics=[new], timeout=1000, validate_only=False)
        topic = harness.node.topics.get("cleaned")
        assert topic is not None
        for _ in range(4):
            topic.append(0, producer_batch())
        log = topic.partitions[0]
        while log.batch_count != batches:
            await asyncio.sleep(0.01)
        assert (log.start_offset, log.end_offset) == (start_offset, 4)
