"""The last events of each group, their memory, and the log lines."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

import pytest
from actor_system.requests import GROUP, SESSION_MS, commit, heartbeat, join, leave, sync
from actor_system.simulated_group import SimulatedGroup
from actor_system.simulation import CoordinatorSimulation

from callboard.actors.errors import ErrorCode, IllegalTransition
from callboard.actors.group.effects import Effects
from callboard.actors.group.event_log import (
    EVENTS_KEPT,
    MEMBER_LINES_PER_S,
    REBALANCE_LINES_PER_S,
    EventLog,
    GroupHistory,
    LineLimit,
    RebalanceSummary,
    RebalanceTally,
    member_fields,
    rebalance_fields,
    size_of,
)
from callboard.actors.group.events import Cause, GroupEvent, Kind, Reason
from callboard.actors.group.states import Event, State
from callboard.actors.messages import DeleteGroup, DescribedEvents, DescribeEvents, LeavingMember
from callboard.actors.text import LogLine

LOGGER = "callboard.actors"


def added(number: int, client: str = "c") -> GroupEvent:
    return GroupEvent(
        number, number, Kind.MEMBER_ADDED, Reason.MEMBER_JOINED, "Empty", 0, f"m{number}", None, client, "/h"
    )


def changed(state: State, reason: Reason, at_ms: int = 0, generation: int = 1) -> GroupEvent:
    return GroupEvent(at_ms, at_ms, Kind.STATE_CHANGED, reason, state, generation)


# Memory --------------------------------------------------------------------------------------------------------------


def test_group_keeps_its_last_events() -> None:
    history = GroupHistory("g", EventLog())
    for number in range(EVENTS_KEPT + 5):
        history.add([added(number)])
    assert [event.wall_ms for event in history.events] == list(range(5, EVENTS_KEPT + 5))
    history.add([added(number) for number in range(100)])
    assert [event.wall_ms for event in history.events] == list(range(100 - EVENTS_KEPT, 100))


def test_group_with_the_oldest_last_event_loses_its_events_first() -> None:
    event_bytes = size_of(added(0))
    log = EventLog(bytes_max=3 * (480 + event_bytes) + event_bytes)
    first, second, third, fourth = histories = [GroupHistory(name, log) for name in "abcd"]
    for history in (first, second, third, first):
        history.add([added(0)])
    assert [len(history.events) for history in histories] == [2, 1, 1, 0]
    fourth.add([added(0)])
    assert [len(history.events) for history in histories] == [2, 0, 1, 1]
    assert log.bytes_used == 3 * 480 + 4 * event_bytes


def test_single_group_over_the_limit_loses_its_events() -> None:
    log = EventLog(bytes_max=1000)
    history = GroupHistory("g", log)
    history.add([added(number) for number in range(EVENTS_KEPT)])
    assert (history.events, log.bytes_used) == ([], 0)
    history.add([added(0)])
    assert len(history.events) == 1


def test_used_bytes_are_those_of_the_kept_events() -> None:
    log = EventLog()
    histories = [GroupHistory(str(number), log) for number in range(3)]
    for number in range(200):
        histories[number % 3].add([added(number, "ä" * number)])
    kept = [event for history in histories for event in history.events]
    assert log.bytes_used == sum(map(size_of, kept)) + 3 * 480
    for history in histories:
        history.clear()
        history.clear()
    assert log.bytes_used == 0


def test_size_of_an_event_is_not_less_than_that_of_its_objects() -> None:
    event = added(1, "client" * 20)._replace(
        client_reason="x" * 255, wall_ms=2**40, monotonic_ms=2**33, generation=2**30
    )
    objects = (event.wall_ms, event.monotonic_ms, event.generation, *event[6:-1])  # True and False are shared
    assert size_of(event) >= sys.getsizeof(event) + sum(map(sys.getsizeof, objects))
    bare = changed(State.EMPTY, Reason.NO_MEMBERS, 2**40, 2**30)
    assert size_of(bare) >= sys.getsizeof(bare) + 3 * sys.getsizeof(2**40)


# Rebalances ----------------------------------------------------------------------------------------------------------


def summaries(events: Sequence[GroupEvent]) -> list[RebalanceSummary]:
    tally = RebalanceTally()
    return [summary for event in events if (summary := tally.add(event)) is not None]


def test_summary_counts_members_since_the_previous_rebalance() -> None:
    group = SimulatedGroup()
    first, second, third = group.form_group({"session_ms": 10 * SESSION_MS}, {}, {"session_ms": 10 * SESSION_MS})
    group.advance(SESSION_MS)  # the second expires
    group.leave(third.member_id)
    group.join(first.member_id, session_ms=10 * SESSION_MS)
    group.sync(first.member_id, 2, {})
    formed, shrunk = summaries(group.events)
    assert (formed.joined, formed.left, formed.expired, formed.restarts) == (3, 0, 0, 0)
    assert (shrunk.joined, shrunk.left, shrunk.expired, shrunk.restarts) == (0, 1, 1, 0)
    assert (shrunk.cause.reason, shrunk.cause.member_id) == (Reason.SESSION_EXPIRED, second.member_id)
    assert (shrunk.ended.state, shrunk.ended.generation) == ("Stable", 2)


def test_summary_of_a_restarted_rebalance_has_the_first_cause() -> None:
    group = SimulatedGroup()
    [member] = group.join_all({})
    begun_ms = group.events[1].monotonic_ms
    group.join(client="late")
    group.advance(500)
    group.leave(member.member_id, *[m.member_id for m in group.group.members if m.client_id == "late"])
    [summary] = summaries(group.events)
    assert (summary.cause.reason, summary.restarts, summary.ended.state) == (Reason.MEMBER_JOINED, 1, "Empty")
    assert summary.duration_ms == group.clock.monotonic_ms() - begun_ms
    assert (summary.joined, summary.left) == (2, 2)


def test_rebalance_that_the_end_of_the_group_interrupts_has_no_summary() -> None:
    joined = [changed(State.PREPARING_REBALANCE, Reason.MEMBER_JOINED), changed(State.DEAD, Reason.SERVER_STOPS)]
    assert summaries(joined) == []
    assert summaries([*joined, changed(State.STABLE, Reason.ASSIGNMENT_STORED)]) == []


# Log lines -----------------------------------------------------------------------------------------------------------


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[tuple[str, dict[str, object]]]:
    messages = [record.msg for record in caplog.records if record.name == LOGGER and record.levelno == level]
    return [(line.event, dict(line.fields)) for line in messages if isinstance(line, LogLine)]


def form(simulation: CoordinatorSimulation, client: str = "c") -> str:
    """A group with one member. Returns the member's id."""
    reply = simulation.post(join(client=client, host="/10.0.0.7"))
    simulation.advance(3000)
    simulation.post(sync(reply.value.member_id, 1, {}))
    member_id: str = reply.value.member_id
    return member_id


