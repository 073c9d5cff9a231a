"""Tests of a confluent-kafka consumer's rebalance callbacks: assigned, revoked, lost, and a rebalance that fails.

    pip install callboard[pytest] confluent-kafka
    pytest examples/test_confluent_rebalance.py

A consumer that collects records before it writes them must write and commit the collected records of a partition that
is revoked, but discard those of a partition that is lost, because another consumer already reads it. A partition is
lost when the session has expired, which is hard to reproduce by hand. Here the clock of the plugin expires it, and a
fault makes one rebalance fail.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from callboard.testing import BlockingTime, ThreadCoordinator

SESSION_S = 45  # librdkafka's default
Partitions = list[TopicPartition]

pytestmark = pytest.mark.callboard(topics={"clicks": 2})

# The consumer --------------------------------------------------------------------------------------------------------


class Collector:
    """Collects records of each partition, and writes them when there are enough or the partition is revoked."""

    def __init__(self, bootstrap: str, name: str, written: list[bytes], batch_size: int = 100) -> None:
        self.collected: dict[int, list[bytes]] = {}
        self.next_offsets: dict[int, int] = {}
        self.events: list[str] = []
        self.written = written
        self.batch_size = batch_size
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": name,
                "group.id": "collectors",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "cooperative-sticky",
                "heartbeat.interval.ms": 100,
            }
        )
        self.consumer.subscribe(["clicks"], on_assign=self.on_assign, on_revoke=self.on_revoke, on_lost=self.on_lost)

    def on_assign(self, _consumer: Consumer, partitions: Partitions) -> None:
        for partition in partitions:
            self.events.append(f"+{partition.partition}")
            self.collected[partition.partition] = []

    def on_revoke(self, _consumer: Consumer, partitions: Partitions) -> None:
        for partition in partitions:
            self.events.append(f"-{partition.partition}")
            self.write(partition.partition)
            del self.collected[partition.partition]

    def on_lost(self, _consumer: Consumer, partitions: Partitions) -> None:
        for partition in partitions:
            self.events.append(f"lost {partition.partition}")
            del self.collected[partition.partition]  # its new owner reads them again

    def poll(self) -> None:
        record = self.consumer.poll(0.01)
        if record is None or record.error():
            return
        partition, offset, value = record.partition(), record.offset(), record.value()
        assert partition is not None and offset is not None and value is not None
        self.collected[partition].append(value)
        self.next_offsets[partition] = offset + 1
        if len(self.collected[partition]) >= self.batch_size:
            self.write(partition)

    def write(self, partition: int) -> None:
        if records := self.collected[partition]:
            next_position = TopicPartition("clicks", partition, self.next_offsets[partition])
            self.consumer.commit(
                offsets=[next_position], asynchronous=False
            )  # before the write, so that no record is written twice
            self.written += records
            self.collected[partition] = []


# Its tests -----------------------------------------------------------------------------------------------------------


@contextmanager
def collector(coordinator: ThreadCoordinator, name: str, written: list[bytes]) -> Iterator[Collector]:
    new = Collector(coordinator.bootstrap, name, written)
    try:
        yield new
    finally:
        new.consumer.close()


def poll_until(condition: Callable[[], object], *collectors: Collector) -> None:
    end = monotonic() + 30
    while not condition():
        assert monotonic() < end, f"timeout; events: {[polled.events for polled in collectors]}"
        for polled in collectors:
            polled.poll()


def produce_clicks(bootstrap: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        producer.produce("clicks", value.encode(), partition=number % 2)
    assert producer.flush(30) == 0


def collected_count(*collectors: Collector) -> int:
    return sum(len(records) for counted in collectors for records in counted.collected.values())


def test_revoked_partition_is_written_and_committed_first(coordinator: ThreadCoordinator) -> None:
    written: list[bytes] = []
    produce_clicks(coordinator.bootstrap, "a", "b")
    with collector(coordinator, "ann", written) as ann:
        poll_until(lambda: collected_count(ann) == 2, ann)
        with collector(coordinator, "bob", written) as bob:
            poll_until(lambda: bob.collected, ann, bob)
            [revoked] = bob.collected
            assert ann.events[-1] == f"-{revoked}"
            assert written == [b"ab"[revoked : revoked + 1]], "records of the kept partition stay collected"
            assert coordinator.offsets("collectors")["clicks", revoked].offset == 1
        poll_until(lambda: len(ann.collected) == 2, ann)  # else close() might leave the group before it commits
    assert sorted(written) == [b"a", b"b"], "close() revokes too"


def test_lost_partition_is_neither_written_nor_committed(coordinator: ThreadCoordinator, clock: BlockingTime) -> None:
    written: list[bytes] = []
    produce_clicks(coordinator.bootstrap, "a", "b")
    with collector(coordinator, "ann", written) as ann:
        poll_until(lambda: collected_count(ann) == 2, ann)
        clock.advance(SESSION_S + 1, silent=["ann"])  # as if ann's machine had slept; her next heartbeat is refused
        poll_until(lambda: "lost 1" in ann.events, ann)
        assert written == []
        assert coordinator.offsets("collectors") == {}
        poll_until(lambda: collected_count(ann) == 2, ann)  # ann has rejoined and read them again
    assert sorted(written) == [b"a", b"b"]


def test_failed_rebalance_is_retried_and_assigns_each_partition_once(coordinator: ThreadCoordinator) -> None:
    fault = coordinator.faults.fail("SyncGroup", group="collectors", error="REBALANCE_IN_PROGRESS")
    with collector(coordinator, "ann", []) as ann:
        poll_until(lambda: len(ann.collected) == 2, ann)
        assert fault.hits == 1
        assert sorted(ann.events) == ["+0", "+1"]


def test_refused_commit_raises_and_nothing_is_written(coordinator: ThreadCoordinator) -> None:
    """The coordinator refuses the commit of a revoked partition: the error is raised, and no record is written."""
    written: list[bytes] = []
    produce_clicks(coordinator.bootstrap, "a", "b")
    with collector(coordinator, "ann", written) as ann:
        poll_until(lambda: collected_count(ann) == 2, ann)
        coordinator.faults.fail("OffsetCommit", client_id="ann", error="UNKNOWN_MEMBER_ID")
        with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
            ann.write(0)
        assert written == []
