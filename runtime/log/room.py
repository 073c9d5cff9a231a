"""Room: which parts of the log are full, for log lines and for what is tried next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ..common.logs import get_logger

Store = Literal["journal", "next journal", "partition files", "memory"]
"""The parts that can be full."""

log = get_logger("callboard.log")


class Room:
    """``full``: the parts without room. The first one and the end of the last one are logged."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: monotonic, in seconds."""
        self.full: set[Store] = set()
        self._clock = clock
        self._full_since_s = 0.0

    def set_full(self, store: Store, reason: str) -> None:
        if not self.full:
            self._full_since_s = self._clock()
            log.error(
                "the log has no room",
                where=store,
                reason=reason,
                consequence="commits that cannot be stored are refused, and clients retry them",
            )
        self.full.add(store)

    def clear_full(self, store: Store) -> None:
        if store in self.full:
            self.full.remove(store)
            if not self.full:
                log.warning("the log has room again", after_s=round(self._clock() - self._full_since_s, 1))
