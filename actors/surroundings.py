"""What is around every group, handed to its actor and to the one that stands in for it."""

from __future__ import annotations

from typing import NamedTuple

from .base import ActorRef
from .effects import Counts
from .engine_ports import Clock
from .ports import GroupSettings, Random


class Surroundings(NamedTuple):
    """What every group has around it."""

    settings: GroupSettings
    clock: Clock
    random: Random
    coordinator: ActorRef
    timer: ActorRef
    writer: ActorRef
    counts: Counts
