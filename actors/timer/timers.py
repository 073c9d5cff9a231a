"""Named deadlines of many owners, on a timing wheel, in milliseconds. Pure: the caller supplies the time.

A tick of the wheel is a millisecond, as in Kafka. With ticks of 10 ms, tests of clients fail that sleep for a session
timeout and then expect that the member is gone.

An owner has at most one deadline of a name. The map has one dict of names per owner instead of one dict of (owner,
name) pairs, so that all deadlines of an owner can be removed in one step. Memory at a million deadlines, including the
wheel: 116 bytes per deadline if owners have ten (pairs: 186), 313 if they have one (pairs: 225).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from .wheel import Timer, TimingWheel


class Timers:
    """Deadlines by owner and name. They never expire early, and not late if ``pop_expired`` is called in time."""

    def __init__(self, now_ms: int) -> None:
        self._wheel = TimingWheel(now_ms)
        self._timers: dict[Any, dict[Hashable, Timer]] = {}

    def __len__(self) -> int:
        return len(self._wheel)

    def schedule(self, owner: Any, name: Hashable, due_ms: int) -> None:
        """Schedule a deadline, or move the one of the same owner and name."""
        names = self._timers.get(owner)
        if names is None:
            names = self._timers[owner] = {}
        deadline = names.get(name)
        if deadline is None:
            deadline = names[name] = Timer(owner, name)
        self._wheel.add(deadline, due_ms)

    def cancel(self, owner: Any, name: Hashable) -> bool:
        """False if there is no deadline of this owner and name."""
        deadline = self._timers.get(owner, {}).get(name)
        if deadline is None:
            return False
        self._wheel.cancel(deadline)
        self._remove_from_map(deadline)
        return True

    def remove_owner(self, owner: Any) -> None:
        """Cancel all deadlines of an owner."""
        for deadline in self._timers.pop(owner, {}).values():
            self._wheel.cancel(deadline)

    def pop_expired(self, now_ms: int, limit: int | None = None) -> dict[Any, list[Hashable]]:
        """Remove and return due deadlines, at most ``limit``: owners by their first deadline, names by due time."""
        found: dict[Any, list[Hashable]] = {}
        for deadline in self._wheel.advance(now_ms, limit):
            self._remove_from_map(deadline)
            found.setdefault(deadline.owner, []).append(deadline.name)
        return found

    def next_due_ms(self) -> int | None:
        """When to ask ``expired`` again: never too late, perhaps too early (see ``TimingWheel.next_tick``)."""
        return self._wheel.next_tick()

    def check(self) -> None:
        """Raise AssertionError unless the map and the wheel hold the same deadlines. For tests."""
        self._wheel.check()
        assert all(self._timers.values()), "an owner without deadlines is still in the map"
        mapped = [deadline for names in self._timers.values() for deadline in names.values()]
        assert all(deadline in self._wheel for deadline in mapped), "the map has a deadline that the wheel has not"
        assert len(mapped) == len(self._wheel), f"{len(mapped)} in the map, {len(self._wheel)} in the wheel"

    def _remove_from_map(self, deadline: Timer) -> None:
        """Remove a deadline from the map that is no longer in the wheel."""
        names = self._timers[deadline.owner]
        del names[deadline.name]
        if not names:
            del self._timers[deadline.owner]
