"""Counts and durations of requests by API, which an option switches on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from consumer_requests import consumer_heartbeat_values, join
from harness import (
    Client,
    NodeHarness,
    async_test,
    commit_values,
    heartbeat_values,
    join_and_sync,
    running_node,
)
from prometheus_client.parser import text_string_to_metric_families

from callboard.actors.errors import ErrorCode
from callboard.actors.messages import Committed, OffsetsDeleted
from callboard.runtime.kafka.request_counts import error_of
from callboard.runtime.node.metrics import metrics
from callboard.runtime.settings.metric_options import MetricOptions

COUNTED: Mapping[str, Any] = {"metric_options": MetricOptions(has_requests=True)}


async def samples(harness: NodeHarness) -> dict[tuple[str, ...], float]:
    """The number of requests by API and error, and ``(API, "seconds")``: the number of those with a duration."""
    page = (await metrics(lambda: harness.node)).decode()
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == "callboard_requests_total":
                found[sample.labels["api"], sample.labels["error"]] = sample.value
            elif sample.name == "callboard_request_seconds_count" and sample.value:
                found[sample.labels["api"], "seconds"] = sample.value
    return found


async def send_all(harness: NodeHarness, client: Client) -> None:
    member = await join_and_sync(client, "g")
    for _ in range(3):
        await client.ask("heartbeat", 4, **heartbeat_values("g", member))
    await client.ask("heartbeat", 0, **heartbeat_values("g", member))
    stranger = member._replace(member_id="stranger")
    for version in (0, 4):
        await client.ask("heartbeat", version, **heartbeat_values("g", stranger))
    await client.ask("offset_commit", 9, **commit_values("g", member))
    await client.ask("offset_commit", 9, **commit_values("g", member._replace(generation_id=99)))
    await client.ask("describe_groups", 5, groups=["g"], include_authorized_operations=False)
    await client.ask("api_versions", 0)


@async_test
async def test_requests_are_counted_by_api_and_error(tmp_path: Path) -> None:
    async with running_node(tmp_path, COUNTED) as harness:
        await send_all(harness, await harness.connect())
        found = await samples(harness)
    assert found == {
        ("JoinGroup", "MEMBER_ID_REQUIRED"): 1,
        ("JoinGroup", "NONE"): 1,
        ("JoinGroup", "seconds"): 2,
        ("SyncGroup", "NONE"): 1,
        ("SyncGroup", "seconds"): 1,
        ("Heartbeat", "NONE"): 4,
        ("Heartbeat", "UNKNOWN_MEMBER_ID"): 2,
        ("Heartbeat", "seconds"): 6,
        ("OffsetCommit", "NONE"): 1,
        ("OffsetCommit", "ILLEGAL_GENERATION"): 1,
        ("OffsetCommit", "seconds"): 2,
        ("DescribeGroups", ""): 1,
        ("ApiVersions", ""): 1,
        ("ApiVersions", "seconds"): 1,
    }


@async_test
async def test_heartbeats_of_the_consumer_protocol_are_counted(tmp_path: Path) -> None:
    async with running_node(tmp_path, COUNTED) as harness:
        client = await harness.connect()
        joined = await join(client, "a", "t", group_id="g")
        values = consumer_heartbeat_values("a", joined["member_epoch"], group_id="g")
        for _ in range(3):
            await client.ask("consumer_group_heartbeat", 1, **values)
        found = await samples(harness)
    assert found["ConsumerGroupHeartbeat", "NONE"] == found["ConsumerGroupHeartbeat", "seconds"] == 4


@async_test
async def test_large_commit_is_counted_when_it_is_answered(tmp_path: Path) -> None:
    async with running_node(tmp_path, {**COUNTED, "topics": (("t", 500),)}) as harness:
        client = await harness.connect()
        partitions = [
            {"partition_index": number, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
            for number in range(500)
        ]
        values = commit_values("g") | {"topics": [{"name": "t", "partitions": partitions}]}
        await client.ask("offset_commit", 9, **values)
        assert await samples(harness) == {("OffsetCommit", "NONE"): 1, ("OffsetCommit", "seconds"): 1}


@async_test
async def test_without_the_option_nothing_is_counted(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        await send_all(harness, await harness.connect())
        assert await samples(harness) == {}
        assert harness.node.services.routes.counts is None


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (ErrorCode.NONE, "NONE"),
        (ErrorCode.NOT_COORDINATOR, "NOT_COORDINATOR"),
        (OffsetsDeleted(ErrorCode.NON_EMPTY_GROUP), "NON_EMPTY_GROUP"),
        (Committed((ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE)), "OFFSET_METADATA_TOO_LARGE"),
        (Committed(()), "NONE"),
        (None, "NONE"),
    ],
)
def test_error_of_a_reply(reply: object, expected: str) -> None:
    assert error_of(reply) == expected
