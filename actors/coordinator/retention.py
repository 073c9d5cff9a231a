"""The retention scan: at a regular interval every group deletes its expired offsets."""

from __future__ import annotations

from collections.abc import Callable

from ..base import ActorRef
from ..engine_ports import Clock
from ..group.effects import ExpiredCounts, GroupCounters
from ..group.expiry import MINUTE_MS
from ..group.offsets import packed_may_have_expired
from ..ports import GroupSettings
from ..timer.messages import Schedule
from .group_scan import GroupScan

RETENTION_SCAN = ("retention scan",)
"""The name of the deadline of the next retention scan."""


class RetentionScan:
    """Schedule and results of retention scans. Owned by the coordinator, which runs the scans."""

    def __init__(
        self, settings: GroupSettings, clock: Clock, timer: ActorRef, owner: ActorRef, counters: GroupCounters
    ) -> None:
        self.scan: GroupScan | None = None  # the latest
        self._counters = counters
        self._before = ExpiredCounts()  # deleted by earlier scans
        self._settings = settings
        self._clock = clock
        self._timer = timer
        self._owner = owner

    def schedule(self) -> None:
        """Schedule the next scan, ``offsets_retention_check_interval_ms`` from now."""
        due_ms = self._clock.monotonic_ms() + self._settings.offsets_retention_check_interval_ms
        self._timer.tell(Schedule(self._owner, RETENTION_SCAN, due_ms))

    def start(self, scan: GroupScan) -> None:
        self.scan = scan
        self._before = self._counters.expired

    def report(self, on_offsets_expired: Callable[[ExpiredCounts], None]) -> None:
        """Call ``on_offsets_expired`` if the scan is complete and has deleted anything."""
        expired = self._counters.expired.since(self._before)
        if not self.is_running and any(expired):
            on_offsets_expired(expired)

    @property
    def is_running(self) -> bool:
        return self.scan is not None and not self.scan.is_complete

    def may_have_expired(self, packed: bytes) -> bool:
        """Whether offsets of a passivated group may have expired. ``packed``: the result of ``GroupData.pack``."""
        retention_ms = self._settings.offsets_retention_minutes * MINUTE_MS
        return packed_may_have_expired(packed, self._clock.wall_ms(), retention_ms)
