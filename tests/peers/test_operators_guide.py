"""docs/operate.md, "Ten things that go wrong": each is caused with a real client, and explained as the page says.

The page's commands are run, too.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Place
from project_paths import ROOT

from callboard import CoordinatorError
from callboard.runtime.cli.main import COMMANDS
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


def blocks(number: int, language: str) -> list[str]:
    """The blocks of the page under the heading of a problem."""
    section = re.split(r"^##+ ", PAGE.read_text(), flags=re.MULTILINE)
    [text] = [part for part in section if part.startswith(f"{number}. ")]
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return found


def documented(number: int) -> list[str]:
    """What the page says about a problem."""
    return [plain(block) for block in blocks(number, "text")]


RUN = Callable[..., None]


@pytest.fixture
def run_command(kafka_bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> RUN:
    """Runs the command of a problem that begins with ``words``. ``names``: what stands for its words in capitals."""
    monkeypatch.setenv("CALLBOARD_BOOTSTRAP_SERVER", kafka_bootstrap)

    def run(number: int, words: str, **names: str) -> None:
        lines = "".join(blocks(number, "sh")).splitlines()
        [line] = [line for line in lines if line.startswith(f"callboard {words}")]
        command, *arguments = (names.get(word, word) for word in shlex.split(line)[1:])
        with pytest.raises(SystemExit) as ended:
            import_module(COMMANDS[command].module).main(arguments)
        assert ended.value.code == 0

    return run


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


def member_of(coordinator: ThreadCoordinator, client_id: str) -> str:
    [member_id] = [each.member_id for each in coordinator.describe("orders").members if each.client_id == client_id]
    return member_id


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


def test_2_frozen_member_is_removed(coordinator: ThreadCoordinator, start: START, run_command: RUN) -> None:
    frozen, other = start("billing-1"), start("billing-2")
    until(assigned(frozen, other))
    run_command(2, "groups evict", MEMBER=member_of(coordinator, "billing-1"))
    until(assigned(other))


def test_4_one_member_is_slow(coordinator: ThreadCoordinator, start: START, run_command: RUN) -> None:
    slow = start("billing-1")
    until(assigned(slow))
    other = start("billing-2")
    check(4, coordinator, lambda: poll(other))
    run_command(4, "groups evict", MEMBER=member_of(coordinator, "billing-1"))
    until(assigned(other))
    until(assigned(slow, other))


def test_5_instance_id_is_used_twice(coordinator: ThreadCoordinator, start: START) -> None:
    for number in range(3):
        consumer = start(f"host-{number}", group_instance_id="billing-1")
        until(assigned(consumer))
    check(5, coordinator)


def test_6_more_members_than_partitions(coordinator: ThreadCoordinator, start: START, run_command: RUN) -> None:
    consumers = [start(f"billing-{number}", topic_metadata_refresh_interval_ms=200) for number in range(PARTITIONS + 1)]
    check(6, coordinator, lambda: poll(*consumers))
    run_command(6, "topics grow")

    def all_have_some() -> bool:
        poll(*consumers)
        return all(consumer.assignment() for consumer in consumers)

    until(all_have_some)


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


def test_9_lag_without_members(
    coordinator: ThreadCoordinator, clock: BlockingTime, start: START, run_command: RUN
) -> None:
    consumer = start("billing-1")
    until(assigned(consumer))
    for number in range(3):
        coordinator.produce("orders", str(number))
    consumer.commit(offsets=[Place("orders", 0, 0)], asynchronous=False)
    consumer.close()
    clock.advance(6 * DAY_S)
    check(9, coordinator)
    clock.advance(2 * DAY_S)
    assert not coordinator.offsets("orders")
    run_command(9, "groups reset")
    assert set(coordinator.offsets("orders")) == {("orders", number) for number in range(PARTITIONS)}
    run_command(9, "settings set")
    clock.advance(20 * DAY_S)
    assert coordinator.offsets("orders")


def test_10_topic_does_not_exist(coordinator: ThreadCoordinator, kafka_bootstrap: str, run_command: RUN) -> None:
    """librdkafka sends the name of a missing topic with the consumer protocol only."""
    names = {"bootstrap.servers": kafka_bootstrap, "group.id": "orders", "client.id": "billing-1"}
    consumer = Consumer({**names, "group.protocol": "consumer"})
    consumer.subscribe(["ordres"])
    try:
        check(10, coordinator, lambda: poll(consumer))
        run_command(10, "topics list")
        run_command(10, "topics create")
        until(assigned(consumer))
    finally:
        consumer.close()


def said_soon(coordinator: ThreadCoordinator, text: str) -> None:
    wait_until(lambda: explained(coordinator), lambda said: text in said, text)


def test_offsets_have_expired(coordinator: ThreadCoordinator, clock: BlockingTime, start: START) -> None:
    consumer = start("billing-1")
    until(assigned(consumer))
    consumer.commit(offsets=[Place("orders", 0, 0)], asynchronous=False)
    consumer.close()
    clock.advance(8 * DAY_S)
    expired = "offsets_expired: 1 offset of orders expired DURATION ago"
    said_soon(coordinator, f"{expired}, and the group with them: consumers that start begin at auto.offset.reset")
    again = start("billing-1")
    until(assigned(again))
    began = "they began at auto.offset.reset, and skipped records or read some again"
    said_soon(coordinator, f"{expired}, before its members came: {began}")


def test_assignor_that_not_all_members_offer(coordinator: ThreadCoordinator, start: START) -> None:
    both = start("billing-1", partition_assignment_strategy="roundrobin,range")
    one = start("billing-2", partition_assignment_strategy="range")
    until(assigned(both, one))
    choice = "assignor_choice: range is in use, though 1 of 2 members prefers roundrobin"
    said_soon(coordinator, f"{choice}: not offered by billing-2 (HOST)")


def test_each_problem_of_the_page_has_a_test() -> None:
    headings = re.findall(r"^### (\d+)\. ", PAGE.read_text(), re.MULTILINE)
    tests = re.findall(r"^def test_(\d+)_", Path(__file__).read_text(), re.MULTILINE)
    assert headings == list(dict.fromkeys(tests)) == [str(number) for number in range(1, 11)]
