"""explain() and rebalances(): why a group is as it is, on an event loop and in a blocking form."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from typing import Any

import pytest
from confluent_kafka import Consumer

from callboard import Coordinator, CoordinatorError, ErrorCode, GroupExplanation

SETTINGS: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0}


def test_explains_the_last_rebalance() -> None:
    asyncio.run(explain_the_last_rebalance())


async def explain_the_last_rebalance() -> None:
    async with asyncio.timeout(30), Coordinator(None, None, **SETTINGS) as coordinator:
        with pytest.raises(CoordinatorError) as caught:
            await coordinator.explain("jobs")
        assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        assert await coordinator.rebalances("jobs") == ()
        async with coordinator.member("jobs", resources={"orders": 4}) as member:
            await anext(aiter(member.assignments()))
            explained = await coordinator.explain("jobs")
            [record] = await coordinator.rebalances("jobs")
        assert isinstance(explained, GroupExplanation)
        assert "joined; it is stable with 1 member" in explained.sentence
        assert explained.now is not None and explained.now.state == "Stable"
        assert explained.rebalances == (record,)
        assert (record.why.cause, record.outcome, record.members.joined.members) == ("new_member", "stable", 1)
        assert record.moves is not None and record.moves.total == 4
        assert json.loads(json.dumps(explained.as_json()))["rebalances"][0]["cause"] == "new_member"
        empty = await coordinator.explain("jobs", limit=1)
        assert empty.sentence.startswith("Became empty at ")
        assert [each.outcome for each in empty.rebalances] == ["empty"]
        with pytest.raises(ValueError, match="limit=0: expected a whole number >= 1"):
            await coordinator.explain("jobs", limit=0)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_have_their_principal_and_software(protocol: str) -> None:
    """As their connections say it, also in the records of rebalances."""
    with Coordinator.in_thread(None, "127.0.0.1:0", topics={"orders": 1}, **SETTINGS) as coordinator:
        consumer = Consumer(
            {"bootstrap.servers": coordinator.bootstrap, "group.id": "jobs", "group.protocol": protocol}
        )
        consumer.subscribe(["orders"])
        try:
            while not consumer.assignment():
                consumer.poll(0.1)
            explained = coordinator.explain("jobs")
        finally:
            consumer.close()
        assert explained.now is not None
        joined = [name for record in explained.rebalances for name in record.members.joined.names]
        for name in (*explained.now.members, *joined[:1]):
            assert name.principal == "User:ANONYMOUS"
            assert re.search(r"rdkafka.* ?[0-9.]+", name.software), name.software


def test_blocking_form() -> None:
    with (
        Coordinator.in_thread(None, None, **SETTINGS) as coordinator,
        coordinator.member("jobs", resources={"orders": 2}) as member,
    ):
        next(iter(member.assignments()))
        assert coordinator.explain("jobs").rebalances == coordinator.rebalances("jobs", limit=5)
        assert len(coordinator.rebalances("jobs")) == 1


def test_thread_of_the_recorder_ends_with_the_coordinator() -> None:
    threads = set(threading.enumerate())
    asyncio.run(explain_the_last_rebalance())
    assert set(threading.enumerate()) <= threads
