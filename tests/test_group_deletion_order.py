"""Requests that wait for a deletion come before all that came later, and a bug on the way leaves nobody waiting."""

from __future__ import annotations

import pytest
from stage.requests import GROUP, commit, fetch, join
from stage.world import World

from callboard.actors.coordinator import retention as sweep
from callboard.actors.errors import ErrorCode
from callboard.actors.group.classic import ClassicGroup
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import Committed, DeleteGroup
from callboard.actors.timer.messages import Expired

RETENTION_MS = 7 * 24 * 3_600_000
FINE = Committed((ErrorCode.NONE,))


def offset_of(world: World) -> int:
    offset: int = world.post(fetch()).value.topics[0][1][0].offset
    return offset


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("is_kept", [True, False])
def test_commits_keep_their_order_while_old_offsets_are_deleted(steps: int, is_kept: bool) -> None:
    """One waits for the deletion, the next comes when that is over; the last one that was acknowledged counts."""
    world = World(seed=steps, holds_back=True)
    world.rules.offsets_retention_check_interval_ms = 10**12
    world.post(commit(1, topic="old"))
    world.keep_all()
    world.clock.now_ms += RETENTION_MS - 1000
    world.post(commit(1))
    world.keep_all()
    world.clock.now_ms += 1000
    world.tell_coordinator(Expired((sweep.RETENTION_SCAN,)))
    assert world.log.in_flight, "the tombstones are on their way"
    first = world.post(commit(5))
    assert first.is_waiting
    if is_kept:
        world.log.keep()
    else:
        world.log.fail()
    for _ in range(steps):
        world.dispatcher.step()
    second = world.send(commit(6))
    world.run()
    world.keep_all()
    assert (first.value, second.value) == (FINE, FINE)
    assert offset_of(world) == 6


def test_a_bug_in_a_deletion_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(holds_back=True)
    pending = world.post(commit(1))
    deleting = world.post(DeleteGroup(GROUP))
    waiting = world.post(commit(2))

    def failing(_data: GroupData, _group_id: str) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(GroupData, "tombstones", failing)
    world.keep()
    assert pending.value == FINE
    assert deleting.value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.keep_all()
    assert waiting.value == FINE
    assert offset_of(world) == 2


def test_a_bug_at_the_end_of_a_deletion_ends_it_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(holds_back=True)
    world.post(commit(1))
    world.keep_all()
    deleting = world.post(DeleteGroup(GROUP))
    waiting, joining = world.post(commit(2)), world.post(join())

    def failing(*_args: object) -> None:
        raise ValueError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(ClassicGroup, "close", failing)
        world.keep()
    assert deleting.value is ErrorCode.NONE
    world.keep_all()
    assert waiting.value == FINE
    assert offset_of(world) == 2
    world.advance(3000)
    assert joining.value.generation_id == 1
