"""The sweep: now and then every group is asked to delete what is old."""

from __future__ import annotations

from collections.abc import Callable

from ..base import ActorRef
from ..engine_ports import Clock
from ..group.effects import Counts, Expiry
from ..group.expiry import MINUTE_MS
from ..group.offsets import packed_is_due
from ..ports import GroupSettings
from ..timer.messages import Schedule
from .group_scan import Walk

SWEEP = ("sweep",)
"""The name of the alarm of the next sweep."""


class Sweep:
    """When the next one is. Belongs to the coordinator, which walks."""

    def __init__(self, settings: GroupSettings, clock: Clock, timer: ActorRef, owner: ActorRef, counts: Counts) -> None:
        self.walk: Walk | None = None  # the last one
        self._counts = counts
        self._before = Expiry()  # what earlier sweeps have deleted
        self._settings = settings
        self._clock = clock
        self._timer = timer
        self._owner = owner

    def schedule(self) -> None:
        """The next one, ``offsets_retention_check_interval_ms`` from now."""
        due_ms = self._clock.monotonic_ms() + self._settings.offsets_retention_check_interval_ms
        self._timer.tell(Schedule(self._owner, SWEEP, due_ms))

    def begin(self, walk: Walk) -> None:
        self.walk = walk
        self._before = self._counts.expired

    def report(self, tell: Callable[[Expiry], None]) -> None:
        """Tell what the sweep has deleted, if it is over and has deleted anything."""
        expired = self._counts.expired.since(self._before)
        if not self.is_under_way and any(expired):
            tell(expired)

    @property
    def is_under_way(self) -> bool:
        return self.walk is not None and not self.walk.is_over

    def concerns(self, packed: bytes) -> bool:
        """Whether something of a group that sleeps could be old, by what ``GroupData.pack`` left."""
        retention_ms = self._settings.offsets_retention_minutes * MINUTE_MS
        return packed_is_due(packed, self._clock.wall_ms(), retention_ms)
