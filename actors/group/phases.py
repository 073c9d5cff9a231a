"""The timing of the two phases of a rebalance: members join, members sync. Pure.

The join deadline is the initial delay for an empty group, otherwise the maximum rebalance timeout. By the sync deadline
every member must have sent SyncGroup.
"""

from __future__ import annotations

from .contexts import AssignmentContext
from .effects import Deadline

NO_REJOIN_WAIT_MS = 1000
"""Minimum time between checks while no static member rejoins. Kafka checks after each rebalance timeout; here a timeout
of 0 would keep the event loop busy."""


class JoinPhase:
    """The time until the join phase ends. Methods return for how long (ms) to set the deadline."""

    __slots__ = ("_delay_ms", "_remaining_ms", "deadline", "has_new_member", "is_initial", "retry_ms")

    def __init__(self) -> None:
        self.deadline = Deadline(("join",))
        self.is_initial = False  # the phase began in an empty group
        self.has_new_member = False  # since the initial delay was last set
        self.retry_ms: int | None = None  # until Kafka's next check, if no member joined
        self._delay_ms = 0
        self._remaining_ms = 0

    def begin_initial(self, delay_ms: int, timeout_ms: int) -> int:
        """Delay the first generation, so that members that start together are in the same one."""
        self.is_initial = True
        self._delay_ms = delay_ms
        self._remaining_ms = max(timeout_ms - delay_ms, 0)
        return delay_ms

    def extend(self, delay_ms: int) -> int | None:
        """Extend the initial delay while new members keep joining. None if the phase ends."""
        if not (self.is_initial and self.has_new_member and self._remaining_ms):
            return None
        self.has_new_member = False
        used_ms = self._delay_ms
        self._delay_ms = min(delay_ms, self._remaining_ms)
        self._remaining_ms = max(self._remaining_ms - used_ms, 0)
        return self._delay_ms

    def wait_for_any_member(self, timeout_ms: int) -> int:
        """All members are static and absent: wait for one of them. The first one is noticed as soon as in Kafka."""
        self.retry_ms = max(timeout_ms, 0) if timeout_ms < NO_REJOIN_WAIT_MS else None
        return max(timeout_ms, NO_REJOIN_WAIT_MS)

    def end(self) -> None:
        self.is_initial = self.has_new_member = False
        self.retry_ms = None


class SyncPhase:
    """The members of the generation that have not sent SyncGroup, and the assignment that is being appended."""

    __slots__ = ("awaited", "deadline", "pending")

    def __init__(self) -> None:
        self.deadline = Deadline(("sync",))
        self.pending: set[str] = set()  # member ids
        self.awaited: AssignmentContext | None = None
