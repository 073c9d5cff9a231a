"""Requests that wait for a deletion are handled before later ones, even after a bug."""

from __future__ import annotations

import pytest
from actor_system.requests import GROUP, commit, fetch, join
from actor_system.simulation import CoordinatorSimulation

from callboard.actors.coordinator import retention
from callboard.actors.errors import ErrorCode
from callboard.actors.group.classic import ClassicGroup
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import Committed, DeleteGroup
from callboard.actors.timer.messages import Expired

RETENTION_MS = 7 * 24 * 3_600_000
COMMITTED = Committed((ErrorCode.NONE,))


def committed_offset(simulation: CoordinatorSimulation) -> int:
    offset: int = simulation.post(fetch()).value.topics[0][1][0].offset
    return offset


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("keeps_offset", [True, False])
def test_commits_during_expiry_keep_their_order(turns: int, keeps_offset: bool) -> None:
    """The first commit waits for the deletion, the second arrives at its end. The last acknowledged one is kept."""
    simulation = CoordinatorSimulation(seed=turns, holds_appends=True)
    simulation.settings.offsets_retention_check_interval_ms = 10**12
    simulation.post(commit(1, topic="old"))
    simulation.complete_all_appends()
    simulation.clock.now_ms += RETENTION_MS - 1000
    simulation.post(commit(1))
    simulation.complete_all_appends()
    simulation.clock.now_ms += 1000
    simulation.tell_coordinator(Expired((retention.RETENTION_SCAN,)))
    assert simulation.log.in_flight, "the tombstones are in flight"
    first_reply = simulation.post(commit(5))
    assert first_reply.is_waiting
    if keeps_offset:
        simulation.log.complete_append()
    else:
        simulation.log.fail()
    for _ in range(turns):
        simulation.dispatcher.step()
    second_reply = simulation.send(commit(6))
    simulation.run()
    simulation.complete_all_appends()
    assert (first_reply.value, second_reply.value) == (COMMITTED, COMMITTED)
    assert committed_offset(simulation) == 6


def test_bug_in_deletion_answers_waiting_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = CoordinatorSimulation(holds_appends=True)
    pending = simulation.post(commit(1))
    delete_reply = simulation.post(DeleteGroup(GROUP))
    commit_reply = simulation.post(commit(2))

    def failing(_data: GroupData, _group_id: str) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(GroupData, "tombstones", failing)
    simulation.complete_append()
    assert pending.value == COMMITTED
    assert delete_reply.value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    simulation.complete_all_appends()
    assert commit_reply.value == COMMITTED
    assert committed_offset(simulation) == 2


def test_bug_at_end_of_deletion_completes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = CoordinatorSimulation(holds_appends=True)
    simulation.post(commit(1))
    simulation.complete_all_appends()
    delete_reply = simulation.post(DeleteGroup(GROUP))
    commit_reply, join_reply = simulation.post(commit(2)), simulation.post(join())

    def failing(*_args: object) -> None:
        raise ValueError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(ClassicGroup, "close", failing)
        simulation.complete_append()
    assert delete_reply.value is ErrorCode.NONE
    simulation.complete_all_appends()
    assert commit_reply.value == COMMITTED
    assert committed_offset(simulation) == 2
    simulation.advance(3000)
    assert join_reply.value.generation_id == 1
