"""The sweep: now and then every group is asked to delete what is old."""

from __future__ import annotations

from .base import ActorRef
from .engine_ports import Clock
from .expiry import MINUTE_MS
from .offsets import packed_is_due
from .ports import GroupSettings
from .timer_messages import Schedule
from .walk import Walk

SWEEP = ("sweep",)
"""The name of the alarm of the next sweep."""


class Sweep:
    """When the next one is. Belongs to the coordinator, which walks."""

    def __init__(self, settings: GroupSettings, clock: Clock, timer: ActorRef, owner: ActorRef) -> None:
        self.walk: Walk | None = None  # the last one
        self._settings = settings
        self._clock = clock
        self._timer = timer
        self._owner = owner

    def schedule(self) -> None:
        """The next one, ``offsets_retention_check_interval_ms`` from now."""
        due_ms = self._clock.monotonic_ms() + self._settings.offsets_retention_check_interval_ms
        self._timer.tell(Schedule(self._owner, SWEEP, due_ms))

    @property
    def is_under_way(self) -> bool:
        return self.walk is not None and not self.walk.is_over

    def concerns(self, packed: bytes) -> bool:
        """Whether something of a group that sleeps could be old, by what ``GroupData.pack`` left."""
        retention_ms = self._settings.offsets_retention_minutes * MINUTE_MS
        return packed_is_due(packed, self._clock.wall_ms(), retention_ms)
