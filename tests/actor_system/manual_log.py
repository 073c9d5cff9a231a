"""A simulation that holds appends, and shortcuts for its group."""

from __future__ import annotations

from typing import Any

from callboard.actors.errors import ErrorCode
from callboard.actors.group.states import State
from callboard.actors.messages import Committed, Joined

from .ports import RecordedReply
from .requests import fetch, join
from .simulation import CoordinatorSimulation

COMMITTED = Committed((ErrorCode.NONE,))


def held_simulation() -> CoordinatorSimulation:
    return CoordinatorSimulation(holds_appends=True)


def fetch_offset(simulation: CoordinatorSimulation, **options: Any) -> int:
    """The offset in the reply to a fetch of one partition."""
    reply = simulation.post(fetch(**options))
    offset: int = reply.value.topics[0][1][0].offset
    return offset


def form_stable_group(simulation: CoordinatorSimulation, *options: dict[str, Any]) -> list[Joined]:
    """Form a Stable group; appends are held again afterwards."""
    simulation.holds_appends = False
    members = simulation.form_group(*(options or ({}, {})))
    simulation.holds_appends = True
    assert simulation.classic_group().state is State.STABLE
    return members


def start_joining(simulation: CoordinatorSimulation, *options: dict[str, Any]) -> list[RecordedReply]:
    """Send the first joins of a group and make its first record durable. The joins wait for the initial delay."""
    join_replies = [simulation.post(join(**join_options)) for join_options in options or ({},)]
    simulation.complete_append()
    return join_replies
