"""What a server logs while it serves: lines for changes, and none for each request."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from harness import Client, async_test, commit_values, heartbeat_values, join_and_sync, offsets, running_node
from transaction_api_helpers import batch, fetch_partition, produce


async def use(client: Client, group_id: str, times: int) -> None:
    """A member joins, then sends each of the frequent requests so many times."""
    member = await join_and_sync(client, group_id)
    for _ in range(times):
        assert (await client.ask("heartbeat", **heartbeat_values(group_id, member)))["error_code"] == "NONE"
        await client.ask("offset_commit", 9, **commit_values(group_id, member))
        assert await offsets(client, group_id) == {("t", 0): 42}
        assert await produce(client, batch(b"v"), None) == "NONE"
        assert (await fetch_partition(client, 0))["error_code"] == "NONE"


@pytest.mark.parametrize(("level", "lines_max"), [(logging.INFO, 1), (logging.DEBUG, 5)])
@async_test
async def test_frequent_requests_write_no_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, level: int, lines_max: int
) -> None:
    """The lines are those of the rebalance, however many requests follow."""
    counts = []
    async with running_node(tmp_path) as harness:
        with caplog.at_level(level):
            for times in (1, 50):
                caplog.clear()
                await use(await harness.connect(), f"g{times}", times)
                lines = [record for record in caplog.records if record.name.startswith(("callboard", "pykka"))]
                counts.append(len(lines))
    assert 1 <= counts[0] == counts[1] <= lines_max, caplog.text
