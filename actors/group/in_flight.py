"""Appends in flight and the requests that wait for them. They survive a change of the actor's instance."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from ..engine_ports import ReplyTo
from ..error_reply import error_reply
from ..errors import ErrorCode
from ..messages import DeleteGroup, DeleteTopicOffsets, ExpireOffsets, GroupRequest, OffsetFetch
from .contexts import APPEND_ERRORS, DeleteContext, deliver_reply
from .expiry import BATCH, TombstoneBatch
from .offsets import GroupData


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
            records, is_last, ends_group = expired
        else:
            is_last, ends_group = True, not isinstance(self.cause, DeleteTopicOffsets)
            tombstones = (
                data.topic_tombstones(group_id, self.cause.topics)
                if isinstance(self.cause, DeleteTopicOffsets)
                else data.tombstones(group_id)
            )
            records = tuple(islice(tombstones, self.max_records + 1))
        if len(records) > self.max_records:
            return TombstoneBatch(records[: self.max_records], False)
        return TombstoneBatch(records, is_last, ends_group)

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
        self.commits_sent = 0  # of the appends
        self.stale_appends = 0  # sent by an earlier instance
        self.reset_append = 0  # the number of the last append of a reset
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


class GroupSnapshot(NamedTuple):
    """The saved state of a group actor that was dropped from memory. ``bug``: the reason, None if it was passivated."""

    group_id: str
    data: GroupData
    in_flight: InFlight
    bug: Exception | None
