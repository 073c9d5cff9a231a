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
FINE = Committed((ErrorCode.NONE,))


def offset_of(simulation: CoordinatorSimulation) -> int:
    offset: int = simulation.post(fetch()).value.topics[0][1][0].offset
    return offset


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("is_kept", [True, False])
def test_commits_during_expiry_keep_their_order(steps: int, is_kept: bool) -> None:
    """One commit waits for the deletion, the next arrives at its end; the last acknowledged one wins."""
    simulation = CoordinatorSimulation(seed=steps, holds_appends=True)
    simulation.settings.offsets_retention_check_interval_ms = 10**12
    simulation.post(commit(1, topic="old"))
    simulation.complete_all_appends()
    simulation.clock.now_ms += RETENTION_MS - 1000
    simulation.post(commit(1))
    simulation.complete_all_appends()
    simulation.clock.now_ms += 1000
    simulation.tell_coordinator(Expired((retention.RETENTION_SCAN,)))
    assert simulation.log.in_flight, "the tombstones are on their way"
    first = simulation.post(commit(5))
    assert first.is_waiting
    if is_kept:
        simulation.log.complete_append()
    else:
        simulation.log.fail()
    for _ in range(steps):
        simulation.dispatcher.step()
    second = simulation.send(commit(6))
    simulation.run()
    simulation.complete_all_appends()
    assert (first.value, second.value) == (FINE, FINE)
    assert offset_of(simulation) == 6


def test_bug_in_deletion_answers_waiting_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = CoordinatorSimulation(holds_appends=True)
    pending = simulation.post(commit(1))
    deleting = simulation.post(DeleteGroup(GROUP))
    waiting = simulation.post(commit(2))

    def failing(_data: GroupData, _group_id: str) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(GroupData, "tombstones", failing)
    simulation.complete_append()
    assert pending.value == FINE
    assert deleting.value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    simulation.complete_all_appends()
    assert waiting.value == FINE
    assert offset_of(simulation) == 2


def test_bug_at_end_of_deletion_completes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = CoordinatorSimulation(holds_appends=True)
    simulation.post(commit(1))
    simulation.complete_all_appends()
    deleting = simulation.post(DeleteGroup(GROUP))
    waiting, joining = simulation.post(commit(2)), simulation.post(join())

    def failing(*_args: object) -> None:
        raise ValueError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(ClassicGroup, "close", failing)
        simulation.complete_append()
    assert deleting.value is ErrorCode.NONE
    simulation.complete_all_appends()
    assert waiting.value == FINE
    assert offset_of(simulation) == 2
    simulation.advance(3000)
    assert joining.value.generation_id == 1
