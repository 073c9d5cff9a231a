"""What Java's own consumers expect of a group coordinator, with each of Kafka's four assignors.

Skipped where there is no Java or no Maven, which brings the jars; in CI that is a failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from real_kafka.kafka import KafkaUnavailable, jars, missing

from .company import wait_for_shares
from .java import CLIENTS, JavaConsumer, JavaProducer
from .script import PARTITIONS_PER_TOPIC
from .server import ServerProcess
from .waiting import wait_until
from .wire import Wire

ASSIGNORS = ("Range", "RoundRobin", "Sticky", "CooperativeSticky")
TOPIC, GROUP = "orders", "shop"
RECORDS = 300
LONG_SESSION_TIMEOUT_MS = 45_000
SHORT_SESSION_TIMEOUT_MS = 2_000

Placed = tuple[int, int, str]


class JavaCompany:
    """One group of Java consumers, those who fill its topic, and the server."""

    def __init__(self, class_path: Path, folder: Path, server: ServerProcess, closing: ExitStack) -> None:
        self.server = server
        self._jars = class_path
        self._folder = folder
        self._closing = closing
        self._numbers = count(1)

    def consumer(self, assignor: str, name: str, **options: Any) -> JavaConsumer:
        options.setdefault("session_timeout", LONG_SESSION_TIMEOUT_MS)
        options["assignment_strategy"] = f"{CLIENTS}.{assignor}Assignor"
        options |= {"topic": TOPIC, "group_id": GROUP, "bootstrap_server": self.server.bootstrap}
        consumer = JavaConsumer(self._jars, name, self._folder, **options)
        self._closing.callback(consumer.finish)
        return consumer

    def produce(self) -> list[Placed]:
        """Fill the topic; return where each record lies."""
        options: dict[str, Any] = {"topic": TOPIC, "bootstrap_server": self.server.bootstrap}
        # With keys the records go to all partitions.
        options |= {"max_messages": RECORDS, "repeating_keys": 2 * PARTITIONS_PER_TOPIC}
        name = f"producer-{next(self._numbers)}"
        producer = JavaProducer(self._jars, name, self._folder, **options)
        self._closing.callback(producer.finish)
        sent = producer.sent()
        assert len(sent) == RECORDS
        return sent

    def committed(self) -> dict[int, int]:
        """The group's offsets by partition, as anybody can ask for them."""
        with Wire(self.server.host, self.server.port) as wire:
            answer = wire.ask("offset_fetch", 5, group_id=GROUP, topics=None)
        (topic,) = answer["topics"]
        return {part["partition_index"]: part["committed_offset"] for part in topic["partitions"]}


@pytest.fixture(scope="module")
def class_path() -> Path:
    """The folder with Kafka's jars."""
    try:
        reason = missing()
        if reason is None:
            return jars()
    except KafkaUnavailable as unavailable:
        reason = str(unavailable)
    if os.environ.get("CI"):
        pytest.fail(f"in CI Java's client is not optional: {reason}")
    pytest.skip(reason)


@pytest.fixture
def java(class_path: Path, tmp_path: Path) -> Iterator[JavaCompany]:
    options = ("--topic", f"{TOPIC}:{PARTITIONS_PER_TOPIC}")
    with ExitStack() as closing, ServerProcess(tmp_path, options=options) as server:
        yield JavaCompany(class_path, tmp_path, server, closing)


def wait_until_received(expected: list[Placed], *consumers: JavaConsumer) -> None:
    """Wait until they have received that many records between them: those, and none twice."""
    received = wait_until(
        lambda: sorted(place for consumer in consumers for place in consumer.received()),
        lambda places: len(places) >= len(expected),
        f"{len(expected)} records",
    )
    assert received == sorted(expected)


def wait_until_committed(java: JavaCompany, expected: list[Placed], *consumers: JavaConsumer) -> None:
    """Wait until everything is committed, and see that the consumers were told the same that others can read."""
    ends: dict[int, int] = {}
    for partition, offset, _ in expected:
        ends[partition] = max(offset + 1, ends.get(partition, 0))
    wait_until(java.committed, lambda offsets: offsets == ends, f"{ends} to be committed")
    wait_until(
        lambda: {part for consumer in consumers for part in consumer.committed().items()},
        lambda told: told >= set(ends.items()),
        f"the consumers to hear that {ends} are committed",
    )


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_java_consumers_join_rebalance_and_commit(java: JavaCompany, assignor: str) -> None:
    """A dynamic and a static member share, outlive a third one and the server, and the static one comes back."""
    first = java.consumer(assignor, "first")
    seat = java.consumer(assignor, "seat", group_instance_id="seat")
    wait_for_shares(first, seat)
    sent = java.produce()
    wait_until_received(sent, first, seat)
    wait_until_committed(java, sent, first, seat)

    # A third one joins, and is killed: when its session is over, the others have its share.
    third = java.consumer(assignor, "third", session_timeout=SHORT_SESSION_TIMEOUT_MS)
    wait_for_shares(first, seat, third)
    third.kill()
    shares = wait_for_shares(first, seat)
    rebalances = first.rebalances, seat.rebalances

    # The server stops and comes back: nobody hears of a rebalance, and nothing is read twice.
    java.server.restart()
    sent += java.produce()
    wait_until_received(sent, first, seat)
    wait_until_committed(java, sent, first, seat)
    assert (first.rebalances, seat.rebalances) == rebalances

    # The static one is killed and comes back to its share, which disturbs nobody.
    seat.kill()
    back = java.consumer(assignor, "back", group_instance_id="seat")
    assert wait_for_shares(first, back) == shares
    assert first.rebalances == rebalances[0]

    # One that closes leaves, and its session timeout plays no part.
    first.close()
    wait_for_shares(back)


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_java_static_members_return_without_rebalance(java: JavaCompany, assignor: str) -> None:
    """Each of them, the leader too, closes or dies and comes back to its share, and nobody else hears of it.

    The leader that came back was told its old assignment without making one (KIP-814); it makes the next.
    """
    lead = java.consumer(assignor, "lead", group_instance_id="lead")
    wait_for_shares(lead)
    seat = java.consumer(assignor, "seat", group_instance_id="seat")
    shares = wait_for_shares(lead, seat)
    rebalances = seat.rebalances

    lead.close()
    lead = java.consumer(assignor, "lead-again", group_instance_id="lead")
    assert wait_for_shares(lead, seat) == shares
    assert seat.rebalances == rebalances

    rebalances = lead.rebalances
    seat.kill()
    seat = java.consumer(assignor, "seat-again", group_instance_id="seat")
    assert wait_for_shares(lead, seat) == shares
    assert lead.rebalances == rebalances

    third = java.consumer(assignor, "third", group_instance_id="third")
    wait_for_shares(lead, seat, third)
    sent = java.produce()
    wait_until_received(sent, lead, seat, third)
    wait_until_committed(java, sent, lead, seat, third)
