"""Appends in flight and the requests that wait for them. They survive a change of the actor's instance."""

from __future__ import annotations

import logging
from itertools import islice
from typing import Any, NamedTuple

from ..engine_ports import ReplyTo
from ..error_reply import error_reply
from ..errors import NO_ERROR, ErrorCode
from ..messages import (
    Committed,
    DeleteGroup,
    DeleteTopicOffsets,
    ExpireOffsets,
    GroupRequest,
    Left,
    OffsetFetch,
    OffsetsDeleted,
)
from .expiry import BATCH, TombstoneBatch
from .offsets import GroupData

log = logging.getLogger("callboard.actors")

APPEND_ERRORS = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Error codes for clients after a failed append (Kafka's mapping). They make clients look up the coordinator again."""


class CommitContext(NamedTuple):
    """Context of a commit."""

    reply: ReplyTo | None
    errors: tuple[ErrorCode, ...]

    def answer(self, error: ErrorCode, durability: str = "") -> None:
        """``error`` and ``durability`` come from the log. Commits that were refused before keep their own error."""
        errors = self.errors
        if error is not NO_ERROR:
            append_error = APPEND_ERRORS.get(error, error)
            errors = tuple(append_error if own_error is NO_ERROR else own_error for own_error in errors)
        deliver_reply(self.reply, Committed(errors, durability))


class LeaveContext(NamedTuple):
    """Context of the group record after the last members left. They have left even if the append fails."""

    reply: ReplyTo
    left: Left

    def answer(self, error: ErrorCode) -> None:
        client_error = APPEND_ERRORS.get(error, error)
        deliver_reply(self.reply, Left(client_error) if client_error else self.left)


class NewGroupContext(NamedTuple):
    """Context of the first record of a group. No request waits for it; if it fails, the group is removed."""


class OffsetDeleteContext(NamedTuple):
    """Context of the tombstones of single offsets."""

    reply: ReplyTo | None
    topics: tuple[ErrorCode, ...]

    def answer(self, error: ErrorCode) -> None:
        client_error = APPEND_ERRORS.get(error, error)
        deliver_reply(self.reply, OffsetsDeleted(client_error, () if client_error else self.topics))


class DeleteContext(NamedTuple):
    """Context of a batch of tombstones of a ``Deletion``."""

    reply: ReplyTo
    ends_group: bool = True
    is_last: bool = True  # False: more batches follow
    record_count: int = 0

    def answer(self, error: ErrorCode) -> None:
        deliver_reply(self.reply, APPEND_ERRORS.get(error, error))


class Deletion:
    """The deletion of a group or of some of its offsets, caused by ``cause``.

    Requests that could add offsets or members wait until it is complete.
    """

    def __init__(self, reply: ReplyTo, cause: DeleteGroup | ExpireOffsets | DeleteTopicOffsets) -> None:
        self.reply = reply
        self.cause = cause
        self.max_records = BATCH  # per batch; halved if the log finds a batch too large
        self.is_sent = False
        self.is_done = False
        self.is_answered = False
        self.waiting: list[tuple[GroupRequest | DeleteTopicOffsets, ReplyTo]] = []

    def next_batch(self, group_id: str, data: GroupData, expired: TombstoneBatch | None) -> TombstoneBatch:
        """The next batch of tombstones. ``expired``: expired offsets, if they are the cause of the deletion."""
        if expired is not None:
            records, is_last = expired
        elif isinstance(self.cause, DeleteTopicOffsets):
            records, is_last = data.topic_tombstones(group_id, self.cause.topics), True
        else:
            records, is_last = tuple(islice(data.tombstones(group_id), self.max_records + 1)), True
        return TombstoneBatch(records[: self.max_records], is_last and len(records) <= self.max_records)

    def continue_after(self, context: DeleteContext, error: ErrorCode) -> bool:
        """Whether the next batch follows: the log accepted this one, or a batch of half the size may fit."""
        if error is ErrorCode.MESSAGE_TOO_LARGE and context.record_count > 1:
            self.max_records = context.record_count // 2
        elif error is not ErrorCode.NONE or context.is_last or isinstance(self.cause, ExpireOffsets):
            return False
        self.is_sent = False
        return True

    def answer(self, error: ErrorCode) -> None:
        """Reply to the cause, at most once."""
        if not self.is_answered:
            self.is_answered = True
            deliver_reply(self.reply, APPEND_ERRORS.get(error, error))


class WaitingFetch(NamedTuple):
    """A fetch that waits for all earlier commits (``require_stable``, KIP-447)."""

    request: OffsetFetch
    reply: ReplyTo | None
    required_appends: int  # the value of ``appends_done`` that it waits for


class InFlight:
    """Appends in flight and requests that wait for them. Passed from one instance of the actor to the next."""

    def __init__(self) -> None:
        self.appends_sent = 0
        self.appends_done = 0
        self.stale_appends = 0  # sent by an earlier instance
        self.fetches: list[WaitingFetch] = []
        self.deletion: Deletion | None = None

    @property
    def is_all_appended(self) -> bool:
        """Whether no append is in flight."""
        return self.appends_done == self.appends_sent

    @property
    def is_idle(self) -> bool:
        return self.is_all_appended and not self.fetches and self.deletion is None

    def fail_pending(self, error: ErrorCode) -> None:
        """Reply with ``error`` to all requests that wait for appends."""
        fetches, self.fetches = self.fetches, []
        for fetch in fetches:
            deliver_reply(fetch.reply, error_reply(fetch.request, error))
        deletion, self.deletion = self.deletion, None
        if deletion is not None:
            if not deletion.is_sent:
                deliver_reply(deletion.reply, error)
            for request, reply in deletion.waiting:
                deliver_reply(reply, error_reply(request, error))


def deliver_reply(reply: ReplyTo | None, value: Any) -> None:
    """Set a reply. An exception of ``set`` is logged, so that other replies are still sent."""
    if reply is None:
        return
    try:
        reply.set(value)
    except Exception:
        log.exception("a reply could not be delivered")


class GroupSnapshot(NamedTuple):
    """The saved state of a group actor that was dropped from memory. ``bug``: the reason, None if it was passivated."""

    group_id: str
    data: GroupData
    in_flight: InFlight
    bug: Exception | None


def deliver_error(reply: ReplyTo, bug: Exception) -> None:
    """Set an exception as the reply. An exception of ``set_exception`` is logged."""
    try:
        reply.set_exception((type(bug), bug, bug.__traceback__))
    except Exception:
        log.exception("an error could not be delivered")
