"""A member and a Kafka consumer of one group commit the same number: the offset of the next record to process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from kafka_python_marks import KAFKA_PYTHON

import callboard
from callboard.runtime.embed.thread import ThreadCoordinator

pytestmark = KAFKA_PYTHON

TOPIC = "letters"
LETTERS = [b"a", b"b", b"c", b"d", b"e", b"f"]
DEADLINE_S = 300.0


@pytest.fixture(scope="module")
def coordinator() -> Iterator[ThreadCoordinator]:
    """A coordinator with one topic of one partition that contains LETTERS."""
    from confluent_kafka import Producer

    with callboard.Coordinator.in_thread(listen="127.0.0.1:0", topics={TOPIC: 1}) as coordinator:
        producer = Producer({"bootstrap.servers": coordinator.bootstrap})
        for letter in LETTERS:
            producer.produce(TOPIC, letter, partition=0)
        assert producer.flush(DEADLINE_S) == 0
        yield coordinator


def consume_with_kafka_python(bootstrap: str, group: str, count: int) -> list[bytes]:
    """Process ``count`` records with automatic commits, then leave the group."""
    consumer: Any = import_module("kafka").KafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=1,
    )
    letters: list[bytes] = []
    end_s = time.monotonic() + DEADLINE_S
    while len(letters) < count and time.monotonic() < end_s:
        for records in consumer.poll(timeout_ms=500).values():
            letters += [record.value for record in records]
    consumer.commit()
    consumer.close()
    return letters


def consume_with_confluent(bootstrap: str, group: str, count: int) -> list[bytes]:
    """Process ``count`` records, commit the last one, then leave the group."""
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    letters: list[bytes] = []
    end_s = time.monotonic() + DEADLINE_S
    while len(letters) < count and time.monotonic() < end_s:
        record = consumer.poll(0.5)
        if record is not None and not record.error():
            letters.append(bytes(record.value() or b""))
            consumer.commit(message=record, asynchronous=False)
    consumer.close()
    return letters


Consume = Callable[[str, str, int], list[bytes]]
each_client = pytest.mark.parametrize("consume", [consume_with_kafka_python, consume_with_confluent])


def consume_with_member(coordinator: ThreadCoordinator, group: str, count: int) -> list[bytes]:
    """The same with a member: begin at ``next_offset``, commit the offset after each record."""
    with coordinator.member(group, resources={TOPIC: 1}) as member:
        [shard] = member.next_assignment(DEADLINE_S).shards
        first = shard.next_offset or 0
        for offset in range(first, first + count):
            shard.commit(offset + 1)
    return LETTERS[first : first + count]


@each_client
def test_member_and_kafka_consumer_take_turns_without_repeating_or_skipping_a_record(
    coordinator: ThreadCoordinator, consume: Consume
) -> None:
    group = f"turns-{consume.__name__}"
    letters = consume(coordinator.bootstrap, group, 2)
    letters += consume_with_member(coordinator, group, 2)
    letters += consume(coordinator.bootstrap, group, 2)
    assert letters == LETTERS


@each_client
def test_next_offset_after_a_kafka_consumer_committed_is_the_number_that_it_committed(
    coordinator: ThreadCoordinator, consume: Consume
) -> None:
    group = f"number-{consume.__name__}"
    consume(coordinator.bootstrap, group, 3)
    with coordinator.member(group, resources={TOPIC: 1}) as member:
        [shard] = member.next_assignment(DEADLINE_S).shards
        assert shard.next_offset == coordinator.offsets(group)[TOPIC, 0].offset == 3


def test_next_offset_is_none_before_the_first_commit(coordinator: ThreadCoordinator) -> None:
    with coordinator.member("new", resources={TOPIC: 1}) as member:
        [shard] = member.next_assignment(DEADLINE_S).shards
        assert shard.next_offset is None


def test_groups_offsets_shows_what_a_member_committed_and_the_records_left(coordinator: ThreadCoordinator) -> None:
    consume_with_member(coordinator, "shown", 4)
    command = [sys.executable, "-m", "callboard", "groups", "offsets", "shown", "--json"]
    command += ["--bootstrap-server", coordinator.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    [row] = json.loads(done.stdout)
    assert (row["topic"], row["partition"], row["committed"], row["lag"]) == (TOPIC, 0, 4, len(LETTERS) - 4)
