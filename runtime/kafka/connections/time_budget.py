"""The time that the requests of all connections may take in one iteration of the event loop.

An iteration reads each socket that is readable, so many clients together could hold the loop although each of them
sends little. When the time is spent, the requests of other connections wait for their turn (``connection_turns``), and
new work in slices waits for its first slice. Only a tiny request is handled at once, such as a heartbeat: so clients
that send only such requests do not wait for those that send expensive ones.
"""

from __future__ import annotations

from collections.abc import Callable

from ....actors.steps import SLICE_NS

BUDGET_NS = SLICE_NS
"""The last request that begins within the budget may exceed it, by a millisecond or two."""

RENEWAL_NS = BUDGET_NS // 4
"""Less is not worth a callback in the next iteration: it counts towards the budget of that one."""

TINY_BYTES = 256
"""Requests of so many bytes take at most a tenth of a millisecond: a few heartbeats, or a commit of a few partitions.

They are not measured. Work in slices that they begin is.
"""


class TimeBudget:
    """``clock_ns`` measures how long requests take. ``call_soon`` calls back in the next iteration of the loop."""

    __slots__ = ("_call_soon", "_clock_ns", "_is_renewal_scheduled", "_spent_ns", "is_spent")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], clock_ns: Callable[[], int]) -> None:
        self.is_spent = False
        self._clock_ns = clock_ns
        self._call_soon = call_soon
        self._spent_ns = 0
        self._is_renewal_scheduled = False

    def begin(self) -> int:
        """Work begins. Returns a time for ``end``: what is spent within this work counts once."""
        return self._clock_ns() - self._spent_ns

    def end(self, begin_ns: int) -> None:
        """Work has ended. ``begin_ns``: the result of ``begin``."""
        self._spent_ns = self._clock_ns() - begin_ns
        if self._spent_ns >= RENEWAL_NS:
            self.is_spent = self._spent_ns >= BUDGET_NS
            if not self._is_renewal_scheduled:
                self._is_renewal_scheduled = True
                self._call_soon(self.renew)

    def renew(self) -> None:
        """An iteration begins."""
        self._is_renewal_scheduled = False
        self._spent_ns = 0
        self.is_spent = False
