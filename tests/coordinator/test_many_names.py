"""Requests with up to half a million groups are handled in slices; other requests are served in between."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from harness import (
    MemoryClient,
    NodeHarness,
    async_test,
    frame,
    heartbeat_values,
    join_and_sync,
    running_node,
    versions,
)
from peers.wire import decode

from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.kafka.scatter_gather import MESSAGES_PER_BATCH

GROUP_COUNT = 30 * MESSAGES_PER_BATCH
LONG_COUNT_VERSIONS = (0, 6)  # versions whose array count has three bytes or more
SLICE_MAX = 3 * MESSAGES_PER_BATCH  # between a heartbeat and its response, which takes up to three turns of the loop


class RequestCounter:
    """Counts requests that are posted to groups."""

    def __init__(self, harness: NodeHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.posted = 0
        self._post = harness.node.groups.post
        monkeypatch.setattr(harness.node.groups, "post", self._count)

    def _count(self, request: Any, reply: Any) -> None:
        self.posted += 1
        self._post(request, reply)

    def take(self) -> int:
        posted, self.posted = self.posted, 0
        return posted


@async_test
async def test_other_requests_are_served_between_slices(tmp_path: Path) -> None:
    """Measured in turns: a heartbeat in each turn of the loop is answered within a few turns."""
    async with running_node(tmp_path) as harness:
        member = await join_and_sync(await harness.connect(), "g")
        with pytest.MonkeyPatch.context() as monkeypatch:
            counter, describe_client, heartbeat_client = (
                RequestCounter(harness, monkeypatch),
                MemoryClient(harness.node),
                MemoryClient(harness.node),
            )
            names = [f"nobody-{number}" for number in range(GROUP_COUNT)]
            names[GROUP_COUNT // 2] = "g"
            describe_client.feed(frame("describe_groups", 5, groups=names, include_authorized_operations=False))
            heartbeat_count, requests_max = 0, counter.take()
            while not describe_client.answers():
                heartbeat_client.feed(frame("heartbeat", 4, **heartbeat_values("g", member)))
                heartbeat_count += 1
                await heartbeat_client.answered(heartbeat_count)
                requests_max = max(requests_max, counter.take() - 1)
        assert heartbeat_count >= GROUP_COUNT // SLICE_MAX
        assert requests_max <= SLICE_MAX
        groups = decode("describe_groups", 5, describe_client.answers()[0])["groups"]
        assert [group["group_id"] for group in groups] == names
        assert [group["group_state"] for group in groups if group["group_id"] == "g"] == ["Stable"]


@async_test
async def test_sliced_responses_are_complete_in_every_version(tmp_path: Path) -> None:
    """Array counts of one, two and three bytes, compared with kio's encoding."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await join_and_sync(client, "g")
        for version in versions("describe_groups"):
            for count in (
                0,
                1,
                126,
                127,
                128,
                MESSAGES_PER_BATCH + 1,
                16_400 if version in LONG_COUNT_VERSIONS else MESSAGES_PER_BATCH,
            ):
                names = (["g", "nobody"] * count)[:count]
                client.write(frame("describe_groups", version, groups=names, include_authorized_operations=True))
                response = await client.receive_frame()
                groups = decode("describe_groups", version, response)["groups"]
                assert [group["group_id"] for group in groups] == names
                assert {len(group["members"]) for group in groups if group["group_id"] == "g"} <= {1}
            kafka = schema("describe_groups", version)
            body = response[5:] if kafka.flexible_header else response[4:]
            assert kafka.write(decode_response(version, body)) == body


def decode_response(version: int, body: bytes) -> Any:
    """The response as kio's entity."""
    from kio.serial import entity_reader

    entity, size = entity_reader(schema("describe_groups", version).response_type)(body, 0)
    assert size == len(body)
    return entity


@async_test
async def test_deletes_of_many_groups_are_sliced(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        names = [f"nobody-{number}" for number in range(3 * MESSAGES_PER_BATCH + 1)]
        response = await client.ask("delete_groups", groups_names=names)
        assert [result["group_id"] for result in response["results"]] == names
        assert {result["error_code"] for result in response["results"]} == {"GROUP_ID_NOT_FOUND"}


@async_test
async def test_client_that_disconnects_during_slices_leaves_no_state(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = MemoryClient(harness.node)
        names = [f"nobody-{number}" for number in range(GROUP_COUNT)]
        client.feed(frame("describe_groups", 5, groups=names, include_authorized_operations=False))
        client.close()
        while client.connection in harness.node.connections:
            await asyncio.sleep(0)