def test_rebalance_is_one_info_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    simulation = CoordinatorSimulation()
    member_id = form(simulation)
    names = {"member_id": member_id, "client_id": "c", "client_host": "/10.0.0.7"}
    counts = {"joined": 1, "left": 0, "expired": 0, "restarts": 0, "duration_ms": 3000}
    assert lines(caplog, logging.INFO) == [
        (
            "group rebalanced",
            {"group": GROUP, "generation": 1, "state": "Stable", "cause": "member joined", **names, **counts},
        )
    ]
    simulation.post(leave(LeavingMember(member_id, None, "closed\n")))
    event, fields = lines(caplog, logging.INFO)[-1]
    assert (event, fields["state"], fields["cause"]) == ("group rebalanced", "Empty", "member left")
    assert (fields["client_reason"], fields["left"], fields["generation"]) == (r"closed\n", 1, 2)


def test_member_that_expires_is_a_debug_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, LOGGER)
    simulation = CoordinatorSimulation()
    member_id = form(simulation)
    simulation.advance(SESSION_MS)
    assert [(event, fields["member_id"], fields["cause"]) for event, fields in lines(caplog, logging.DEBUG)] == [
        ("member added", member_id, "member joined"),
        ("member removed", member_id, "session expired"),
    ]


def test_static_member_that_is_replaced_is_one_info_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    simulation = CoordinatorSimulation()
    reply = simulation.post(join(instance="seat"))
    simulation.advance(3000)
    simulation.post(sync(reply.value.member_id, 1, {}))
    caplog.clear()
    replaced = simulation.post(join(instance="seat"))
    [(event, fields)] = lines(caplog, logging.INFO)
    assert (event, fields["instance_id"], fields["state"]) == ("static member taken over", "seat", "Stable")
    assert fields["member_id"] == replaced.value.member_id != reply.value.member_id


