"""What of a group is on its way to the log when its actor's instance changes, and what stays when it leaves memory."""

from __future__ import annotations

import logging
from itertools import islice
from typing import Any, NamedTuple

from ..engine_ports import ReplyTo
from ..errors import NO_ERROR, ErrorCode
from ..messages import (
    Committed,
    DeleteGroup,
    ExpireOffsets,
    ForgetTopics,
    GroupRequest,
    Left,
    OffsetFetch,
    OffsetsDeleted,
)
from ..refusal import refusal
from .expiry import BATCH, OldOffsets
from .offsets import GroupData

log = logging.getLogger("callboard.actors")

APPEND_ERRORS = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What clients hear of a failed append (Kafka's mapping): something that makes them look for the coordinator again."""


class CommitContext(NamedTuple):
    """A commit on its way to the log."""

    reply: ReplyTo | None
    errors: tuple[ErrorCode, ...]

    def answer(self, error: ErrorCode, durability: str = "") -> None:
        """``error`` and ``durability`` are the log's; what was refused before keeps its own error."""
        errors = self.errors
        if error is not NO_ERROR:
            told = APPEND_ERRORS.get(error, error)
            errors = tuple(told if own is NO_ERROR else own for own in errors)
        deliver(self.reply, Committed(errors, durability))


class LeaveContext(NamedTuple):
    """The record of a group that the last members have left. The members have gone, whatever becomes of it."""

    reply: ReplyTo
    left: Left

    def answer(self, error: ErrorCode) -> None:
        told = APPEND_ERRORS.get(error, error)
        deliver(self.reply, Left(told) if told else self.left)


class NewGroup(NamedTuple):
    """The first record of a group. Nobody waits for it; without it there is no group."""


class OffsetDeleteContext(NamedTuple):
    """Tombstones of single offsets on their way to the log."""

    reply: ReplyTo | None
    topics: tuple[ErrorCode, ...]

    def answer(self, error: ErrorCode) -> None:
        told = APPEND_ERRORS.get(error, error)
        deliver(self.reply, OffsetsDeleted(told) if told else OffsetsDeleted(told, self.topics))


class DeleteContext(NamedTuple):
    """A deletion on its way to the log."""

    reply: ReplyTo
    ends_group: bool = True
    is_all: bool = True  # False: more is to be deleted after this
    record_count: int = 0

    def answer(self, error: ErrorCode) -> None:
        deliver(self.reply, APPEND_ERRORS.get(error, error))


class Deletion:
    """A group that is about to be deleted, or some of its offsets: requests that would fill it again wait for the end.

    ``cause`` says which.
    """

    def __init__(self, reply: ReplyTo, cause: DeleteGroup | ExpireOffsets | ForgetTopics) -> None:
        self.reply = reply
        self.cause = cause
        self.most = BATCH  # records that go to the log at once; fewer if it finds them too large
        self.is_sent = False
        self.is_done = False
        self.is_answered = False
        self.waiting: list[tuple[GroupRequest | ForgetTopics, ReplyTo]] = []

    def next_records(self, group_id: str, data: GroupData, old: OldOffsets | None) -> OldOffsets:
        """What goes next, as much of it as the log takes at once. ``old``: what has expired, if that is the cause."""
        if old is not None:
            records, is_all = old
        elif isinstance(self.cause, ForgetTopics):
            records, is_all = data.topic_tombstones(group_id, self.cause.topics), True
        else:
            records, is_all = tuple(islice(data.tombstones(group_id), self.most + 1)), True
        return OldOffsets(records[: self.most], is_all and len(records) <= self.most)

    def goes_on(self, context: DeleteContext, error: ErrorCode) -> bool:
        """Whether the next records are to go at once: the log took these, or half of them may fit where all did not."""
        if error is ErrorCode.MESSAGE_TOO_LARGE and context.record_count > 1:
            self.most = context.record_count // 2
        elif error is not ErrorCode.NONE or context.is_all or isinstance(self.cause, ExpireOffsets):
            return False
        self.is_sent = False
        return True

    def answer(self, error: ErrorCode) -> None:
        """Once, whatever goes wrong afterwards."""
        if not self.is_answered:
            self.is_answered = True
            deliver(self.reply, APPEND_ERRORS.get(error, error))


class WaitingFetch(NamedTuple):
    """A fetch that must see all commits that came before it (``require_stable``, KIP-447)."""

    request: OffsetFetch
    reply: ReplyTo | None
    after: int  # how many appends must be done


class Underway:
    """What of a group is on its way to the log, and who waits for it. It passes from one instance to the next."""

    def __init__(self) -> None:
        self.appends_sent = 0
        self.appends_done = 0
        self.stale_appends = 0  # those that an earlier instance has sent
        self.fetches: list[WaitingFetch] = []
        self.deletion: Deletion | None = None

    @property
    def is_written(self) -> bool:
        """Whether nothing is on its way to the log."""
        return self.appends_done == self.appends_sent

    @property
    def is_quiet(self) -> bool:
        return self.is_written and not self.fetches and self.deletion is None

    def give_up(self, error: ErrorCode) -> None:
        """Nobody will take care of those who wait for the log: they hear ``error``."""
        fetches, self.fetches = self.fetches, []
        for fetch in fetches:
            deliver(fetch.reply, refusal(fetch.request, error))
        deletion, self.deletion = self.deletion, None
        if deletion is not None:
            if not deletion.is_sent:
                deliver(deletion.reply, error)
            for request, reply in deletion.waiting:
                deliver(reply, refusal(request, error))


def deliver(reply: ReplyTo | None, answer: Any) -> None:
    """A place that cannot take its answer must not cost the others theirs."""
    if reply is None:
        return
    try:
        reply.set(answer)
    except Exception:
        log.exception("an answer could not be delivered")


class Kept(NamedTuple):
    """What stays of a group whose actor has left memory; ``bug`` says why, None if it fell asleep."""

    group_id: str
    data: GroupData
    underway: Underway
    bug: Exception | None


def fail(reply: ReplyTo, bug: Exception) -> None:
    """The same for an exception."""
    try:
        reply.set_exception((type(bug), bug, bug.__traceback__))
    except Exception:
        log.exception("an error could not be delivered")
