"""OffsetWriterActor: collects entries while a round is in flight, keeps their order, and notifies their owners."""

from __future__ import annotations

from typing import Any

import pytest
from actor_system.instances import instance
from actor_system.ports import ManualLog, RecordedReply, TestClock

from callboard.actors.base import Actor, ActorRef
from callboard.actors.errors import ErrorCode
from callboard.actors.messages import Append, Drain, RoundDone, Written
from callboard.actors.ports import Appended, Entry
from callboard.actors.records import (
    GroupRecord,
    GroupValue,
    MemberValue,
    OffsetRecord,
    OffsetValue,
    TransactionRecord,
    TransactionValue,
)
from callboard.actors.steps import SHORT_WORK_ITEMS
from callboard.actors.writer import MAX_TURNS, OffsetWriterActor
from callboard.runtime.engine.simulation import Simulation
from callboard.runtime.engine.system import System


class Owner(Actor):
    """Records the messages that it gets."""

    handlers = {Written: "written"}

    def __init__(self, heard: list[Written]) -> None:
        super().__init__()
        self._heard = heard

    def written(self, message: Written) -> None:
        self._heard.append(message)


class WriterHarness:
    """A writer, its log and its owners."""

    def __init__(self) -> None:
        self.log = ManualLog()
        self.clock = TestClock()
        self.dispatcher = Simulation()
        self.system = System(self.dispatcher)
        self.writer = self.system.spawn(OffsetWriterActor, self.log, self.clock)
        self.heard: list[Written] = []
        self.owner = self.system.spawn(Owner, self.heard)
        self.run()

    def run(self) -> None:
        self.dispatcher.run()

    def append(self, *numbers: int, partition: int = 0, owner: ActorRef | None = None) -> None:
        for number in numbers:
            self.writer.tell(Append(owner or self.owner, entry(number, partition), number))

    def drain(self) -> RecordedReply:
        reply = RecordedReply()
        self.writer.post(Drain(), reply)
        self.run()
        return reply

    @property
    def contexts(self) -> list[Any]:
        return [message.context for message in self.heard]


def entry(number: int, partition: int = 0) -> Entry:
    return Entry(partition, (OffsetRecord("g", "t", 0, OffsetValue(number)),))


@pytest.fixture
def harness() -> WriterHarness:
    return WriterHarness()


def test_bytes_of_waiting_entries_and_of_the_round_in_flight(harness: WriterHarness) -> None:
    writer = instance(harness.writer)
    assert writer.measure_bytes() == 0
    harness.append(1, 2)
    harness.run()
    in_flight_bytes = writer.measure_bytes()
    harness.append(3, 4, 5)
    harness.run()
    assert 0 < in_flight_bytes * 5 == writer.measure_bytes() * 2
    harness.log.complete_append()
    harness.run()
    assert writer.measure_bytes() * 2 == in_flight_bytes * 3, "the second round is in flight"
    harness.log.complete_append()
    harness.run()
    assert writer.measure_bytes() == 0


def test_round_may_complete_after_writer_stopped(harness: WriterHarness) -> None:
    """A session that expires just before a stop is still written; no request waits for it."""
    harness.append(1)
    harness.run()
    stop_future = harness.writer.stop(block=False)
    harness.run()
    assert stop_future.get() is True
    harness.log.complete_append()
    harness.run()
    assert (len(harness.log.durable), harness.contexts) == (1, [])


def test_entries_of_one_turn_share_a_round(harness: WriterHarness) -> None:
    harness.append(1, 2)
    harness.append(3, partition=7)
    assert harness.log.rounds == []
    harness.run()
    assert harness.log.rounds == [[entry(1), entry(2), entry(3, 7)]]


def test_large_round_is_encoded_in_steps_and_later_entries_wait(harness: WriterHarness) -> None:
    harness.log.steps = 50
    records = tuple(OffsetRecord("g", "t", partition, OffsetValue(1)) for partition in range(SHORT_WORK_ITEMS + 1))
    harness.writer.tell(Append(harness.owner, Entry(0, records), "large"))
    turns = 0
    while harness.dispatcher.step():
        turns += 1
        if turns == 10:
            harness.append(1)
    assert turns > 50 / 2
    assert harness.log.rounds == [[Entry(0, records)]]
    harness.log.complete_append()
    harness.run()
    assert harness.log.rounds[1:] == [[entry(1)]]
    assert harness.contexts == ["large"]


MEMBER = MemberValue("m", None, "c", "/h", 1, 1, b"", b"")
LONG_RECORDS = {
    "group": GroupRecord("g", GroupValue("consumer", 1, "range", "m", 1, (MEMBER,) * (SHORT_WORK_ITEMS + 1))),
    "transaction": TransactionRecord(
        "x", TransactionValue(1, 1, 1, 1, frozenset(("t", number) for number in range(SHORT_WORK_ITEMS + 1)))
    ),
}


@pytest.mark.parametrize("record", LONG_RECORDS.values(), ids=LONG_RECORDS)
def test_round_with_one_long_record_is_encoded_in_steps(
    harness: WriterHarness, record: GroupRecord | TransactionRecord
) -> None:
    harness.log.steps = 50
    harness.writer.tell(Append(harness.owner, Entry(0, (record,)), "long"))
    turns = 0
    while harness.dispatcher.step():
        turns += 1
    assert turns > 50 / 2
    assert harness.log.rounds == [[Entry(0, (record,))]]


def test_failure_of_a_large_round_is_reported(harness: WriterHarness) -> None:
    class BrokenLog(ManualLog):
        def append(self, *_args: Any, **_options: Any) -> None:
            raise RuntimeError("a bug in the log")

    instance(harness.writer)._log = BrokenLog()
    records = tuple(OffsetRecord("g", "t", partition, OffsetValue(1)) for partition in range(SHORT_WORK_ITEMS + 1))
    harness.writer.tell(Append(harness.owner, Entry(0, records), "large"))
    harness.run()
    [written] = harness.heard
    assert written.outcome.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.drain().value is None


