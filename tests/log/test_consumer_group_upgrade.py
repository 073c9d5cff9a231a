"""Records of the consumer protocol (KIP-848) in the log of a version that is older than it, during a rolling upgrade.

An older version does not know the types of these records. It keeps them, as all that it does not know.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from consumer_requests import beat, join
from harness import Client, async_test, commit_values, fetch_values, running_node

from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.compaction.swap import CompactionSettings, compact
from callboard.runtime.log.format.consumer_records import CONSUMER_RECORD_TYPES
from callboard.runtime.log.format.records import RECORD_TYPES

SETTINGS: dict[str, Any] = {
    "group_consumer_assignment_interval_ms": 0,
    "offsets_topic_num_partitions": 1,
    "offsets_topic_segment_bytes": 4096,
}
COMMITS = 60  # more than a segment


async def described(client: Client) -> Any:
    response = await client.ask("consumer_group_describe", 1, group_ids=["g"], include_authorized_operations=False)
    [group] = response["groups"]
    return {**group, "members": sorted(group["members"], key=lambda member: member["member_id"])}


async def fetched(client: Client, group: str) -> list[int]:
    response = await client.ask("offset_fetch", 8, **fetch_values(group))
    return [part["committed_offset"] for topic in response["groups"][0]["topics"] for part in topic["partitions"]]


async def commit_often(client: Client, group: str) -> None:
    for offset in range(COMMITS):
        response = await client.ask("offset_commit", 8, **commit_values(group, offset=offset))
        assert response["topics"][0]["partitions"][0]["error_code"] == "NONE"


@async_test
async def test_an_older_version_keeps_the_records_of_consumer_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_node(tmp_path, **SETTINGS) as harness:
        client = await harness.connect()
        assert (await join(client, "a", "t"))["member_epoch"] == 2
        assert (await join(client, "b", "t"))["member_epoch"] == 3
        expected = await described(client)
        assert [member["member_id"] for member in expected["members"]] == ["a", "b"]
    with monkeypatch.context() as older:
        for key_type in CONSUMER_RECORD_TYPES:
            older.delitem(RECORD_TYPES, key_type)
        async with running_node(tmp_path, **SETTINGS) as harness:
            client = await harness.connect()
            await commit_often(client, "classic")
        draft = compact(
            Disk(), tmp_path / "__consumer_offsets-0", CompactionSettings(time.time_ns() // 10**6, "test", -1.0)
        )
        assert draft is not None
        assert draft.records_after < draft.records_before
    async with running_node(tmp_path, **SETTINGS) as harness:
        client = await harness.connect()
        assert await described(client) == expected
        assert (await beat(client, "a", 2))["error_code"] == "NONE"
        assert await fetched(client, "classic") == [COMMITS - 1]
