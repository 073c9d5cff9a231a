"""Other requests are served while the sessions of 5,000 members expire together.

These tests measure no time. They count the work between a heartbeat of another group and its reply: expired sessions,
turns of actors, records of a round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from actor_system.ports import ManualLog, RecordedReply
from actor_system.requests import heartbeat, join
from actor_system.simulated_group import SimulatedGroup
from actor_system.simulation import CoordinatorSimulation

from callboard.actors.errors import ErrorCode
from callboard.actors.group.classic import ClassicGroup
from callboard.actors.group.effects import Effects
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import DescribeGroup
from callboard.actors.records import GroupRecord, GroupValue, MemberValue
from callboard.actors.timer.actor import TURN_LIMIT
from callboard.actors.timer.messages import Wake
from callboard.actors.writer import ROUND_MAX
from callboard.runtime.engine.dispatcher import MESSAGES_A_TURN

MEMBERS = 2_000
SESSION_MS = 10_000
OTHER_GROUP = "other"


def group(*members: str, session_timeout_ms: int = SESSION_MS) -> GroupData:
    """A Stable group from the log."""
    data = GroupData()
    member_values = tuple(
        MemberValue(member_id, None, "c", "/h", 60_000, session_timeout_ms, b"s", b"a") for member_id in members
    )
    value = GroupValue("consumer", 1, "range", members[0], 1, member_values)
    data.replay(GroupRecord("any", value))
    return data


def one_large_group() -> dict[str, GroupData]:
    return {"large": group(*(f"member-{number}" for number in range(MEMBERS)))}


def many_small_groups() -> dict[str, GroupData]:
    return {f"group-{number}": group("member") for number in range(MEMBERS)}


class StepSimulation(CoordinatorSimulation):
    """A simulation that runs step by step. Its alarm fires as soon as it is due."""

    def __init__(self, groups: dict[str, GroupData]) -> None:
        other_group = group("talker", session_timeout_ms=1_800_000)
        super().__init__({**groups, OTHER_GROUP: other_group}, log=RecordingLog())
        self.dispatcher._messages_a_turn = MESSAGES_A_TURN
        self.expired = 0

    def step(self) -> None:
        """Run one turn of one actor, if there is one."""
        if self.alarm.due_ms is not None and self.alarm.due_ms <= self.clock.now_ms:
            self.alarm.due_ms = None
            self.timer.tell(Wake(self.clock.now_ms))
        if not self.dispatcher.step() and self.log.in_flight:
            self.log.complete_append()

    @property
    def is_busy(self) -> bool:
        return bool(
            self.expired < MEMBERS or self.log.in_flight or self.dispatcher._ready or self.dispatcher._after_turn
        )

    def heartbeats(self) -> Iterator[tuple[int, int]]:
        """Send heartbeats to the other group until no messages are left. Yields turns and expired sessions."""
        while self.is_busy:
            reply, turns, expired_before = RecordedReply(), 0, self.expired
            self.directory.post(heartbeat("talker", 1, group_id=OTHER_GROUP), reply)
            while reply.is_waiting:
                self.step()
                turns += 1
            assert reply.value is ErrorCode.NONE
            if not self.dispatcher._ready:
                self.step()  # an idle step runs deferred work
            yield turns, self.expired - expired_before


class RecordingLog(ManualLog):
    """Stores only the number of records in each round."""

    def _outcome(self, entry: object, error: ErrorCode) -> object:  # type: ignore[override]
        return super()._outcome(entry._replace(records=()), error)  # type: ignore[attr-defined]


@pytest.fixture
def counted_simulations(monkeypatch: pytest.MonkeyPatch) -> list[StepSimulation]:
    """Count the expired sessions of the simulations in the returned list."""
    simulations: list[StepSimulation] = []
    original_expired = ClassicGroup.expired

    def expired(self: ClassicGroup, name: tuple[str, ...], effects: Effects) -> None:
        for simulation in simulations:
            simulation.expired += 1
        original_expired(self, name, effects)

    monkeypatch.setattr(ClassicGroup, "expired", expired)
    return simulations


@pytest.mark.parametrize("make_groups", [one_large_group, many_small_groups])
def test_heartbeats_are_answered_while_many_sessions_expire(
    make_groups: Callable[[], dict[str, GroupData]], counted_simulations: list[StepSimulation]
) -> None:
    groups = make_groups()
    simulation = StepSimulation(groups)
    counted_simulations.append(simulation)
    simulation.clock.now_ms += SESSION_MS + 10
    heartbeat_waits = list(simulation.heartbeats())
    assert simulation.expired == MEMBERS
    assert max(expired for _, expired in heartbeat_waits) <= 2 * TURN_LIMIT
    assert max(turns for turns, _ in heartbeat_waits) <= 2 * ROUND_MAX
    assert len(heartbeat_waits) >= MEMBERS // (2 * TURN_LIMIT)
    assert max(map(len, simulation.log.rounds)) <= ROUND_MAX
    simulation.run()
    listed_groups = simulation.listed()
    assert {listed_group.group_id for listed_group in listed_groups if listed_group.state == "Stable"} == {OTHER_GROUP}
    assert len(listed_groups) == len(groups) + 1
    for group_id in list(groups)[:3]:
        assert simulation.post(DescribeGroup(group_id)).value.state == "Empty"


def test_joins_are_answered_while_many_sessions_expire(counted_simulations: list[StepSimulation]) -> None:
    """The coordinator creates the new group while it gets a message from each group that becomes Empty."""
    simulation = StepSimulation(many_small_groups())
    counted_simulations.append(simulation)
    simulation.clock.now_ms += SESSION_MS + 10
    expired_max = 0
    while simulation.expired < MEMBERS:
        reply, expired_before = RecordedReply(), simulation.expired
        simulation.directory.post(join(group_id=f"new-{expired_before}", version=9), reply)
        while reply.is_waiting:
            simulation.step()
        assert reply.error is ErrorCode.MEMBER_ID_REQUIRED
        expired_max = max(expired_max, simulation.expired - expired_before)
        for _ in range(100):
            simulation.step()
    assert expired_max <= 4 * TURN_LIMIT


def test_cost_of_session_expiry_is_constant() -> None:
    """Counts the entries that are visited to find a new leader. A plain dict visits all removed ones."""
    simulated_group = SimulatedGroup()
    simulated_group.load(one_large_group()["large"].value)
    members, effects = simulated_group.group.members, Effects()
    simulated_group.clock.now_ms += SESSION_MS
    for number in range(MEMBERS - 1):
        simulated_group.group.expired(("session", f"member-{number}"), effects)
        assert simulated_group.group.leader_id == f"member-{number + 1}"
    assert list(members.by_id) == [f"member-{MEMBERS - 1}"]
    assert type(members.by_id).__name__ == "OrderedDict", "the first entry of an OrderedDict is found in constant time"
