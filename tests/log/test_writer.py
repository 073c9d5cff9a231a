"""OffsetWriterActor: collects entries while a round is in flight, keeps their order, and notifies their owners."""

from __future__ import annotations

from typing import Any

import pytest
from actor_system.ports import ManualLog, RecordedReply, TestClock

from callboard.actors.base import Actor, ActorRef
from callboard.actors.errors import ErrorCode
from callboard.actors.messages import Append, Drain, RoundDone, Written
from callboard.actors.ports import Appended, Entry
from callboard.actors.records import OffsetRecord, OffsetValue
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


class Desk:
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
def desk() -> Desk:
    return Desk()


def test_round_may_complete_after_writer_stopped(desk: Desk) -> None:
    """A session that expires just before a stop is still written; no request waits for it."""
    desk.append(1)
    desk.run()
    stopped = desk.writer.stop(block=False)
    desk.run()
    assert stopped.get() is True
    desk.log.complete_append()
    desk.run()
    assert (len(desk.log.durable), desk.contexts) == (1, [])


def test_entries_of_one_turn_share_a_round(desk: Desk) -> None:
    desk.append(1, 2)
    desk.append(3, partition=7)
    assert desk.log.rounds == []
    desk.run()
    assert desk.log.rounds == [[entry(1), entry(2), entry(3, 7)]]


def test_entries_wait_while_round_is_in_flight(desk: Desk) -> None:
    """One round at a time (the log asserts it). The next round contains all entries that waited."""
    desk.append(1)
    desk.run()
    for number in (2, 3, 4):
        desk.append(number)
        desk.run()
    assert len(desk.log.rounds) == 1
    desk.log.complete_append()
    desk.run()
    assert desk.log.rounds[1:] == [[entry(2), entry(3), entry(4)]]
    assert desk.contexts == [1]
    desk.log.complete_append()
    desk.run()
    assert desk.contexts == [1, 2, 3, 4]
    assert desk.log.in_flight == []


def test_round_is_delayed_while_turns_bring_entries(desk: Desk) -> None:
    """A round costs the same whatever its size, so clients with consecutive commits share one."""
    desk.append(1)
    desk.dispatcher.step()
    desk.append(2)
    desk.run()
    assert desk.log.in_flight == [entry(1), entry(2)]


def test_round_begins_after_max_turns(desk: Desk) -> None:
    """Under steady load every turn brings entries, and requests must still be answered."""
    desk.append(0)
    desk.dispatcher.step()
    for number in range(1, 100):
        desk.append(number)
        desk.dispatcher.step()  # it gathers
        desk.dispatcher.step()  # a turn is over
        if desk.log.in_flight:
            break
    assert 1 < len(desk.log.in_flight) <= MAX_TURNS + 1


def test_waiting_entries_form_next_round(desk: Desk) -> None:
    desk.append(1)
    desk.run()
    desk.append(2)
    desk.run()
    assert desk.log.in_flight == [entry(1)]
    desk.log.complete_append()
    desk.run()
    assert desk.log.in_flight == [entry(2)]


def test_each_owner_gets_its_outcome(desk: Desk) -> None:
    other_heard: list[Written] = []
    other = desk.system.spawn(Owner, other_heard)
    desk.append(1)
    desk.append(2, owner=other)
    desk.append(3)
    desk.run()
    desk.log.settle([ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE])
    desk.run()
    none, large = ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE
    assert desk.heard == [
        Written(Appended(none, 0), entry(1).records, 1),
        Written(Appended(none, 1), entry(3).records, 3),
    ]
    assert other_heard == [Written(Appended(large, -1), entry(2).records, 2)]


def test_next_round_follows_failed_round(desk: Desk) -> None:
    desk.append(1)
    desk.run()
    desk.log.fail()
    desk.run()
    desk.append(2)
    desk.run()
    desk.log.complete_append()
    desk.run()
    assert [message.outcome.error for message in desk.heard] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]


def test_records_get_wall_clock_of_round(desk: Desk) -> None:
    desk.append(1)
    desk.run()
    desk.clock.now_ms += 5
    desk.append(2)
    desk.run()
    desk.clock.now_ms += 5
    desk.log.complete_append()
    desk.run()
    first, second = desk.log.timestamps_ms
    assert second - first == 10


def test_outcome_for_stopped_owner_is_dropped(desk: Desk) -> None:
    gone = desk.system.spawn(Owner, [])
    desk.append(1, owner=gone)
    desk.append(2)
    desk.run()
    gone.stop(block=False)
    desk.run()
    desk.log.complete_append()
    desk.run()
    assert desk.contexts == [2]
    assert desk.drain().value is None


def test_drain_is_answered_when_nothing_is_in_flight(desk: Desk) -> None:
    assert desk.drain().value is None
    desk.append(1)
    desk.run()
    desk.append(2)
    first = desk.drain()
    desk.log.complete_append()
    desk.run()
    assert first.is_waiting, "the second is on its way"
    second = desk.drain()
    desk.log.complete_append()
    desk.run()
    assert first.value is second.value is None
    assert desk.contexts == [1, 2], "the owners got their outcomes"


def test_drain_after_append_in_same_turn_waits_for_it(desk: Desk) -> None:
    desk.append(1)
    reply = desk.drain()
    assert reply.is_waiting
    desk.log.complete_append()
    desk.run()
    assert reply.value is None


class AtOnce(ManualLog):
    """A log that calls ``done`` before ``append`` returns."""

    def append(self, *args: Any) -> None:
        super().append(*args)
        self.complete_append()


def test_log_may_call_done_before_append_returns(desk: Desk) -> None:
    desk.writer.actor_inbox.actor._log = AtOnce()
    for number in range(5):
        desk.append(number)
        desk.run()
    assert desk.contexts == list(range(5))
    assert desk.drain().value is None


def test_log_that_raises_fails_only_its_round(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a bug of the log commits must still get a reply."""

    def broken(*_args: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(desk.log, "append", broken)
        desk.append(1)
        desk.run()
    assert [written.outcome.error for written in desk.heard] == [ErrorCode.KAFKA_STORAGE_ERROR]
    desk.append(2)
    desk.run()
    desk.log.complete_append()
    desk.run()
    assert desk.heard[1].outcome.error is ErrorCode.NONE


def test_writer_continues_after_bug_in_handler(desk: Desk) -> None:
    desk.writer.tell(RoundDone([Appended(ErrorCode.NONE, 0)]))  # of a round that does not exist
    desk.append(1)
    desk.run()
    assert desk.log.in_flight == [entry(1)]
