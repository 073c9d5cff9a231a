"""Fetch the committed offsets and notes of shards that were just assigned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...actors.errors import ErrorCode
from ...actors.messages import Fetched, FetchedOffset, OffsetFetch
from .channel import ChannelLost
from .errors import MemberError, refusal_message
from .group_membership import GroupMembership
from .reactions import Reaction, RequestKind, reaction_to
from .reconnecting_channel import Backoff
from .shards import Shard


async def fetch_committed_offsets(membership: GroupMembership, shards: Sequence[Shard]) -> bool:
    """Set ``next_offset`` and ``note`` of the shards. False if the member must rejoin before this succeeds."""
    if not shards:
        return True
    request = OffsetFetch(membership.group_id, _by_topic(shards), require_stable=True)
    backoff = Backoff(membership.random)
    while True:
        fetched = await _ask(membership, request)
        if fetched is not None:
            rows = {(topic, row.partition): row for topic, topic_rows in fetched.topics for row in topic_rows}
            reaction, error = _worst(fetched.error, rows.values())
            if reaction is Reaction.CONTINUE:
                _set_offsets(shards, rows)
                return True
            if reaction is Reaction.FAIL:
                raise MemberError(
                    refusal_message(f"reading the offsets of group {membership.group_id!r}", error), error
                )
            membership.react(reaction, membership.identity, error, "reading offsets")
        if membership.needs_rejoin:
            return False
        await backoff.wait()


async def _ask(membership: GroupMembership, request: OffsetFetch) -> Fetched | None:
    try:
        fetched: Fetched = await membership.channels.main.ask(request)
    except ChannelLost:
        return None
    return fetched


def _by_topic(shards: Iterable[Shard]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    topics: dict[str, list[int]] = {}
    for shard in shards:
        topics.setdefault(shard.topic_partition[0], []).append(shard.topic_partition[1])
    return tuple((topic, tuple(partitions)) for topic, partitions in topics.items())


def _worst(error: ErrorCode, rows: Iterable[FetchedOffset]) -> tuple[Reaction, ErrorCode]:
    """The most severe reaction to the answer's and all partitions' errors, with its error."""
    reactions = {reaction_to(RequestKind.FETCH, code): code for code in (error, *(row.error for row in rows))}
    worst = max(reactions, key=lambda reaction: reaction.value)
    return worst, reactions[worst]


def _set_offsets(shards: Iterable[Shard], rows: dict[tuple[str, int], FetchedOffset]) -> None:
    for shard in shards:
        row = rows.get(shard.topic_partition)
        if row is not None and row.offset >= 0:
            shard.next_offset, shard.note = row.offset, row.metadata