def test_lines_of_refused_records_are_one_a_second(caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog()
    for at_ms in (0, 1, 999, 1000):
        log.log_refused_record("group", "g", ErrorCode.KAFKA_STORAGE_ERROR, at_ms)
    first = {"group": "g", "error": "KAFKA_STORAGE_ERROR"}
    refused = "a record could not be written"
    assert lines(caplog, logging.WARNING) == [(refused, first), (refused, {**first, "omitted": 2})]


def test_level_above_info_makes_no_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    simulation = CoordinatorSimulation()
    form(simulation)
    assert caplog.records == []


def test_lines_of_a_second_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, LOGGER)
    log = EventLog()
    groups = [GroupHistory(f"g{number}", log) for number in range(10_000)]
    for at_ms in (0, 1000):
        for history in groups:
            begun, ended = State.PREPARING_REBALANCE, State.STABLE
            history.add([added(at_ms), changed(begun, Reason.MEMBER_JOINED, at_ms)])
            history.add([changed(ended, Reason.ASSIGNMENT_STORED, at_ms)])
    rebalanced = lines(caplog, logging.INFO)
    assert len(rebalanced) == 2 * REBALANCE_LINES_PER_S
    omitted = [fields["omitted"] for _, fields in rebalanced if "omitted" in fields]
    assert omitted == [10_000 - REBALANCE_LINES_PER_S]
    assert len(lines(caplog, logging.DEBUG)) == 2 * MEMBER_LINES_PER_S
    notes = [record.getMessage() for record in caplog.records if not isinstance(record.msg, LogLine)]
    assert notes == [f"more than {REBALANCE_LINES_PER_S} rebalances in a second: the next lines are omitted"] * 2


def test_limit_admits_again_after_a_second() -> None:
    limit = LineLimit(2)
    assert [limit.admits(at_ms) for at_ms in (500, 900, 1499, 1500, 1501, 1502)] == [
        True,
        True,
        False,
        True,
        True,
        False,
    ]
    assert limit.take_omitted() == 2
    assert limit.take_omitted() == 0


def test_names_in_lines_are_cut() -> None:
    event = added(1, "c" * 30_000)._replace(member_id="m" * 30_000, group_instance_id="i" * 30_000)
    fields = member_fields("g" * 30_000, event, 0)
    assert {len(str(fields[name])) for name in ("group", "member_id", "instance_id", "client_id")} == {255}
    summary = RebalanceSummary(event, changed(State.STABLE, Reason.ASSIGNMENT_STORED), 1, 0, 0, 0)
    assert len(str(LogLine("group rebalanced", rebalance_fields("g" * 30_000, summary, 7)))) < 2000


# The actor -----------------------------------------------------------------------------------------------------------


class RecordingObserver:
    def __init__(self) -> None:
        self.events: list[tuple[str, GroupEvent]] = []

    def observe(self, group_id: str, events: Sequence[GroupEvent]) -> None:
        self.events += [(group_id, event) for event in events]


def observed(simulation: CoordinatorSimulation) -> RecordingObserver:
    observer = RecordingObserver()
    simulation.directory.event_log.observers.append(observer)
    return observer


