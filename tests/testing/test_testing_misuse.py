"""Tests of invalid uses of ``callboard.testing``, and of its less obvious behaviour."""

from __future__ import annotations

import asyncio
import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from coordinator_helpers import SESSION_S, connect, heartbeat, moments, running
from harness import async_test, commit_values, join_and_sync
from peers.waiting import wait_until
from peers.wire import Hangup
from pytest_helpers import dedented, run

from callboard.runtime.testing.plugin.facts import RequestFacts
from callboard.runtime.testing.plugin.presence import Presence
from callboard.runtime.testing.plugin.timeline import Timeline
from callboard.runtime.testing.plugin.virtual_time import ADVANCE_MAX_S
from callboard.testing import Coordinator

DAY_S = 24 * 3600.0


class Wire:
    is_open = True
    client_id = "ann"


# Invalid moves -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1, ADVANCE_MAX_S + 1])
@async_test
async def test_advance_by_invalid_time_is_refused(seconds: float) -> None:
    async with running() as (coordinator, _client):
        with pytest.raises(ValueError, match="expected 0 to 3153600000, which is 100 years; time cannot go back"):
            await coordinator.clock.advance(seconds)
        with pytest.raises(ValueError, match="expected 0 to"):
            await coordinator.clock.advance_until(lambda: True, within=seconds)


@async_test
async def test_advance_with_invalid_types_is_refused() -> None:
    wrong: Any
    async with running() as (coordinator, _client):
        for wrong in ("45", None):
            with pytest.raises(TypeError, match="expected a number of seconds"):
                await coordinator.clock.advance(wrong)
        wrong = [7]
        with pytest.raises(TypeError, match="silent names 7: expected member, instance or client ids"):
            await coordinator.clock.advance(1, silent=wrong)


@async_test
async def test_advance_with_unknown_silent_name_is_refused() -> None:
    async with running() as (coordinator, client):
        member = await join_and_sync(client, "g")
        with pytest.raises(
            ValueError,
            match=r"silent=\['ware'\]: no member or client of that name .*; did you mean 'wire'\? known names are wire",
        ):
            await coordinator.clock.advance(1, silent=["ware"])
        await coordinator.clock.advance(1, silent=["wire", member.member_id])
        await coordinator.faults.restart(crash=True)
        await coordinator.clock.advance(1, silent=["wire"])


@async_test
async def test_clock_on_another_loop_is_refused() -> None:
    """As with a fixture of a module and a test on a loop of its own: it returned before a session ended."""
    async with Coordinator() as coordinator:
        clock = coordinator.clock
        for move in (partial(clock.advance, 45), partial(clock.advance_until, lambda: True)):
            with pytest.raises(RuntimeError, match="runs on another event loop: call it there"):
                await asyncio.to_thread(lambda move: asyncio.run(move()), move)
        assert clock.now() < 45


def test_predicate_that_moves_clock_is_refused() -> None:
    with Coordinator.in_thread(listen=None) as coordinator:
        with pytest.raises(RuntimeError, match="the predicate of advance_until must not move"):
            coordinator.clock.advance_until(lambda: coordinator.clock.advance(1), within=5)
        coordinator.clock.advance(1)


@contextmanager
def default_interrupts() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also if the tests run as a background job, which ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_interrupted_advance_releases_clock() -> None:
    """For example by Ctrl-C or a test's time limit, which raise only in the test's thread."""
    with default_interrupts(), Coordinator.in_thread(listen=None) as coordinator:

        def interrupt() -> None:
            wait_until(coordinator.clock.now, lambda now: now > DAY_S, "a move that has begun")
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            coordinator.clock.advance(ADVANCE_MAX_S)
        thread.join()
        coordinator.clock.advance(1)
        assert coordinator.clock.now() < ADVANCE_MAX_S


