"""Functions of a program as assignors of its coordinator, used by members over TCP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from consumer_requests import beat, join
from harness import Client, async_test

from callboard import Coordinator
from callboard.actors.assignors.base import MemberSubscription, TopicPartition

Shares = dict[str, list[TopicPartition]]

PARTITIONS = 6
FOREVER_S = 60.0


def by_rack(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Shares:
    """The weight of a member is its rack: a text like "2"."""
    slots = [member.member_id for member in members for _ in range(int(member.rack_id or 1))]
    shares: Shares = {}
    for number in range(partitions["t"]):
        shares.setdefault(slots[number % len(slots)], []).append(("t", number))
    return shares


@asynccontextmanager
async def running(data: Path | None = None, **options: Any) -> AsyncIterator[tuple[Coordinator, Client]]:
    options = {"topics": {"t": PARTITIONS}, "group_consumer_assignment_interval_ms": 0, **options}
    async with Coordinator(data, "127.0.0.1:0", **options) as coordinator:
        host, _, port = coordinator.bootstrap.rpartition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        try:
            yield coordinator, client
        finally:
            await client.close()


def partitions_of(answer: Mapping[str, Any]) -> list[int] | None:
    if answer["assignment"] is None:
        return None
    return [number for topic in answer["assignment"]["topic_partitions"] for number in topic["partitions"]]


@async_test
async def test_members_get_what_the_function_says() -> None:
    async with running(assignors={"by-rack": by_rack}) as (_, client):
        first = await join(client, "a", "t", server_assignor="by-rack", rack_id="2")
        assert partitions_of(first) == [0, 1, 2, 3, 4, 5]
        await join(client, "b", "t", server_assignor="by-rack", rack_id="1")
        assert partitions_of(await beat(client, "a", 2)) == [0, 1, 3, 4]
        topic = first["assignment"]["topic_partitions"][0]["topic_id"]
        owned = [{"topic_id": topic, "partitions": [0, 1, 3, 4]}]
        assert (await beat(client, "a", 2, topic_partitions=owned))["member_epoch"] == 3
        assert partitions_of(await beat(client, "b", 3)) == [2, 5]
        refused = await join(client, "c", "t", server_assignor="by-zone")
        assert refused["error_message"] == (
            "ServerAssignor by-zone is not supported. Supported assignors: uniform, range, by-rack."
        )


@async_test
async def test_setting_makes_the_function_the_default() -> None:
    async with running(assignors={"by-rack": by_rack}, group_consumer_assignors="by-rack") as (_, client):
        await join(client, "a", "t", rack_id="5")
        await join(client, "b", "t")
        assert partitions_of(await beat(client, "a", 2)) == [0, 1, 2, 3, 4]


@async_test
async def test_error_of_the_function_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with running(assignors={"by-rack": by_rack}) as (_, client):
        await join(client, "a", "t", server_assignor="by-rack", rack_id="1")
        for _ in range(2):
            refused = await join(client, "b", "t", server_assignor="by-rack", rack_id="east")
            assert refused["error_code"] == "UNKNOWN_SERVER_ERROR"
            assert "assignor by-rack failed: ValueError: invalid literal for int()" in refused["error_message"]
        assert (await beat(client, "a", 2))["error_code"] == "NONE"
    [record] = [record for record in caplog.records if "an assignor has failed" in record.getMessage()]
    assert f"function='{__name__}.by_rack'" in record.getMessage()


@async_test
async def test_slow_function_does_not_hold_up_the_event_loop(tmp_path: Path) -> None:
    """The member is answered without partitions, and gets them with a later heartbeat."""
    entered, released = threading.Event(), threading.Event()

    def slow(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Shares:
        entered.set()
        assert released.wait(FOREVER_S)
        return by_rack(partitions, members)

    async with running(tmp_path, assignors={"slow": slow}) as (_, client):
        joined = await join(client, "a", "t", server_assignor="slow")
        assert (joined["error_code"], partitions_of(joined)) == ("NONE", [])
        assert entered.wait(FOREVER_S)
        other = await join(client, "b", "t", group_id="other")
        assert partitions_of(other) == [0, 1, 2, 3, 4, 5]
        released.set()
        async with asyncio.timeout(FOREVER_S):
            while not (assigned := partitions_of(await beat(client, "a", joined["member_epoch"]))):
                await asyncio.sleep(0.01)
        assert assigned == [0, 1, 2, 3, 4, 5]
