"""Which refused requests the flight recorder remembers. Pure."""

from __future__ import annotations

from ..errors import ErrorCode
from ..messages import JoinGroup, OffsetCommit, TxnOffsetCommit
from .effects import Effects
from .rebalance_notes import CommitRefused, JoinRefused

OUTDATED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH})

OFFERS_MAX = 10
NAME_CHARACTERS_MAX = 255
"""Clients may offer many protocols, with names of 32 KiB."""


def note_refused_commit(
    request: OffsetCommit | TxnOffsetCommit, error: ErrorCode, now_ms: int, effects: Effects
) -> None:
    """The sender is not a member any more, or its generation is old. ``now_ms``: monotonic.

    A commit without a member id comes from a simple consumer, so it says nothing about members.
    """
    if request.member_id and error in OUTDATED:
        effects.note_refusal(CommitRefused(now_ms, request.member_id[:NAME_CHARACTERS_MAX]))


def note_refused_join(request: JoinGroup, now_ms: int, effects: Effects) -> None:
    """No assignor that it offers is offered by all members."""
    offers = tuple(offer.name[:NAME_CHARACTERS_MAX] for offer in request.protocols[:OFFERS_MAX])
    effects.note_refusal(JoinRefused(now_ms, request._replace(protocols=()), offers))