@pytest.mark.parametrize(
    ("ask", "error_text"),
    [
        (lambda faults: faults.drop("Heartbeat", nth=1.5), "nth=1.5"),
        (lambda faults: faults.drop("Heartbeat", times=math.nan), "times=nan"),
        (lambda faults: faults.delay("Heartbeat", seconds=math.inf), "seconds=inf: expected 0 or more; use `drop`"),
        (lambda faults: faults.delay("Heartbeat", seconds="3"), "seconds='3': expected 0 or more"),
        (lambda faults: faults.delay("Heartbeat", seconds=10**400), "seconds=1000000"),
        (lambda faults: faults.drop("Heartbeat", group=3), "group=3: expected text, or None for any"),
        (lambda faults: faults.drop("Heartbeat", client_id=b"ann"), "client_id=b'ann': expected text"),
        (lambda faults: faults.fail("Heartbeat", error=16), "Kafka has no error 16"),
        (lambda faults: faults.fail("*", error="NOT_COORDINATOR"), "expected one API"),
        (lambda faults: faults.drop(12), "there is no API 12"),
        (lambda faults: faults.lose_disk_after(-1), "writes=-1: expected a whole number"),
    ],
)
def test_invalid_faults_are_refused(ask: Callable[[Any], object], error_text: str) -> None:
    coordinator = Coordinator()
    with pytest.raises(ValueError, match=error_text.replace("*", r"\*")):
        ask(coordinator.faults)


def test_timeline_text_with_lines_limit() -> None:
    timeline = Timeline(lambda: 0)
    for number in range(5):
        timeline.note("node", f"event {number}")
    assert timeline.text(lines=2).splitlines()[0] == "(the first 3 lines are left out)"
    assert len(timeline.text(lines=2).splitlines()) == 1 + 1 + 2
    with pytest.raises(ValueError, match="lines=0: expected 1 or more"):
        timeline.text(lines=0)


# Presence ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api", "is_there"),
    [("Heartbeat", True), ("OffsetCommit", True), ("TxnOffsetCommit", False), ("LeaveGroup", False)],
)
def test_requests_of_others_do_not_keep_member_alive(api: str, is_there: bool) -> None:
    """A producer commits a consumer's offsets, an admin removes members. Neither keeps the consumer alive."""
    presence = Presence()
    presence.note_request(RequestFacts(api, 4, "ann", ("g",), ("m",)), Wire())
    assert (presence.client_of("g", "m") is not None) is is_there


@async_test
async def test_disconnected_client_is_removed_after_session() -> None:
    async with running() as (coordinator, client):
        member = await join_and_sync(client, "g")
        cut = coordinator.faults.disconnect("*", client_id="wire", times=math.inf)
        with pytest.raises(Hangup):
            await heartbeat(client, "g", member)
        again = await connect(coordinator)
        with pytest.raises(Hangup):
            await heartbeat(again, "g", member)
        assert cut.hits == 2
        await coordinator.clock.advance(SESSION_S + 1)
        assert (await coordinator.describe("g")).state == "Empty"
        coordinator.faults.clear()
        healed = await connect(coordinator)
        assert await heartbeat(healed, "g", member) == "UNKNOWN_MEMBER_ID"
        await again.close()
        await healed.close()


@async_test
async def test_member_stays_while_disk_fails() -> None:
    async with running() as (coordinator, client):
        member = await join_and_sync(client, "g")
        coordinator.faults.lose_disk_after(0)
        await client.ask("offset_commit", 9, **commit_values("g", member))
        await coordinator.clock.advance(DAY_S)
        assert await heartbeat(client, "g", member) == "NONE"


# Timeline ------------------------------------------------------------------------------------------------------------


@async_test
async def test_timeline_omits_reads_of_test_and_formats_long_moves() -> None:
    async with running() as (coordinator, client):
        await join_and_sync(client, "g")
        await coordinator.clock.advance(400 * DAY_S / 100)
        await coordinator.describe("g")
        await coordinator.offsets("g")
        assert [text for _, text in moments(coordinator, "clock")] == ["moved by 345600 s"]
        text = coordinator.timeline.text()
        assert "DescribeGroups" not in text
        assert "OffsetFetch" not in text
        assert "DescribeGroups" in coordinator.timeline.text(everything=True)