def test_observer_gets_each_event_once() -> None:
    simulation = CoordinatorSimulation()
    observer = observed(simulation)
    member_id = form(simulation)
    expected = [Reason.MEMBER_JOINED] * 2 + [Reason.INITIAL_DELAY_ENDED, Reason.ASSIGNMENT_STORED]
    assert [event.reason for _, event in observer.events] == expected
    assert {group_id for group_id, _ in observer.events} == {GROUP}
    for _ in range(10):
        simulation.post(heartbeat(member_id, 1))
        simulation.post(commit(1, member_id=member_id, generation_id=1))
    assert len(observer.events) == len(expected)


def test_group_describes_its_last_events() -> None:
    simulation = CoordinatorSimulation()
    observer = observed(simulation)
    assert simulation.post(DescribeEvents(GROUP)).value == DescribedEvents(ErrorCode.NONE)
    form(simulation)
    described = simulation.post(DescribeEvents(GROUP)).value
    assert described == DescribedEvents(ErrorCode.NONE, tuple(event for _, event in observer.events))


def test_deleted_group_releases_its_events() -> None:
    simulation = CoordinatorSimulation()
    observer = observed(simulation)
    member_id = form(simulation)
    simulation.post(leave(member_id))
    assert simulation.directory.event_log.bytes_used > 0
    simulation.post(DeleteGroup(GROUP))
    assert observer.events[-1][1].reason is Reason.DELETED
    assert simulation.directory.event_log.bytes_used == 0


def test_passivated_group_releases_its_events() -> None:
    simulation = CoordinatorSimulation()
    member_id = form(simulation)
    simulation.post(leave(member_id))
    simulation.advance(300_000)
    assert GROUP in simulation.directory.passivated
    assert simulation.directory.event_log.bytes_used == 0


def test_illegal_transition_has_the_last_events() -> None:
    group = SimulatedGroup()
    group.form_group({}, {"client": "second"})
    history = GroupHistory("g", EventLog())
    history.add(group.events)
    effects = Effects(history=history)
    with pytest.raises(IllegalTransition, match=r"last events: .*member added second-.*assignment is stored"):
        group.group.apply(Event.ASSIGNMENT_DURABLE, Cause(Reason.ASSIGNMENT_STORED), effects)


# Bugs ----------------------------------------------------------------------------------------------------------------


class BrokenObserver:
    def observe(self, group_id: str, events: Sequence[GroupEvent]) -> None:
        raise RuntimeError("planted")


def broken(_record: object) -> None:
    raise RuntimeError("planted")


def test_bug_of_an_observer_does_not_affect_the_group(caplog: pytest.LogCaptureFixture) -> None:
    simulation = CoordinatorSimulation()
    simulation.directory.event_log.observers.insert(0, BrokenObserver())
    [member] = simulation.form_group({})
    assert simulation.post(heartbeat(member.member_id, member.generation_id)).value is ErrorCode.NONE
    assert simulation.directory.rebalances.completed == 1, "the observers after it get the events"
    simulation.post(leave(member.member_id))
    lines = [record for record in caplog.records if "bug in an observer of the events of group" in record.message]
    assert len(lines) == 2, "one line a second: the group formed in three seconds, and has changed at once then"


def test_bug_of_the_flight_recorder_does_not_affect_the_group(caplog: pytest.LogCaptureFixture) -> None:
    simulation = CoordinatorSimulation()
    recorder = simulation.directory.event_log.recorder
    recorder.observers.append(broken)
    [member] = simulation.form_group({})
    assert simulation.post(heartbeat(member.member_id, member.generation_id)).value is ErrorCode.NONE
    assert "bug in the flight recorder" in caplog.text
    recorder.observers.remove(broken)
    count = len(recorder.records(GROUP))
    simulation.post(leave(member.member_id))
    assert len(recorder.records(GROUP)) > count, "later rebalances are recorded"
