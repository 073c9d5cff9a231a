"""A group that is told of the coordinator's end still says what is committed. (Found by the simulation.)"""

from __future__ import annotations

from stage.requests import GROUP, commit, fetch
from stage.world import World

from callboard.actors.messages import Fetched, Shutdown


def offset_in(answer: Fetched) -> int:
    [(_topic, [found])] = answer.topics
    return found.offset


def test_a_stable_fetch_that_waits_for_a_commit_hears_of_it_after_the_end_has_begun() -> None:
    """It was told that nothing is committed, and would have begun anew."""
    world = World(holds_back=True)
    world.post(commit(4))
    world.keep_all()
    world.post(commit(5))
    waiting = world.post(fetch(require_stable=True))
    world.tell(GROUP, Shutdown())
    world.keep_all()
    assert offset_in(waiting.value) == 5


def test_a_fetch_that_comes_late_hears_the_same() -> None:
    world = World()
    world.post(commit(4))
    world.tell(GROUP, Shutdown())
    assert offset_in(world.post(fetch()).value) == 4
