"""The records of all groups are bounded, and assignments are compared where the environment says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actor_system.requests import GROUP, heartbeat, join, sync
from actor_system.simulation import CoordinatorSimulation
from recorder.recorded_group import RecordedGroup, assignment

from callboard.actors.recorder.flight_recorder import RECORDS_KEPT, FlightRecorder
from callboard.actors.recorder.record import RebalanceRecord, size_of


def some_record() -> RebalanceRecord:
    group = RecordedGroup()
    group.sync_all(group.join_all({}, {}), {"m0": assignment(orders=[0]), "m1": assignment(orders=[1])})
    return group.last


def test_group_keeps_its_last_records() -> None:
    recorder, record = FlightRecorder(), some_record()
    for number in range(RECORDS_KEPT + 5):
        recorder.keep(record._replace(generation=number))
    kept = recorder.records("company")
    assert [record.generation for record in kept] == list(range(RECORDS_KEPT + 4, 4, -1))
    assert recorder.bytes_used == sum(map(size_of, kept))
    assert recorder.records("company", 2) == kept[:2]
    assert recorder.records("other") == ()


def test_oldest_records_of_all_groups_are_dropped_first() -> None:
    record = some_record()
    recorder = FlightRecorder(bytes_max=3 * size_of(record))
    for number, group_id in enumerate(("a", "b", "a", "c", "a")):
        recorder.keep(record._replace(group_id=group_id, generation=number))
    assert {name: [kept.generation for kept in recorder.records(name)] for name in "abc"} == {
        "a": [4, 2],
        "b": [],
        "c": [3],
    }
    assert recorder.bytes_used <= 3 * size_of(record)


def test_record_larger_than_the_limit_is_dropped() -> None:
    recorder = FlightRecorder(bytes_max=1)
    recorder.keep(some_record())
    assert (recorder.records("company"), recorder.bytes_used) == ((), 0)


class LaterWork:
    """Runs work when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.waiting.append((work, done))


def test_assignments_are_compared_in_the_background() -> None:
    simulation, later = CoordinatorSimulation(), LaterWork()
    recorder = simulation.directory.event_log.recorder
    recorder.background = later
    reply = simulation.post(join())
    simulation.advance(3000)
    member_id = reply.value.member_id
    simulation.post(sync(member_id, 1, {member_id: assignment(orders=[0])}))
    assert recorder.records(GROUP) == ()
    [(work, done)] = later.waiting
    done(work())
    [record] = recorder.records(GROUP)
    assert record.moves is not None and record.moves.total == 1
    for _ in range(10):
        simulation.post(heartbeat(member_id, 1))
    assert len(later.waiting) == 1
