"""Commit the offset of one shard; retry through rebalances and restarts while the shard is owned."""

from __future__ import annotations

from collections.abc import Callable

from ...actors.errors import NO_ERROR
from ...actors.messages import Commit, Committed, OffsetCommit
from .channel import ChannelLost
from .errors import CommitRefused, ShardLost, refusal_message
from .group_membership import GroupMembership
from .owned_shards import SLOW_S
from .reactions import Reaction, RequestKind, reaction_to
from .reconnecting_channel import Backoff
from .resources import check_text
from .shards import CommitResult, Shard

OFFSET_MAX = 2**63 - 1
NO_LEADER_EPOCH = -1


async def commit_offset(
    membership: GroupMembership, check_loop: Callable[[], None], shard: Shard, next_offset: int, note: str
) -> CommitResult:
    """See ``Shard.commit``. ``check_loop`` raises an error if this is not the member's event loop."""
    check_loop()
    _check_arguments(next_offset, note)
    own_commit = sent = shard.latest_commit = shard.latest_commit[0] + 1, next_offset, note
    backoff: Backoff | None = None
    slow_s = 0.0
    while own_commit[0] >= shard.acknowledged[0]:
        if not membership.check_lease() or shard.is_lost:
            raise ShardLost(
                f"{shard!r} is lost, and another member may own it; stop, and continue with the next Assignment"
            )
        member_id, generation = identity = membership.identity
        rows = (Commit(*shard.topic_partition, sent[1], NO_LEADER_EPOCH, sent[2]),)
        request = OffsetCommit(membership.group_id, member_id, membership.options.instance_id, generation, rows)
        try:
            answer: Committed = await membership.channels.main.ask(request)
        except ChannelLost:
            refused = None  # an outage, which heartbeats report
        else:
            refused = error = answer.errors[0]
            if error is NO_ERROR:
                return _acknowledge(shard, sent, CommitResult(answer.durability))
            reaction = reaction_to(RequestKind.COMMIT, error)
            if reaction is not Reaction.FAIL:
                membership.react(reaction, identity, error, "a commit")
            elif sent is own_commit:
                raise CommitRefused(refusal_message(f"the commit of {next_offset} for {shard!r}", error), error)
            elif shard.latest_commit is sent:
                shard.latest_commit = own_commit
        now_s = membership.lease.now_s()
        if backoff is None:
            backoff, slow_s = Backoff(membership.random), now_s + SLOW_S
        elif refused is not None and now_s >= slow_s:
            membership.member_log.commit_refused(shard, refused, now_s)
        await backoff.wait()
        sent = shard.latest_commit  # may be newer than this one, which must not overwrite it
    return shard.acknowledged[1]


def _acknowledge(shard: Shard, sent: tuple[int, int, str], result: CommitResult) -> CommitResult:
    """Record that a commit was acknowledged, and with it all earlier ones."""
    if sent[0] >= shard.acknowledged[0]:
        shard.acknowledged = sent[0], result
        shard.next_offset, shard.note = sent[1:]
    return result


def _check_arguments(next_offset: object, note: object) -> None:
    if type(next_offset) is not int or not 0 <= next_offset <= OFFSET_MAX:
        raise ValueError(
            f"next_offset {next_offset!r}: expected a whole number from 0 to 2**63-1, the offset of the next item to "
            f"process, as in shard.commit(43) after item 42"
        )
    if not isinstance(note, str):
        raise ValueError(f"note {note!r}: expected a string; json.dumps makes one of other values")
    if not note.isascii():
        check_text("note", note)
