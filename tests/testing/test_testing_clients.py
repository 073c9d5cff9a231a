"""Tests of ``callboard.testing`` with real clients and sockets, and controlled time and faults."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest
from aiokafka import (  # type: ignore[import-untyped, unused-ignore]
    AIOKafkaConsumer,
    TopicPartition,
)
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Place
from kafka_python_marks import KAFKA_PYTHON
from peers.waiting import wait_until

from callboard.testing import BlockingTime, ThreadCoordinator

DAY_S = 24 * 3600
LIBRDKAFKA_SESSION_S = 45  # its default
TOPICS = {"jobs": 4}

pytestmark = [*KAFKA_PYTHON, pytest.mark.callboard(topics=TOPICS)]


@contextmanager
def confluent(bootstrap: str, client_id: str, **config: Any) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "workers",
            "client.id": client_id,
            "enable.auto.commit": False,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            **{name.replace("_", "."): value for name, value in config.items()},
        }
    )
    consumer.subscribe(list(TOPICS))
    try:
        yield consumer
    finally:
        consumer.close()


def until(predicate: Callable[[], object]) -> None:
    wait_until(predicate, bool, "the condition of the test")


def has(number: int, *consumers: Consumer) -> Callable[[], bool]:
    """Whether these consumers have ``number`` partitions in total, and each has at least one."""

    def is_found() -> bool:
        for consumer in consumers:
            consumer.poll(0.01)
        counts = [len(consumer.assignment()) for consumer in consumers]
        return sum(counts) == number and all(counts)

    return is_found


def told(coordinator: ThreadCoordinator, kind: str) -> list[str]:
    return [event.what for event in coordinator.timeline.events if event.kind == kind]


# Time ----------------------------------------------------------------------------------------------------------------


def test_silent_member_is_removed_after_session_and_others_stay(
    coordinator: ThreadCoordinator, clock: BlockingTime
) -> None:
    with confluent(coordinator.bootstrap, "ann") as ann, confluent(coordinator.bootstrap, "bob") as bob:
        until(has(4, ann, bob))
        ids = {member.client_id: member.member_id for member in coordinator.describe("workers").members}
        clock.advance(LIBRDKAFKA_SESSION_S - 1, silent=["ann"])
        assert told(coordinator, "timer")[-1:] != [f"the session of {coordinator.timeline.short(ids['ann'])} has ended"]
        clock.advance(2, silent=["ann"])
        session_events = [event for event in told(coordinator, "timer") if "session" in event]
        assert session_events == [f"the session of {coordinator.timeline.short(ids['ann'])} has ended"]
        assert ids["ann"] not in {member.member_id for member in coordinator.describe("workers").members}
        until(has(4, ann, bob))  # the member is alive, and polls again


def test_connected_members_stay_for_a_month(coordinator: ThreadCoordinator, clock: BlockingTime) -> None:
    with confluent(coordinator.bootstrap, "ann") as ann:
        until(has(4, ann))
        group_before = coordinator.describe("workers")
        clock.advance(30 * DAY_S)
        assert coordinator.describe("workers") == group_before
        ann.commit(offsets=[Place("jobs", 0, 7)], asynchronous=False)
        assert coordinator.offsets("workers")["jobs", 0].offset == 7


def test_offsets_of_empty_group_expire_after_seven_days(coordinator: ThreadCoordinator, clock: BlockingTime) -> None:
    """Kafka's default retention, counted from the moment at which the last member left."""
    with confluent(coordinator.bootstrap, "ann") as ann:
        until(has(4, ann))
        ann.commit(offsets=[Place("jobs", 0, 7)], asynchronous=False)
    assert coordinator.describe("workers").state == "Empty"
    clock.advance(7 * DAY_S - 1)
    assert coordinator.offsets("workers")["jobs", 0].offset == 7
    clock.advance(3600)
    assert coordinator.offsets("workers") == {}
    assert "the group is deleted" in told(coordinator, "state")


def test_rebalance_completes_without_silent_member(coordinator: ThreadCoordinator, clock: BlockingTime) -> None:
    """One member is connected but does not poll, so the rebalance waits for it until the timeout."""
    with confluent(coordinator.bootstrap, "ann", max_poll_interval_ms=60_000) as ann:
        until(has(4, ann))
        with confluent(coordinator.bootstrap, "bob", max_poll_interval_ms=60_000) as bob:
            until(lambda: bob.poll(0.01) or coordinator.describe("workers").state == "PreparingRebalance")
            waited_s = clock.advance_until(
                lambda: coordinator.describe("workers").state != "PreparingRebalance", silent=["ann"]
            )
            assert waited_s <= 60
            until(has(4, bob))


# Faults --------------------------------------------------------------------------------------------------------------


def test_kafka_python_handles_error_response(coordinator: ThreadCoordinator) -> None:
    kafka: Any = import_module("kafka")  # not at module level: the import uses deprecated functions of Python
    fault = coordinator.faults.fail("SyncGroup", group="workers", error="REBALANCE_IN_PROGRESS")
    consumer = kafka.KafkaConsumer(
        "jobs",
        bootstrap_servers=coordinator.bootstrap,
        group_id="workers",
        metadata_max_age_ms=1000,  # see kafka_python_fast_metadata
    )
    try:
        until(lambda: not consumer.poll(500) and len(consumer.assignment()) == 4)  # with 10 ms it may wait for ever
    finally:
        consumer.close()
    assert fault.hits == 1


