"""CommitGuard: members that an administrator has removed may not undo what the administrator does next. Pure.

A group without members takes commits without a generation, from simple consumers. aiokafka commits so when its member
has been removed: with its old position, after the administrator has set the offsets of the group to other ones. Kafka
accepts that commit. Here it is refused, as a commit of a removed member, until the client has joined again.

After a reset, see ``resets``, such commits to its partitions are refused from anybody, until the next generation is
Stable, but not longer than until the time that the offsets of the reset are dated. That is the only date in the future,
so a reset is recognized by it also when the group was loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..messages import Commit
from ..records import OffsetValue
from ..steps import Steps, pieces
from .events import STABLE_NAME, GroupEvent, Kind, Reason
from .reset_watch import ResetWatch
from .resets import GUARD_MIN_MS, FindOffset

REMOVED_BY_OTHERS = frozenset({Reason.ADMIN, Reason.RESET})

GUARD_MS = 600_000
"""How long a removed member is remembered. It learns of its removal by a heartbeat, or at the end of a long pause."""

MEMBERS_MAX = 1000
"""Members of a group that are remembered. The one that was removed first is forgotten for the next."""

MEMBER_ID_CHARACTERS_MAX = 255
"""Longer member ids are not remembered. Those of Kafka have a client id and 37 characters."""


def guarded_until_ms(dates_ms: Iterable[int], now_ms: int, longest_ms: int) -> int | None:
    """Until when the offsets with these dates are guarded; None: they are not. ``longest_ms``: the longest guard."""
    return max((date_ms for date_ms in dates_ms if now_ms < date_ms <= now_ms + longest_ms), default=None)


class CommitGuard:
    """The members of one group that were removed by another client, and its last reset. Times are in milliseconds.

    ``end_ms``: until when one of the members is remembered, monotonic time. ``reset_until_ms``: until when the reset is
    guarded, wall-clock time; it is right when ``is_complete``, otherwise ``derive`` has to read it from the offsets.
    ``watch``: what follows the last reset.
    """

    __slots__ = ("_until_ms", "end_ms", "is_complete", "reset_until_ms", "watch")

    def __init__(self, is_complete: bool = True) -> None:
        self._until_ms: dict[str, int] = {}
        self.end_ms = 0
        self.is_complete = is_complete
        self.reset_until_ms = -1
        self.watch = ResetWatch()

    def note(self, events: Iterable[GroupEvent]) -> None:
        """Remember the members that these events have removed, and whether a reset is over, or has begun."""
        noted = [event for event in events if event.reason in REMOVED_BY_OTHERS or event.state == STABLE_NAME]
        for event in noted:  # few, of the many events of a large group
            if event.kind is not Kind.MEMBER_REMOVED:
                if event.state == STABLE_NAME:
                    self.is_complete, self.reset_until_ms = True, -1
            elif event.reason in REMOVED_BY_OTHERS:
                self._remember(event.member_id, event.monotonic_ms + GUARD_MS)
                if event.reason is Reason.RESET:
                    self.is_complete = False
                    self.extend(event.wall_ms + GUARD_MIN_MS)

    def _remember(self, member_id: str, until_ms: int) -> None:
        if len(member_id) > MEMBER_ID_CHARACTERS_MAX:
            return
        while len(self._until_ms) >= MEMBERS_MAX:
            del self._until_ms[next(iter(self._until_ms))]
        self._until_ms[member_id] = self.end_ms = until_ms

    def extend(self, until_ms: int) -> None:
        """There is a reset that is guarded until then. Wall-clock time."""
        self.reset_until_ms = max(self.reset_until_ms, until_ms)

    def guarded_until_ms(self, now_ms: int) -> int | None:
        """Until when the last reset is guarded; None: it is not, now. Wall-clock times; only if ``is_complete``."""
        return self.reset_until_ms if self.reset_until_ms > now_ms else None

    def refuses(self, former_member_id: str, now_ms: int) -> bool:
        """Whether a commit without a generation is refused, since its sender was this member. Monotonic time."""
        return now_ms < self._until_ms.get(former_member_id, 0)

    def derive(
        self, topics: Iterable[tuple[str, Mapping[int, OffsetValue]]], now_ms: int, longest_ms: int
    ) -> Steps[None]:
        """Read from durable offsets until when the last reset is guarded. ``longest_ms``: the longest guard."""
        until_ms, last_ms = self.reset_until_ms, now_ms + longest_ms
        for _topic, partitions in topics:
            for values in pieces(partitions.values()):
                dates_ms = (value.commit_timestamp_ms for value in values)
                until_ms = max(until_ms, *(date_ms for date_ms in dates_ms if date_ms <= last_ms), -1)
                yield
        self.reset_until_ms = until_ms if until_ms > now_ms else -1
        self.is_complete = True

    def guards(self, commits: Iterable[Commit], find: FindOffset, now_ms: int) -> bool:
        """Whether the last reset has set one of these partitions, and is guarded. Wall-clock time.

        A partition without an offset may be one whose offset the reset has deleted.
        """
        if now_ms >= self.reset_until_ms:
            return False
        offsets = (find(commit.topic, commit.partition) for commit in commits)
        return any(value is None or now_ms < value.commit_timestamp_ms <= self.reset_until_ms for value in offsets)
