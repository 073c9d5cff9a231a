"""GroupListing: what is listed while groups change between its pieces."""

from __future__ import annotations

from actor_system.requests import commit
from actor_system.simulation import CoordinatorSimulation

from callboard.actors.coordinator.listing import PIECE
from callboard.actors.group.active_group import IDLE_MS
from callboard.actors.messages import DeleteGroup, ListGroups

COUNT = 3 * PIECE


def names(count: int = COUNT) -> list[str]:
    return [f"group-{number}" for number in range(count)]


def with_groups() -> CoordinatorSimulation:
    simulation = CoordinatorSimulation()
    for name in names():
        simulation.post(commit(group_id=name))
    return simulation


def test_pieces_are_small() -> None:
    pieces = list(with_groups().ask(ListGroups()).value.pieces())
    assert max(map(len, pieces)) <= PIECE
    assert sum(map(len, pieces)) == COUNT


def test_group_that_is_passivated_or_activated_between_pieces_is_listed_once() -> None:
    simulation = with_groups()
    pieces = simulation.ask(ListGroups()).value.pieces()
    listed = [group.group_id for group in next(pieces)]
    simulation.advance(2 * IDLE_MS)
    assert not simulation.directory.groups
    listed += [group.group_id for group in next(pieces)]
    for name in names():
        simulation.post(commit(group_id=name))
    listed += [group.group_id for piece in pieces for group in piece]
    assert sorted(listed) == sorted(names())


def test_group_that_is_deleted_between_pieces_is_not_listed() -> None:
    simulation = with_groups()
    pieces = simulation.ask(ListGroups()).value.pieces()
    listed = {group.group_id for group in next(pieces)}
    deleted = set(names()) - listed
    for name in deleted:
        simulation.post(DeleteGroup(name))
    assert not [group for piece in pieces for group in piece]


def test_passivated_groups_are_listed_as_active_ones() -> None:
    simulation = with_groups()
    active = set(simulation.listed())
    simulation.advance(2 * IDLE_MS)
    assert set(simulation.listed()) == active
