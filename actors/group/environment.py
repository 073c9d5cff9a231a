"""GroupEnvironment: what every group's actor and its fallback are given."""

from __future__ import annotations

from typing import NamedTuple

from ..base import ActorRef
from ..engine_ports import Clock
from ..ports import GroupSettings, Random
from .effects import Counts


class GroupEnvironment(NamedTuple):
    """Settings, clock, random numbers and the actors that a group sends to."""

    settings: GroupSettings
    clock: Clock
    random: Random
    coordinator: ActorRef
    timer: ActorRef
    writer: ActorRef
    counts: Counts
