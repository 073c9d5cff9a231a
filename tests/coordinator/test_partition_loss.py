"""A partition with many groups is lost: they stop in parts, and each request is answered by its group or refused."""

from __future__ import annotations

import pytest
from actor_system.manual_log import COMMITTED
from actor_system.ports import RecordedReply
from actor_system.requests import commit
from actor_system.simulation import EPOCH, CoordinatorSimulation

from callboard.actors.coordinator import ownership
from callboard.actors.errors import ErrorCode
from callboard.actors.group.active_group import IDLE_MS
from callboard.actors.messages import Committed, PartitionGained, PartitionLoaded, PartitionLost

REFUSED = Committed((ErrorCode.NOT_COORDINATOR,))
COUNT = 12


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> CoordinatorSimulation:
    monkeypatch.setattr(ownership, "STOPPED_PER_TURN", 2)
    return CoordinatorSimulation()


def groups_of_one_partition(simulation: CoordinatorSimulation) -> tuple[int, list[str]]:
    number_of = simulation.directory.partitions.number_of
    number = number_of("group-0")
    names = (f"group-{count}" for count in range(10_000))
    return number, [name for name in names if number_of(name) == number][:COUNT]


def lose(simulation: CoordinatorSimulation, number: int) -> RecordedReply:
    reply = RecordedReply()
    simulation.coordinator.post(PartitionLost(number, EPOCH), reply)
    return reply


def test_partition_is_lost_when_all_groups_have_stopped(simulation: CoordinatorSimulation) -> None:
    number, names = groups_of_one_partition(simulation)
    for name in names:
        simulation.post(commit(group_id=name))
    lost = lose(simulation, number)
    simulation.dispatcher.step()
    assert not lost.answers
    assert len(simulation.directory.groups) == COUNT - 2, "the first part has stopped"
    late = [simulation.send(commit(group_id=name)) for name in names]
    simulation.run()
    assert len(lost.answers) == 1
    assert not simulation.directory.groups
    assert all(reply.value in (COMMITTED, REFUSED) for reply in late)
    assert [simulation.post(commit(group_id=name)).value for name in names] == [REFUSED] * COUNT


def test_group_that_is_passivated_before_it_has_stopped_is_not_kept(simulation: CoordinatorSimulation) -> None:
    number, names = groups_of_one_partition(simulation)
    for name in names:
        simulation.post(commit(group_id=name))
    lost = lose(simulation, number)
    simulation.advance(2 * IDLE_MS)
    assert len(lost.answers) == 1
    assert not simulation.directory.groups
    assert not simulation.directory.partitions[number].passivated
    simulation.tell_coordinator(PartitionGained(number, EPOCH + 1))
    simulation.tell_coordinator(PartitionLoaded(number, EPOCH + 1))
    assert simulation.post(commit(group_id=names[0])).value == COMMITTED
