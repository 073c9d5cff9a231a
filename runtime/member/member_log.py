"""The log lines of one member: what it was assigned, gave back and lost, and when the coordinator does not answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from ...actors.errors import ErrorCode
from ...actors.text import LogLine
from .shards import Shard

log = logging.getLogger("callboard.member")

SHARDS_NAMED_MAX = 10
"""Shards that a line names. A member may own thousands."""

REFUSED_LINE_INTERVAL_S = 60.0
"""Between two lines about refused commits of one member."""


class MemberLog:
    """``identity`` returns the member id and the generation at the time of a line."""

    __slots__ = ("_group_id", "_identity", "_refused_line_due_s", "is_unanswered")

    def __init__(self, group_id: str, identity: Callable[[], tuple[str, int]]) -> None:
        self.is_unanswered = False  # the last request got no answer
        self._group_id = group_id
        self._identity = identity
        self._refused_line_due_s = float("-inf")

    def assigned(self, added: Sequence[Shard], owned_count: int) -> None:
        """The member may work on these shards from now on. ``owned_count``: of all its shards."""
        if added or not owned_count:
            self._info("shards assigned", added, owned_count)

    def revoked(self, shards: Sequence[Shard], owned_count: int) -> None:
        """The member has given these shards back, and its tasks on them have ended."""
        self._info("shards given back", shards, owned_count)

    def lost(self, shards: Sequence[Shard], reason: str) -> None:
        """The member may not work on its shards any more, and another member may own them already."""
        if shards:
            log.warning(LogLine("shards lost", {**self._fields(shards), "reason": reason}))

    def commit_refused(self, shard: Shard, error: ErrorCode, now_s: float) -> None:
        """A commit has been refused and retried for some time, perhaps those of other shards, too."""
        if now_s >= self._refused_line_due_s:
            self._refused_line_due_s = now_s + REFUSED_LINE_INTERVAL_S
            cause = {"error": error.name, "advice": "see the log of the coordinator, whose disk may be full or broken"}
            log.warning(LogLine("commits are refused and retried", {**self._fields([shard]), **cause}))

    def no_answer(self, request: str, error: Exception) -> None:
        """Log the first request of an outage at INFO, the others at DEBUG: all requests are retried."""
        level = logging.DEBUG if self.is_unanswered else logging.INFO
        self.is_unanswered = True
        log.log(level, "no answer to %s of a member of group %r: %r; retrying", request, self._group_id, error)

    def answered(self) -> None:
        """The coordinator has answered a request."""
        if self.is_unanswered:
            self.is_unanswered = False
            log.info("the coordinator answers members of group %r again", self._group_id)

    def _info(self, event: str, shards: Sequence[Shard], owned_count: int) -> None:
        if log.isEnabledFor(logging.INFO):
            log.info(LogLine(event, {**self._fields(shards), "owned": owned_count}))

    def _fields(self, shards: Sequence[Shard]) -> dict[str, object]:
        member_id, generation = self._identity()
        return {
            "group": self._group_id,
            "member_id": member_id,
            "generation": generation,
            "count": len(shards),
            "shards": shard_names(shards),
        }


def shard_names(shards: Iterable[Shard]) -> str:
    """The first shards by resource and name, as in ``jobs/3 jobs/4 ...``."""
    names = [f"{shard.resource}/{shard.name}" for shard in islice(shards, SHARDS_NAMED_MAX + 1)]
    return " ".join([*names[:SHARDS_NAMED_MAX], *(["..."] if len(names) > SHARDS_NAMED_MAX else [])])
