"""The sweep: now and then every group is asked to delete what is old, a few at a time.

Groups that sleep are not woken for it: what ``GroupData.pack`` leaves says when something of it could be old, so a look
costs a microsecond. Who is asked must have answered, with its tombstones durable, before the next are: a million
groups that grow old together neither flood the log nor come into memory together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import pykka

from .base import ActorRef
from .expiry import MINUTE_MS
from .messages import ExpireOffsets, Schedule, Swept
from .offsets import packed_is_due
from .ports import Clock, GroupSettings

SWEEP = ("sweep",)
"""The name of the alarm of the next sweep."""

LOOKS = 1000
"""Groups that are looked at in one turn: about a millisecond."""

ASKED = 50
"""Groups that are asked at once."""


class Done:
    """The place for the answer of a group that was asked: whatever it is, the sweep goes on."""

    __slots__ = ("_owner",)

    def __init__(self, owner: ActorRef) -> None:
        self._owner = owner

    def set(self, value: Any = None) -> None:
        with suppress(pykka.ActorDeadError):  # all stop
            self._owner.tell(Swept())

    def set_exception(self, exc_info: Any = None) -> None:
        self.set()


class Sweep:
    """Belongs to the coordinator, which passes on ``Expired``, ``Swept`` and ``SweepOn``, and wakes groups for it."""

    def __init__(
        self,
        groups: dict[str, ActorRef],
        asleep: dict[str, bytes],
        settings: GroupSettings,
        clock: Clock,
        timer: ActorRef,
        owner: ActorRef,
        wake: Callable[[str], ActorRef],
    ) -> None:
        self._groups = groups
        self._asleep = asleep
        self._settings = settings
        self._clock = clock
        self._timer = timer
        self._owner = owner
        self._wake = wake
        self._left: Iterator[str] = iter(())
        self._is_under_way = False
        self._unanswered = 0

    def schedule(self) -> None:
        """The next one, ``offsets_retention_check_interval_ms`` from now."""
        due_ms = self._clock.monotonic_ms() + self._settings.offsets_retention_check_interval_ms
        self._timer.tell(Schedule(self._owner, SWEEP, due_ms))

    def start(self) -> bool:
        """The alarm rang. False if the last sweep is still under way: then that one goes on."""
        self.schedule()
        if self._is_under_way:
            return False
        self._is_under_way = True
        self._left = iter([*self._groups, *self._asleep])
        return True

    def swept(self) -> bool:
        """A group has answered. True if it is time for the next slice."""
        self._unanswered -= 1
        return not self._unanswered

    def go_on(self) -> bool:
        """The next slice. True if one more is to follow; else answers come first, or it was the last."""
        looked = 0
        for group_id in islice(self._left, LOOKS):
            looked += 1
            ref = self._groups.get(group_id) or self._woken(group_id)
            if ref is not None:
                self._unanswered += 1
                ref.post(ExpireOffsets(), Done(self._owner))
                if self._unanswered == ASKED:
                    return False
        self._is_under_way = looked == LOOKS or self._unanswered > 0
        return self._is_under_way and not self._unanswered

    def _woken(self, group_id: str) -> ActorRef | None:
        """A group that sleeps, awake if something of it could be old."""
        packed = self._asleep.get(group_id)
        if packed is None:
            return None
        retention_ms = self._settings.offsets_retention_minutes * MINUTE_MS
        return self._wake(group_id) if packed_is_due(packed, self._clock.wall_ms(), retention_ms) else None
