"""Contexts of appends: who waits for the outcome, and what it is told.

A context with a method ``answer`` is answered with the error of the log, whichever instance of the actor gets it. If it
has a property ``is_divisible`` that is true, and the log finds the entry too large, its group tries again with less.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from ..engine_ports import ReplyTo
from ..errors import NO_ERROR, ErrorCode
from ..messages import Committed, OffsetsDeleted, Protocol
from ..new_tuple import new_tuple
from .reset_messages import OffsetsReset

log = logging.getLogger("callboard.actors")

APPEND_ERRORS = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Error codes for clients after a failed append (Kafka's mapping). They make clients look up the coordinator again."""


def own_append_error(error: ErrorCode) -> ErrorCode:
    """The same for a request of this process, which is told if its records do not fit into an entry of the log."""
    return error if error is ErrorCode.MESSAGE_TOO_LARGE else APPEND_ERRORS.get(error, error)


class CommitContext(NamedTuple):
    """Context of a commit. ``limit``: see ``Committed``."""

    reply: ReplyTo | None
    errors: tuple[ErrorCode, ...]
    limit: str = ""

    def answer(self, error: ErrorCode, durability: str = "") -> None:
        """``error`` and ``durability`` come from the log. Commits that were refused before keep their own error."""
        errors = self.errors
        if error is not NO_ERROR:
            append_error = APPEND_ERRORS.get(error, error)
            errors = tuple(append_error if own_error is NO_ERROR else own_error for own_error in errors)
        deliver_reply(self.reply, new_tuple(Committed, (errors, durability, self.limit)))


class ReplyContext(NamedTuple):
    """Context of the records of a request that is answered when they are durable. Its effects stay if that fails."""

    reply: ReplyTo
    value: Any
    on_error: Callable[[ErrorCode], Any]  # makes the reply if the append fails

    def answer(self, error: ErrorCode) -> None:
        client_error = APPEND_ERRORS.get(error, error)
        deliver_reply(self.reply, self.on_error(client_error) if client_error else self.value)


class ResetContext(NamedTuple):
    """Context of the records of a reset. If the append fails, the group is loaded again, with the members.

    ``parked``: requests of members that wait, which are answered when it is known whether the members are removed.
    """

    reply: ReplyTo
    value: OffsetsReset
    parked: tuple[tuple[ReplyTo | None, Any], ...] = ()

    def answer(self, error: ErrorCode) -> None:
        for reply, value in self.parked:
            deliver_reply(reply, type(value)(ErrorCode.COORDINATOR_NOT_AVAILABLE) if error else value)
        deliver_reply(self.reply, OffsetsReset(own_append_error(error)) if error else self.value)


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


class AssignmentContext(NamedTuple):
    """Of a classic group: context of the record with the assignments of the leader's SyncGroup."""

    generation: int


class StaticRejoinContext(NamedTuple):
    """Of a classic group: context of the record of a static member that rejoined, with the state to restore."""

    member_id: str
    old_member_id: str
    old_leader_id: str | None
    old_protocols: tuple[Protocol, ...]
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    can_skip_assignment: bool


def deliver_reply(reply: ReplyTo | None, value: Any) -> None:
    """Set a reply. An exception of ``set`` is logged, so that other replies are still sent."""
    if reply is None:
        return
    try:
        reply.set(value)
    except Exception:
        log.exception("a reply could not be delivered")


def deliver_error(reply: ReplyTo, bug: Exception) -> None:
    """Set an exception as the reply. An exception of ``set_exception`` is logged."""
    try:
        reply.set_exception((type(bug), bug, bug.__traceback__))
    except Exception:
        log.exception("an error could not be delivered")
