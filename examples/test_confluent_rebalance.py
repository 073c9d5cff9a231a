"""Rebalance callbacks of a confluent-kafka consumer, tested: given, taken, lost, and a rebalance that goes wrong.

    pip install callboard[pytest] confluent-kafka
    pytest examples/test_confluent_rebalance.py

A consumer that collects records before it writes them must do the right thing with what it has collected when a
partition is taken from it (write it, commit) and another thing when the partition is lost (throw it away: somebody else
is at it). The second happens after a session has ended unnoticed, so by hand it is hardly ever seen. Here the clock of
the ``coordinator`` fixture makes it happen, and a fault makes one rebalance fail half way.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from callboard.testing import BlockingTime, ThreadCoordinator

SESSION_S = 45  # librdkafka's default
Places = list[TopicPartition]

pytestmark = pytest.mark.callboard(topics={"clicks": 2})

# The consumer --------------------------------------------------------------------------------------------------------


class Collector:
    """Collects records of each partition, and writes them when there are enough, or when the partition goes."""

    def __init__(self, bootstrap: str, name: str, written: list[bytes], enough: int = 100) -> None:
        self.collected: dict[int, list[bytes]] = {}
        self.next_offsets: dict[int, int] = {}
        self.events: list[str] = []
        self.written = written
        self.enough = enough
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

    def on_assign(self, _consumer: Consumer, places: Places) -> None:
        for place in places:
            self.events.append(f"+{place.partition}")
            self.collected[place.partition] = []

    def on_revoke(self, _consumer: Consumer, places: Places) -> None:
        for place in places:
            self.events.append(f"-{place.partition}")
            self.write(place.partition)
            del self.collected[place.partition]

    def on_lost(self, _consumer: Consumer, places: Places) -> None:
        for place in places:
            self.events.append(f"lost {place.partition}")
            del self.collected[place.partition]  # whoever has it now reads these again

    def poll(self) -> None:
        record = self.consumer.poll(0.01)
        if record is None or record.error():
            return
        partition, offset, value = record.partition(), record.offset(), record.value()
        assert partition is not None and offset is not None and value is not None
        self.collected[partition].append(value)
        self.next_offsets[partition] = offset + 1
        if len(self.collected[partition]) >= self.enough:
            self.write(partition)

    def write(self, partition: int) -> None:
        if records := self.collected[partition]:
            place = TopicPartition("clicks", partition, self.next_offsets[partition])
            self.consumer.commit(offsets=[place], asynchronous=False)  # first, so that nothing is written twice
            self.written += records
            self.collected[partition] = []


# Its tests -----------------------------------------------------------------------------------------------------------


@contextmanager
def collector(coordinator: ThreadCoordinator, name: str, written: list[bytes]) -> Iterator[Collector]:
    one = Collector(coordinator.bootstrap, name, written)
    try:
        yield one
    finally:
        one.consumer.close()


def poll_until(condition: Callable[[], object], *collectors: Collector) -> None:
    end = monotonic() + 30
    while not condition():
        assert monotonic() < end, f"not so within 30 s; events: {[one.events for one in collectors]}"
        for one in collectors:
            one.poll()


def click(bootstrap: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        producer.produce("clicks", value.encode(), partition=number % 2)
    assert producer.flush(30) == 0


def count(*collectors: Collector) -> int:
    return sum(len(records) for one in collectors for records in one.collected.values())


def test_what_is_taken_is_written_first(coordinator: ThreadCoordinator) -> None:
    written: list[bytes] = []
    click(coordinator.bootstrap, "a", "b")
    with collector(coordinator, "ann", written) as ann:
        poll_until(lambda: count(ann) == 2, ann)
        with collector(coordinator, "bob", written) as bob:
            poll_until(lambda: bob.collected, ann, bob)
            [taken] = bob.collected
            assert ann.events[-1] == f"-{taken}"
            assert written == [b"ab"[taken : taken + 1]], "the other one stays collected: nothing happened to it"
            assert coordinator.offsets("collectors")["clicks", taken].offset == 1
        poll_until(lambda: len(ann.collected) == 2, ann)  # closed in a rebalance, librdkafka may leave, then commit
    assert sorted(written) == [b"a", b"b"], "closing hands back too"


def test_what_is_lost_is_neither_written_nor_committed(coordinator: ThreadCoordinator, clock: BlockingTime) -> None:
    written: list[bytes] = []
    click(coordinator.bootstrap, "a", "b")
    with collector(coordinator, "ann", written) as ann:
        poll_until(lambda: count(ann) == 2, ann)
        clock.advance(SESSION_S + 1, silent=["ann"])  # as if her machine had slept; her next heartbeat tells her
        poll_until(lambda: "lost 1" in ann.events, ann)
        assert written == []
        assert coordinator.offsets("collectors") == {}
        poll_until(lambda: count(ann) == 2, ann)  # she is back, and has read them again
    assert sorted(written) == [b"a", b"b"]


def test_a_rebalance_that_fails_half_way_gives_everything_once(coordinator: ThreadCoordinator) -> None:
    fault = coordinator.faults.fail("SyncGroup", group="collectors", error="REBALANCE_IN_PROGRESS")
    with collector(coordinator, "ann", []) as ann:
        poll_until(lambda: len(ann.collected) == 2, ann)
        assert fault.hits == 1
        assert sorted(ann.events) == ["+0", "+1"]


def test_a_commit_that_comes_too_late_is_seen(coordinator: ThreadCoordinator) -> None:
    """The coordinator says no while the partition is taken: the callback must not hide it, nor count it as written."""
    written: list[bytes] = []
    click(coordinator.bootstrap, "a", "b")
    with collector(coordinator, "ann", written) as ann:
        poll_until(lambda: count(ann) == 2, ann)
        coordinator.faults.fail("OffsetCommit", client_id="ann", error="UNKNOWN_MEMBER_ID")
        with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
            ann.write(0)
        assert written == []
