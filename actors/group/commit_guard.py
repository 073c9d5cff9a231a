"""CommitGuard: members that an administrator has removed may not undo what the administrator does next. Pure.

A group without members takes commits without a generation, from simple consumers. aiokafka commits so when its member
has been removed: with its old position, after the administrator has set the offsets of the group to other ones. Kafka
accepts that commit. Here it is refused, as a commit of a removed member, until the client has joined again.
"""

from __future__ import annotations

from collections.abc import Iterable

from .events import GroupEvent, Kind, Reason
from .reset_watch import ResetWatch

REMOVED_BY_OTHERS = frozenset({Reason.ADMIN, Reason.RESET})

GUARD_MS = 600_000
"""How long a removed member is remembered. It learns of its removal by a heartbeat, or at the end of a long pause."""

MEMBERS_MAX = 1000
"""Members of a group that are remembered. The one that was removed first is forgotten for the next."""

MEMBER_ID_CHARACTERS_MAX = 255
"""Longer member ids are not remembered. Those of Kafka have a client id and 37 characters."""


class CommitGuard:
    """The members of one group that were removed by another client. ``end_ms``: until when one of them is remembered.

    Times are monotonic, in milliseconds, but ``reset_ms`` is wall-clock time: a change of state until then may be that
    of a reset. One that was loaded may be, and later ones only after a reset. ``watch``: what follows the last reset.
    """

    __slots__ = ("_until_ms", "end_ms", "reset_ms", "watch")

    def __init__(self, loaded_ms: int = -1) -> None:
        """``loaded_ms``: of the change of state that was loaded, if there is one."""
        self._until_ms: dict[str, int] = {}
        self.end_ms = 0
        self.reset_ms = loaded_ms
        self.watch = ResetWatch()

    def note(self, events: Iterable[GroupEvent]) -> None:
        """Remember the members that these events have removed."""
        for event in events:
            if event.kind is Kind.MEMBER_REMOVED and event.reason in REMOVED_BY_OTHERS:
                self._remember(event.member_id, event.monotonic_ms + GUARD_MS)
                if event.reason is Reason.RESET:
                    self.reset_ms = event.wall_ms

    def _remember(self, member_id: str, until_ms: int) -> None:
        if len(member_id) > MEMBER_ID_CHARACTERS_MAX:
            return
        while len(self._until_ms) >= MEMBERS_MAX:
            del self._until_ms[next(iter(self._until_ms))]
        self._until_ms[member_id] = self.end_ms = until_ms

    def refuses(self, former_member_id: str, now_ms: int) -> bool:
        """Whether a commit without a generation is refused, since its sender was this member."""
        return now_ms < self._until_ms.get(former_member_id, 0)
