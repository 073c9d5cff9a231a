"""How far the work has come: what was committed of shards that a member has just acquired."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...actors.errors import ErrorCode
from ...actors.messages import Fetched, FetchedOffset, OffsetFetch
from .channel import ChannelLost
from .errors import MemberError, refused
from .line import Backoff
from .protocol import Asked, Step, step_after
from .work import Shard

if TYPE_CHECKING:
    from .membership import Membership


async def find_positions(membership: Membership, shards: Sequence[Shard]) -> bool:
    """Fill in positions and notes. False if there is a reason to join again before that could be done."""
    if not shards:
        return True
    request = OffsetFetch(membership.group_id, _by_topic(shards), require_stable=True)
    backoff = Backoff(membership.random)
    while True:
        fetched = await _ask(membership, request)
        if fetched is not None:
            rows = {(topic, row.partition): row for topic, each in fetched.topics for row in each}
            step, error = _worst(fetched.error, rows.values())
            if step is Step.GO_ON:
                _fill_in(shards, rows)
                return True
            if step is Step.FAIL:
                raise MemberError(refused(f"reading the positions of group {membership.group_id!r}", error), error)
            membership.follow(step, membership.identity, error, "reading positions")
        if membership.is_called:
            return False
        await backoff.wait()


async def _ask(membership: Membership, request: OffsetFetch) -> Fetched | None:
    try:
        fetched: Fetched = await membership.beats.ask(request)
    except ChannelLost:
        return None
    return fetched


def _by_topic(shards: Iterable[Shard]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    topics: dict[str, list[int]] = {}
    for shard in shards:
        topics.setdefault(shard.topic_partition[0], []).append(shard.topic_partition[1])
    return tuple((topic, tuple(partitions)) for topic, partitions in topics.items())


def _worst(error: ErrorCode, rows: Iterable[FetchedOffset]) -> tuple[Step, ErrorCode]:
    """The step that leads furthest away from going on, of the answer's and all partitions' errors."""
    steps = {step_after(Asked.FETCH, one): one for one in (error, *(row.error for row in rows))}
    worst = max(steps, key=lambda step: step.value)
    return worst, steps[worst]


def _fill_in(shards: Iterable[Shard], rows: dict[tuple[str, int], FetchedOffset]) -> None:
    for shard in shards:
        row = rows.get(shard.topic_partition)
        if row is not None and row.offset >= 0:
            shard.next_offset, shard.note = row.offset, row.metadata
