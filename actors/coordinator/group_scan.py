"""A scan over all groups, passivated ones included, in small parts, so that a million groups do not delay requests.

The scan continues only after the groups that got a message have replied, with their records durable. So a million
groups that all have something to do neither flood the log nor are activated together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import Any

import pykka

from ..base import ActorRef
from ..messages import DeleteTopicOffsets, ExpireOffsets, GroupScanned

GROUPS_PER_TURN = 1000
"""Groups that are checked in one turn, if a check takes a microsecond."""

MAX_PENDING_GROUPS = 50
"""Maximum number of groups whose reply is outstanding."""


class ScanReply:
    """``ReplyTo`` for the message of a scan. The scan continues whatever the reply is."""

    __slots__ = ("_owner", "_walk")

    def __init__(self, owner: ActorRef, scan: GroupScan) -> None:
        self._owner = owner
        self._walk = scan

    def set(self, value: Any = None) -> None:
        with suppress(pykka.ActorDeadError):  # the system stops
            self._owner.tell(GroupScanned(self._walk))

    def set_exception(self, exc_info: Any = None) -> None:
        self.set()


class GroupScan:
    """One scan, owned by the coordinator (``owner``), which handles ``GroupScanned`` and ``ContinueScan``.

    ``groups``: partition and id of each group. ``find`` returns the actor of a group that should get the message,
    activated if needed; None for a group that has nothing to do. ``groups_per_turn``: how many take a millisecond.
    """

    def __init__(
        self,
        message: ExpireOffsets | DeleteTopicOffsets,
        groups: Iterable[tuple[int, str]],
        find: Callable[[int, str], ActorRef | None],
        owner: ActorRef,
        groups_per_turn: int,
    ) -> None:
        self.is_complete = False
        self._groups_per_turn = groups_per_turn
        self._message = message
        self._remaining = iter(groups)
        self._find = find
        self._owner = owner
        self._unanswered = 0

    def count_reply(self) -> bool:
        """Count the reply of a group. True if the next part may run."""
        self._unanswered -= 1
        return not self._unanswered

    def run_part(self) -> bool:
        """Run the next part. True if another part may follow without waiting for replies."""
        checked = 0
        for partition, group_id in islice(self._remaining, self._groups_per_turn):
            checked += 1
            ref = self._find(partition, group_id)
            if ref is not None:
                self._unanswered += 1
                ref.post(self._message, ScanReply(self._owner, self))
                if self._unanswered == MAX_PENDING_GROUPS:
                    return False
        self.is_complete = checked < self._groups_per_turn and not self._unanswered
        return not (self.is_complete or self._unanswered)
