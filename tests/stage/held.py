"""A world whose log holds back, and short ways to look at a group in it."""

from __future__ import annotations

from typing import Any

from callboard.actors.errors import ErrorCode
from callboard.actors.group.states import State
from callboard.actors.messages import Committed, Joined

from .ports import Place
from .requests import fetch, join
from .world import World

FINE = Committed((ErrorCode.NONE,))


def held_world() -> World:
    return World(holds_back=True)


def fetched(world: World, **options: Any) -> int:
    """The offset that a fetch of one partition is answered."""
    place = world.post(fetch(**options))
    offset: int = place.value.topics[0][1][0].offset
    return offset


def stable(world: World, *options: dict[str, Any]) -> list[Joined]:
    """A Stable group; the log holds back again afterwards."""
    world.holds_back = False
    joined = world.form(*(options or ({}, {})))
    world.holds_back = True
    assert world.group()._group.state is State.STABLE
    return joined


def begun(world: World, *options: dict[str, Any]) -> list[Place]:
    """The first members of a group, which is in the log now; they wait for the initial delay."""
    joining = [world.post(join(**one)) for one in options or ({},)]
    world.keep()
    return joining
