"""Java consumers with each of Kafka's four assignors.

Skipped where there is no Java or no Maven, which brings the jars; in CI that is a failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from .group_clients import wait_until_partitions_are_shared
from .java import CLIENTS, JavaConsumer
from .peer_main import PARTITIONS_PER_TOPIC
from .server import ServerProcess
from .waiting import DEADLINE_S, wait_until
from .wire import Wire

ASSIGNORS = (
    "Range",
    pytest.param("RoundRobin", marks=pytest.mark.long),
    pytest.param("Sticky", marks=pytest.mark.long),
    "CooperativeSticky",
)
TOPIC, GROUP = "orders", "shop"
RECORDS = 300
LONG_SESSION_TIMEOUT_MS = 45_000
SHORT_SESSION_TIMEOUT_MS = 2_000

ReceivedRecord = tuple[int, int, str]


class JavaClients:
    """The server, a group of Java consumers, and a producer."""

    def __init__(self, class_path: Path, folder: Path, server: ServerProcess, closing: ExitStack) -> None:
        self.server = server
        self._jars = class_path
        self._folder = folder
        self._closing = closing

    def consumer(self, assignor: str, name: str, **options: Any) -> JavaConsumer:
        options.setdefault("session_timeout", LONG_SESSION_TIMEOUT_MS)
        options["assignment_strategy"] = f"{CLIENTS}.{assignor}Assignor"
        options |= {"topic": TOPIC, "group_id": GROUP, "bootstrap_server": self.server.bootstrap}
        consumer = JavaConsumer(self._jars, name, self._folder, **options)
        self._closing.callback(consumer.finish)
        return consumer

    def produce(self) -> list[ReceivedRecord]:
        """Produce records to all partitions in turn; return their partitions, offsets and values."""
        sent: list[ReceivedRecord] = []

        def delivered(error: object, message: Any) -> None:
            assert error is None, error
            sent.append((message.partition(), message.offset(), message.value().decode()))

        producer = Producer({"bootstrap.servers": self.server.bootstrap})
        for number in range(RECORDS):
            partition = number % PARTITIONS_PER_TOPIC
            producer.produce(TOPIC, str(number), partition=partition, on_delivery=delivered)
        assert producer.flush(DEADLINE_S) == 0
        assert len(sent) == RECORDS
        return sent

    def committed(self) -> dict[int, int]:
        """The group's committed offsets by partition; empty before the first commit."""
        with Wire(self.server.host, self.server.port) as wire:
            answer = wire.ask("offset_fetch", 5, group_id=GROUP, topics=None)
        partitions = [partition for topic in answer["topics"] for partition in topic["partitions"]]
        return {partition["partition_index"]: partition["committed_offset"] for partition in partitions}


@pytest.fixture
def java(class_path: Path, tmp_path: Path) -> Iterator[JavaClients]:
    options = ("--topic", f"{TOPIC}:{PARTITIONS_PER_TOPIC}")
    with ExitStack() as closing, ServerProcess(tmp_path, options=options) as server:
        yield JavaClients(class_path, tmp_path, server, closing)


def wait_until_received(expected: list[ReceivedRecord], *consumers: JavaConsumer) -> None:
    """Wait until the consumers have received these records in total, each once."""
    received = wait_until(
        lambda: sorted(record for consumer in consumers for record in consumer.received()),
        lambda records: len(records) >= len(expected),
        f"{len(expected)} records",
    )
    assert received == sorted(expected)


def wait_until_committed(java: JavaClients, expected: list[ReceivedRecord], *consumers: JavaConsumer) -> None:
    """Wait until the server has all commits and the consumers have received their acknowledgements."""
    ends: dict[int, int] = {}
    for partition, offset, _ in expected:
        ends[partition] = max(offset + 1, ends.get(partition, 0))
    wait_until(java.committed, lambda offsets: offsets == ends, f"{ends} to be committed")
    wait_until(
        lambda: {part for consumer in consumers for part in consumer.committed().items()},
        lambda committed: committed >= set(ends.items()),
        f"the consumers to receive the commits of {ends}",
    )


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_java_consumers_join_rebalance_and_commit(java: JavaClients, assignor: str) -> None:
    """A dynamic and a static member, the death of a third, a restart of the server, and a static restart."""
    first = java.consumer(assignor, "first")
    static = java.consumer(assignor, "static", group_instance_id="static")
    wait_until_partitions_are_shared(first, static)
    sent = java.produce()
    wait_until_received(sent, first, static)
    wait_until_committed(java, sent, first, static)

    # A third member joins and is killed; when its session expires, the others get its share.
    third = java.consumer(assignor, "third", session_timeout=SHORT_SESSION_TIMEOUT_MS)
    wait_until_partitions_are_shared(first, static, third)
    third.kill()
    shares = wait_until_partitions_are_shared(first, static)
    rebalances = first.rebalances, static.rebalances

    # The server restarts: no rebalance, and no record is received twice.
    java.server.restart()
    sent += java.produce()
    wait_until_received(sent, first, static)
    wait_until_committed(java, sent, first, static)
    assert (first.rebalances, static.rebalances) == rebalances

    # The static member is killed and gets its share again without a rebalance.
    static.kill()
    back = java.consumer(assignor, "back", group_instance_id="static")
    assert wait_until_partitions_are_shared(first, back) == shares
    assert first.rebalances == rebalances[0]

    # A closed member leaves the group, so its session timeout does not matter.
    first.close()
    wait_until_partitions_are_shared(back)


@pytest.mark.parametrize("assignor", [*ASSIGNORS[:-1], pytest.param(ASSIGNORS[-1], marks=pytest.mark.long)])
def test_java_static_members_return_without_rebalance(java: JavaClients, assignor: str) -> None:
    """Each member, also the leader, ends and returns to its share without a rebalance.

    The returned leader skips the assignment (KIP-814) and computes the next one.
    """
    lead = java.consumer(assignor, "lead", group_instance_id="lead")
    wait_until_partitions_are_shared(lead)
    static = java.consumer(assignor, "static", group_instance_id="static")
    shares = wait_until_partitions_are_shared(lead, static)
    rebalances = static.rebalances

    lead.close()
    lead = java.consumer(assignor, "lead-again", group_instance_id="lead")
    assert wait_until_partitions_are_shared(lead, static) == shares
    assert static.rebalances == rebalances

    rebalances = lead.rebalances
    static.kill()
    static = java.consumer(assignor, "static-again", group_instance_id="static")
    assert wait_until_partitions_are_shared(lead, static) == shares
    assert lead.rebalances == rebalances

    third = java.consumer(assignor, "third", group_instance_id="third")
    wait_until_partitions_are_shared(lead, static, third)
    sent = java.produce()
    wait_until_received(sent, lead, static, third)
    wait_until_committed(java, sent, lead, static, third)