def test_aiokafka_rejoins_after_unknown_member_id(coordinator: ThreadCoordinator, clock: BlockingTime) -> None:
    """After a false UNKNOWN_MEMBER_ID the consumer rejoins; the rebalance waits until its old member is silenced."""

    async def consume() -> None:
        consumer = AIOKafkaConsumer(
            "jobs", bootstrap_servers=coordinator.bootstrap, group_id="workers", heartbeat_interval_ms=50
        )
        await consumer.start()
        try:
            [ghost] = coordinator.describe("workers").members
            coordinator.faults.fail("Heartbeat", error="UNKNOWN_MEMBER_ID")
            await asyncio.to_thread(until, lambda: len(coordinator.timeline.members) == 2)
            await asyncio.to_thread(until, lambda: coordinator.describe("workers").state == "PreparingRebalance")
            clock.advance(10, silent=[ghost.member_id])
            await asyncio.to_thread(until, lambda: coordinator.describe("workers").state == "Stable")
            await consumer.commit({TopicPartition("jobs", 1): 5})
        finally:
            await consumer.stop()

    asyncio.run(consume())
    assert coordinator.offsets("workers")["jobs", 1].offset == 5


def test_librdkafka_reconnects_after_disconnects(coordinator: ThreadCoordinator) -> None:
    """Before the JoinGroup is handled, and after the SyncGroup."""
    faults = [coordinator.faults.disconnect("JoinGroup"), coordinator.faults.disconnect("SyncGroup", after=True)]
    with confluent(coordinator.bootstrap, "ann") as ann:
        until(has(4, ann))
    assert [fault.hits for fault in faults] == [1, 1]


def test_delayed_answer_follows_coordinator_clock(coordinator: ThreadCoordinator, clock: BlockingTime) -> None:
    with confluent(coordinator.bootstrap, "ann") as ann:
        until(has(4, ann))
        fault = coordinator.faults.delay("OffsetCommit", seconds=3600)
        ann.commit(offsets=[Place("jobs", 0, 7)], asynchronous=True)
        fault.wait()
        assert coordinator.offsets("workers") == {}
        clock.advance(3600)
        assert coordinator.offsets("workers")["jobs", 0].offset == 7


def test_dropped_commit_answer_is_retried(coordinator: ThreadCoordinator) -> None:
    """The commit was stored although its answer was lost."""

    async def consume() -> None:
        consumer = AIOKafkaConsumer(
            *("jobs",),
            bootstrap_servers=coordinator.bootstrap,
            group_id="workers",
            request_timeout_ms=500,
            session_timeout_ms=6000,
        )
        await consumer.start()
        try:
            fault = coordinator.faults.drop("OffsetCommit", after=True)
            await consumer.commit({TopicPartition("jobs", 1): 5})
            assert fault.hits == 1
        finally:
            await consumer.stop()

    asyncio.run(consume())
    commits = [event for event in coordinator.timeline.events if "OffsetCommit" in event.what]
    assert [event.kind for event in commits[:3]] == ["request", "fault", "request"], (
        "without an answer the client sends the request again"
    )


@pytest.mark.parametrize("end", [{}, {"crash": True}, {"power_loss": True}], ids=["clean", "crash", "power loss"])
def test_consumer_keeps_generation_across_restart(coordinator: ThreadCoordinator, end: dict[str, bool]) -> None:
    """The member keeps its generation and its partitions, and acknowledged commits survive."""
    with confluent(coordinator.bootstrap, "ann") as ann:
        until(has(4, ann))
        ann.commit(offsets=[Place("jobs", 0, 7)], asynchronous=False)
        members_before = coordinator.describe("workers").members
        bootstrap = coordinator.bootstrap
        coordinator.faults.restart(**end)
        assert coordinator.bootstrap == bootstrap, "the port is unchanged"
        assert coordinator.offsets("workers")["jobs", 0].offset == 7
        ann.commit(offsets=[Place("jobs", 1, 8)], asynchronous=False)
        assert coordinator.offsets("workers")["jobs", 1].offset == 8
        assert coordinator.describe("workers").members == members_before


@pytest.mark.callboard(data=True)
def test_consumer_keeps_generation_across_crash_with_real_folder(coordinator: ThreadCoordinator) -> None:
    test_consumer_keeps_generation_across_restart(coordinator, {"crash": True})


def test_failed_disk_refuses_commits_until_restart(coordinator: ThreadCoordinator) -> None:
    with confluent(coordinator.bootstrap, "ann") as ann:
        until(has(4, ann))
        ann.commit(offsets=[Place("jobs", 0, 7)], asynchronous=False)
        fault = coordinator.faults.lose_disk_after(0)
        with pytest.raises(KafkaException, match="NOT_COORDINATOR"):
            ann.commit(offsets=[Place("jobs", 0, 8)], asynchronous=False)
        assert fault.hits
        coordinator.faults.restart(crash=True)
        assert coordinator.offsets("workers")["jobs", 0].offset == 7
        ann.commit(offsets=[Place("jobs", 0, 8)], asynchronous=False)
        assert coordinator.offsets("workers")["jobs", 0].offset == 8


def test_fault_with_client_id_applies_only_to_that_client(coordinator: ThreadCoordinator) -> None:
    fault = coordinator.faults.fail("JoinGroup", client_id="ann", error="GROUP_AUTHORIZATION_FAILED", times=math.inf)
    with confluent(coordinator.bootstrap, "bob") as bob:
        until(has(4, bob))
        assert fault.hits == 0
        with confluent(coordinator.bootstrap, "ann") as ann:
            fault.wait()
            assert not ann.assignment()
            assert len(bob.assignment()) == 4
