"""A group that is shutting down still answers fetches."""

from __future__ import annotations

from actor_system.requests import GROUP, commit, fetch
from actor_system.simulation import CoordinatorSimulation

from callboard.actors.messages import Fetched, Shutdown


def offset_in(response: Fetched) -> int:
    [(_topic, [partition])] = response.topics
    return partition.offset


def test_stable_fetch_during_shutdown_is_answered_after_commit() -> None:
    """A reply without an offset would make the client start again from the beginning."""
    simulation = CoordinatorSimulation(holds_appends=True)
    simulation.post(commit(4))
    simulation.complete_all_appends()
    simulation.post(commit(5))
    fetch_reply = simulation.post(fetch(require_stable=True))
    simulation.tell(GROUP, Shutdown())
    simulation.complete_all_appends()
    assert offset_in(fetch_reply.value) == 5


def test_fetch_after_shutdown_returns_committed_offset() -> None:
    simulation = CoordinatorSimulation()
    simulation.post(commit(4))
    simulation.tell(GROUP, Shutdown())
    assert offset_in(simulation.post(fetch()).value) == 4