def test_entries_wait_while_round_is_in_flight(harness: WriterHarness) -> None:
    """One round at a time (the log asserts it). The next round contains all entries that waited."""
    harness.append(1)
    harness.run()
    for number in (2, 3, 4):
        harness.append(number)
        harness.run()
    assert len(harness.log.rounds) == 1
    harness.log.complete_append()
    harness.run()
    assert harness.log.rounds[1:] == [[entry(2), entry(3), entry(4)]]
    assert harness.contexts == [1]
    harness.log.complete_append()
    harness.run()
    assert harness.contexts == [1, 2, 3, 4]
    assert harness.log.in_flight == []


def test_round_is_delayed_while_turns_bring_entries(harness: WriterHarness) -> None:
    """The cost of a round does not depend on its size, so consecutive commits of clients share a round."""
    harness.append(1)
    harness.dispatcher.step()
    harness.append(2)
    harness.run()
    assert harness.log.in_flight == [entry(1), entry(2)]


def test_round_begins_after_max_turns(harness: WriterHarness) -> None:
    """Under steady load every turn brings entries, and requests must still be answered."""
    harness.append(0)
    harness.dispatcher.step()
    for number in range(1, 100):
        harness.append(number)
        harness.dispatcher.step()  # the writer collects the entry
        harness.dispatcher.step()  # the turn ends
        if harness.log.in_flight:
            break
    assert 1 < len(harness.log.in_flight) <= MAX_TURNS + 1


def test_waiting_entries_form_next_round(harness: WriterHarness) -> None:
    harness.append(1)
    harness.run()
    harness.append(2)
    harness.run()
    assert harness.log.in_flight == [entry(1)]
    harness.log.complete_append()
    harness.run()
    assert harness.log.in_flight == [entry(2)]


def test_each_owner_gets_its_outcome(harness: WriterHarness) -> None:
    other_heard: list[Written] = []
    other_owner = harness.system.spawn(Owner, other_heard)
    harness.append(1)
    harness.append(2, owner=other_owner)
    harness.append(3)
    harness.run()
    harness.log.settle([ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE])
    harness.run()
    no_error, too_large = ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE
    assert harness.heard == [
        Written(Appended(no_error, 0), entry(1).records, 1),
        Written(Appended(no_error, 1), entry(3).records, 3),
    ]
    assert other_heard == [Written(Appended(too_large, -1), entry(2).records, 2)]


def test_next_round_follows_failed_round(harness: WriterHarness) -> None:
    harness.append(1)
    harness.run()
    harness.log.fail()
    harness.run()
    harness.append(2)
    harness.run()
    harness.log.complete_append()
    harness.run()
    assert [message.outcome.error for message in harness.heard] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]


def test_records_get_wall_clock_of_round(harness: WriterHarness) -> None:
    harness.append(1)
    harness.run()
    harness.clock.now_ms += 5
    harness.append(2)
    harness.run()
    harness.clock.now_ms += 5
    harness.log.complete_append()
    harness.run()
    first_ms, second_ms = harness.log.timestamps_ms
    assert second_ms - first_ms == 10


def test_outcome_for_stopped_owner_is_dropped(harness: WriterHarness) -> None:
    stopped_owner = harness.system.spawn(Owner, [])
    harness.append(1, owner=stopped_owner)
    harness.append(2)
    harness.run()
    stopped_owner.stop(block=False)
    harness.run()
    harness.log.complete_append()
    harness.run()
    assert harness.contexts == [2]
    assert harness.drain().value is None


def test_drain_is_answered_when_nothing_is_in_flight(harness: WriterHarness) -> None:
    assert harness.drain().value is None
    harness.append(1)
    harness.run()
    harness.append(2)
    first_drain = harness.drain()
    harness.log.complete_append()
    harness.run()
    assert first_drain.is_waiting, "the second entry is in flight"
    second_drain = harness.drain()
    harness.log.complete_append()
    harness.run()
    assert first_drain.value is second_drain.value is None
    assert harness.contexts == [1, 2], "the owners got their outcomes"


def test_drain_after_append_in_same_turn_waits_for_it(harness: WriterHarness) -> None:
    harness.append(1)
    reply = harness.drain()
    assert reply.is_waiting
    harness.log.complete_append()
    harness.run()
    assert reply.value is None


class ImmediateLog(ManualLog):
    """A log that calls ``done`` before ``append`` returns."""

    def append(self, *args: Any) -> None:
        super().append(*args)
        self.complete_append()


def test_log_may_call_done_before_append_returns(harness: WriterHarness) -> None:
    instance(harness.writer)._log = ImmediateLog()
    for number in range(5):
        harness.append(number)
        harness.run()
    assert harness.contexts == list(range(5))
    assert harness.drain().value is None


def test_log_that_raises_fails_only_its_round(harness: WriterHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a bug in the log, later commits must still get replies."""

    def raise_error(*_args: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(harness.log, "append", raise_error)
        harness.append(1)
        harness.run()
    assert [message.outcome.error for message in harness.heard] == [ErrorCode.KAFKA_STORAGE_ERROR]
    harness.append(2)
    harness.run()
    harness.log.complete_append()
    harness.run()
    assert harness.heard[1].outcome.error is ErrorCode.NONE


def test_writer_continues_after_bug_in_handler(harness: WriterHarness) -> None:
    harness.writer.tell(RoundDone([Appended(ErrorCode.NONE, 0)]))  # there is no such round
    harness.append(1)
    harness.run()
    assert harness.log.in_flight == [entry(1)]