def test_crash_leaves_open_requests_unanswered(caplog: pytest.LogCaptureFixture) -> None:
    """Its groups end with the process, without an event in the timeline."""
    with Coordinator.in_thread(topics={"jobs": 1}) as coordinator:
        consumer = Consumer({"bootstrap.servers": coordinator.bootstrap, "group.id": "g", "reconnect.backoff.ms": 10})
        consumer.subscribe(["jobs"])
        wait_until(lambda: consumer.poll(0.02) or consumer.assignment(), bool, "an assignment")
        for _ in range(5):
            for offset in range(300):
                consumer.commit(offsets=[TopicPartition("jobs", 0, offset)], asynchronous=True)
            coordinator.faults.restart(crash=True)
            wait_until(lambda: _commits(consumer), bool, "a commit after the crash")
        consumer.close()
        answers = [event.what for event in coordinator.timeline.events if event.kind == "answer"]
    assert not [answer for answer in answers if "UNKNOWN_SERVER_ERROR" in answer]
    assert not [record for record in caplog.records if "is answered" in record.message]


def _commits(consumer: Consumer) -> bool:
    try:
        consumer.commit(offsets=[TopicPartition("jobs", 0, 999)], asynchronous=False)
    except KafkaException:
        return False
    return True


def test_timeline_has_transaction_timeout() -> None:
    with Coordinator.in_thread(topics={"jobs": 1}) as coordinator:
        producer = Producer(
            {
                "bootstrap.servers": coordinator.bootstrap,
                "transactional.id": "sums",
                "transaction.timeout.ms": 10_000,
            }
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        began_s = coordinator.clock.now()
        producer.produce("jobs", b"x")
        producer.flush(30)
        flushed_s = coordinator.clock.now()
        coordinator.clock.advance(11)
        transaction_events = [
            event for event in coordinator.timeline.events if event.what.startswith("transaction sums")
        ]
        assert [event.what.rpartition(" ")[2] for event in transaction_events][-3:] == [
            "Ongoing",
            "PrepareAbort",
            "CompleteAbort",
        ]
        # The transaction starts between the two times. Its event may be noted later than that, on a busy machine.
        assert began_s + 10 <= transaction_events[-2].at_ms / 1000 <= flushed_s + 10.1
        with pytest.raises(KafkaException):
            producer.commit_transaction(30)


# Custom fixtures -----------------------------------------------------------------------------------------------------

SHARED = """
    import pytest
    from callboard.testing import Coordinator

    @pytest.fixture(scope="module")
    def coordinator():
        with Coordinator.in_thread(topics={"jobs": 4}) as coordinator:
            yield coordinator

    def test_one(coordinator, clock, kafka_bootstrap):
        clock.advance(45)
        assert kafka_bootstrap == coordinator.bootstrap

    def test_two(coordinator):
        coordinator.faults.drop("Heartbeat", group="wrokers")
        assert 45 <= coordinator.clock.now() < 100
        assert False
    """


def test_failed_test_shows_timeline_of_shared_coordinator(tmp_path: Path) -> None:
    printed = run(tmp_path, dedented(SHARED), "--callboard-timeline=found")
    assert "1 failed, 1 passed" in printed
    order = ["Callboard timeline", "test: test_one begins", "clock: moved by 45 s", "test: test_two begins"]
    positions = [printed.index(line) for line in order]
    assert positions == sorted(positions)
    assert "<drop Heartbeat, group='wrokers', 0 hits>" in printed
    assert len(list((tmp_path / "found").iterdir())) == 1


def test_mark_with_invalid_topics_or_false_data(tmp_path: Path) -> None:
    source = """
        import pytest

        @pytest.mark.callboard(topics=["jobs"])
        def test_topics(coordinator): ...

        @pytest.mark.callboard(data=False)
        def test_data(coordinator): ...
        """
    printed = run(tmp_path, dedented(source))
    assert "bad topics ['jobs']: expected partition counts by name, as in {'jobs': 3}" in printed
    assert "1 passed, 1 error" in printed


LEAK = """
    import gc, weakref
    import pytest

    seen = []

    @pytest.mark.parametrize("turn", range(5))
    def test_it(coordinator, turn):
        seen.append(weakref.ref(coordinator))

    def test_none_is_left():
        gc.collect()
        assert [found() for found in seen] == [None] * 5
    """


def test_coordinator_of_test_leaves_nothing(tmp_path: Path) -> None:
    assert "6 passed" in run(tmp_path, dedented(LEAK))
