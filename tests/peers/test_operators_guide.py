"""docs/operate.md, "Ten things that go wrong": each is caused with a real client, and explained as the page says."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Place
from project_paths import ROOT

from callboard import CoordinatorError
from callboard.testing import BlockingTime, ThreadCoordinator

from .waiting import wait_until

PAGE = ROOT / "docs" / "operate.md"
DAY_S = 24 * 3600
PARTITIONS = 4

pytestmark = pytest.mark.callboard(topics={"orders": PARTITIONS}, group_min_session_timeout_ms=100)

START = Callable[..., Consumer]

VARYING = (
    (re.compile(r"\d\d:\d\d:\d\d"), "TIME"),
    (re.compile(r"\d[\d.]* (ms|s|min|h)\b"), "DURATION"),
    (re.compile(r"-[0-9a-f]{8}-[0-9a-f-]+\.\.\."), "-ID..."),
    (re.compile(r"\b(127\.0\.0\.1|10\.0\.0\.\d)\b"), "HOST"),
    (re.compile(r"; (its|the) \w+ (took|for more members took) DURATION[^;.]*"), ""),
)
"""What depends on the time and the machine: times, durations, random ids, addresses, and the longest phase."""


def plain(text: str) -> str:
    for pattern, replacement in VARYING:
        text = pattern.sub(replacement, " ".join(text.split()))
    return text


def documented(number: int) -> list[str]:
    """What the page says about a problem: the text blocks under its heading."""
    section = re.split(r"^##+ ", PAGE.read_text(), flags=re.MULTILINE)
    [text] = [part for part in section if part.startswith(f"{number}. ")]
    return [plain(block) for block in re.findall(r"```text\n(.*?)```", text, re.DOTALL)]


def explained(coordinator: ThreadCoordinator) -> list[str]:
    try:
        found = coordinator.explain("orders")
    except CoordinatorError as error:
        return [str(error)]  # nobody has joined yet
    return [plain(found.sentence), *(plain(f"{finding.detector}: {finding.text}") for finding in found.findings)]


def check(number: int, coordinator: ThreadCoordinator, polled: Callable[[], object] = lambda: None) -> None:
    """Each text of the page is in the explanation, now or soon."""
    texts = documented(number)
    assert texts

    def explain() -> list[str]:
        polled()
        return explained(coordinator)

    wait_until(explain, lambda said: all(text in said for text in texts), f"{texts} of the page")


@pytest.fixture
def start(kafka_bootstrap: str) -> Iterator[START]:
    """Makes consumers of the group. They are closed after the test."""
    with ExitStack() as closing:

        def begin(client_id: str, topic: str = "orders", **config: Any) -> Consumer:
            settings = {"session.timeout.ms": 45_000, "heartbeat.interval.ms": 100, "enable.auto.commit": False}
            given = {name.replace("_", "."): value for name, value in config.items()}
            names = {"bootstrap.servers": kafka_bootstrap, "group.id": "orders", "client.id": client_id}
            consumer = Consumer({**names, **settings, **given})
            closing.callback(consumer.close)
            consumer.subscribe([topic])
            return consumer

        yield begin


def poll(*consumers: Consumer) -> None:
    for consumer in consumers:
        consumer.poll(0.01)


def assigned(*consumers: Consumer) -> Callable[[], bool]:
    """Whether they have all partitions together."""

    def has_all() -> bool:
        poll(*consumers)
        counts = [len(consumer.assignment()) for consumer in consumers]
        return sum(counts) == PARTITIONS and all(counts)

    return has_all


def until(predicate: Callable[[], object]) -> None:
    wait_until(predicate, bool, "the condition of the test")


def test_1_processing_takes_longer_than_the_poll_interval(coordinator: ThreadCoordinator, start: START) -> None:
    slow = start("billing-1", session_timeout_ms=1000, max_poll_interval_ms=1000)
    until(assigned(slow))
    until(lambda: not coordinator.describe("orders").members)  # it does not poll, so librdkafka leaves the group
    check(1, coordinator, lambda: poll(slow))


def test_2_process_is_frozen(coordinator: ThreadCoordinator, clock: BlockingTime, start: START) -> None:
    frozen, other = start("billing-1"), start("billing-2")
    until(assigned(frozen, other))
    coordinator.faults.disconnect("*", client_id="billing-1", times=math.inf)
    clock.advance(45, silent=["billing-1"])
    check(2, coordinator, lambda: poll(other))
    coordinator.faults.clear()


def test_3_rolling_deployment(coordinator: ThreadCoordinator, start: START) -> None:
    for number in range(4):
        consumer = start(f"billing-{number}")
        until(assigned(consumer))
        consumer.close()
    check(3, coordinator)


def test_4_one_member_is_slow(coordinator: ThreadCoordinator, start: START) -> None:
    slow = start("billing-1")
    until(assigned(slow))
    other = start("billing-2")
    check(4, coordinator, lambda: poll(other))
    until(assigned(slow, other))


def test_5_instance_id_is_used_twice(coordinator: ThreadCoordinator, start: START) -> None:
    for number in range(3):
        consumer = start(f"host-{number}", group_instance_id="billing-1")
        until(assigned(consumer))
    check(5, coordinator)


def test_6_more_members_than_partitions(coordinator: ThreadCoordinator, start: START) -> None:
    consumers = [start(f"billing-{number}") for number in range(PARTITIONS + 1)]
    check(6, coordinator, lambda: poll(*consumers))


def test_7_no_common_assignor(coordinator: ThreadCoordinator, start: START) -> None:
    first = start("billing-1", partition_assignment_strategy="range,roundrobin")
    until(assigned(first))
    other = start("billing-2", partition_assignment_strategy="cooperative-sticky")
    check(7, coordinator, lambda: poll(first, other))


def test_8_commit_of_a_removed_member(coordinator: ThreadCoordinator, clock: BlockingTime, start: START) -> None:
    consumer = start("billing-1", heartbeat_interval_ms=40_000)
    until(assigned(consumer))
    clock.advance(46, silent=["billing-1"])
    with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
        consumer.commit(offsets=[Place("orders", 0, 7)], asynchronous=False)
    check(8, coordinator)


def test_9_lag_without_members(coordinator: ThreadCoordinator, clock: BlockingTime, start: START) -> None:
    consumer = start("billing-1")
    until(assigned(consumer))
    for number in range(3):
        coordinator.produce("orders", str(number))
    consumer.commit(offsets=[Place("orders", 0, 0)], asynchronous=False)
    consumer.close()
    clock.advance(6 * DAY_S)
    check(9, coordinator)


def test_10_topic_does_not_exist(coordinator: ThreadCoordinator, kafka_bootstrap: str) -> None:
    """librdkafka sends the name of a missing topic with the consumer protocol only."""
    names = {"bootstrap.servers": kafka_bootstrap, "group.id": "orders", "client.id": "billing-1"}
    consumer = Consumer({**names, "group.protocol": "consumer"})
    consumer.subscribe(["ordres"])
    try:
        check(10, coordinator, lambda: poll(consumer))
    finally:
        consumer.close()


def test_each_problem_of_the_page_has_a_test() -> None:
    headings = re.findall(r"^### (\d+)\. ", PAGE.read_text(), re.MULTILINE)
    tests = re.findall(r"^def test_(\d+)_", Path(__file__).read_text(), re.MULTILINE)
    assert headings == tests == [str(number) for number in range(1, 11)]
