"""The helpers of ``callboard.testing``: wait until a group is stable, and produce a record."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from harness import async_test

from callboard import CoordinatorError
from callboard.testing import Coordinator, ThreadCoordinator

pytestmark = pytest.mark.callboard(topics={"jobs": 2})


def test_wait_until_stable_polls_clients_that_rebalance_while_they_are_polled(
    coordinator: ThreadCoordinator, kafka_bootstrap: str
) -> None:
    settings = {"bootstrap.servers": kafka_bootstrap, "group.id": "workers", "heartbeat.interval.ms": 300}
    ann, bob = (Consumer({**settings, "client.id": name}) for name in ("ann", "bob"))
    try:
        ann.subscribe(["jobs"])
        alone = coordinator.wait_until_stable("workers", poll=lambda: ann.poll(0.02))
        bob.subscribe(["jobs"])
        both = coordinator.wait_until_stable("workers", 2, poll=lambda: (ann.poll(0.02), bob.poll(0.02)))
    finally:
        ann.close()
        bob.close()
    assert [member.client_id for member in alone.members] == ["ann"]
    assert sorted(member.client_id for member in both.members) == ["ann", "bob"]
    assert sorted(partition for member in both.members for partition in member.assigned or ()) == [
        ("jobs", 0),
        ("jobs", 1),
    ]


def test_wait_until_stable_without_members_raises_with_the_state_of_the_group(coordinator: ThreadCoordinator) -> None:
    coordinator.reset("workers", {"jobs": 0})
    expected = r"group 'workers' is Empty with 0 members, not Stable with 2, after 0.02 s"
    with pytest.raises(TimeoutError, match=expected):
        coordinator.wait_until_stable("workers", 2, timeout=0.02)
    with pytest.raises(TimeoutError, match=expected):
        coordinator.wait_until_stable("workers", 2, timeout=0.02, poll=lambda: None)
    with pytest.raises(TimeoutError, match="group 'absent' is Dead with 0 members"):
        coordinator.wait_until_stable("absent", timeout=0.02)


def test_wait_until_stable_is_not_in_the_timeline(coordinator: ThreadCoordinator) -> None:
    with coordinator.member("workers", resources={"jobs": 2}):
        coordinator.wait_until_stable("workers")
        assert "DescribeGroup" not in coordinator.timeline.text(everything=True)


def test_produced_records_are_consumed_with_key_value_and_the_coordinators_time(
    coordinator: ThreadCoordinator, kafka_bootstrap: str
) -> None:
    coordinator.clock.advance(3600)
    offsets = [
        coordinator.produce("jobs", "one", key="k", partition=1),
        coordinator.produce("jobs", b"\xff", partition=1),
        coordinator.produce("jobs", None, key="k", partition=1),
    ]
    consumer = Consumer({"bootstrap.servers": kafka_bootstrap, "group.id": "readers"})
    consumer.assign([TopicPartition("jobs", 1, 0)])
    records: list[Message] = []
    while len(records) < 3:
        record = consumer.poll(0.05)
        if record is not None:
            records.append(record)
    late = coordinator.produce("jobs", "late", partition=1)  # wakes the consumer, which waits for records
    while (record := consumer.poll(0.05)) is None:
        pass
    consumer.close()
    assert offsets == [0, 1, 2]
    assert [(each.key(), each.value()) for each in records] == [(b"k", b"one"), (None, b"\xff"), (b"k", None)]
    assert records[0].timestamp()[1] - 3_600_000 > 1_600_000_000_000
    assert (record.offset(), record.value(), late) == (3, b"late", 3)


@pytest.mark.parametrize(
    ("topic", "partition", "message"),
    [
        ("job", 0, r"there is no topic 'job': did you mean 'jobs'\? create_topic\(\) it"),
        ("jobs", 2, r"topic 'jobs' has partitions 0 to 1, not 2"),
        ("__consumer_offsets", 0, "there is no topic '__consumer_offsets'"),
    ],
)
def test_produce_to_an_unknown_topic_or_partition_is_refused(
    coordinator: ThreadCoordinator, topic: str, partition: int, message: str
) -> None:
    with pytest.raises(CoordinatorError, match=message):
        coordinator.produce(topic, "x", partition=partition)


@pytest.mark.parametrize("record", [{"value": {"id": 1}}, {"value": "x", "key": 42}])
def test_produce_of_a_record_that_is_neither_bytes_nor_text_is_refused(
    coordinator: ThreadCoordinator, record: dict[str, Any]
) -> None:
    with pytest.raises(TypeError, match=r"(value=\{'id': 1\}|key=42): expected bytes, text or None"):
        coordinator.produce("jobs", **record)
    assert coordinator.produce("jobs", b"x") == 0


@async_test
async def test_helpers_of_a_coordinator_on_the_tests_own_loop() -> None:
    async with Coordinator(topics={"jobs": 2}) as coordinator, coordinator.member("g", resources={"jobs": 2}):
        assert len((await coordinator.wait_until_stable("g")).members) == 1
        assert await coordinator.produce("jobs", "x") == 0
