"""A commit of one shard, through whatever happens to the group meanwhile, as long as the shard is held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...actors.errors import NO_ERROR
from ...actors.messages import Commit, Committed, OffsetCommit
from .channel import ChannelLost
from .errors import CommitRefused, ShardLost, refused
from .line import Backoff
from .named import check_text
from .protocol import Asked, Step, step_after
from .work import Progress, Shard

if TYPE_CHECKING:
    from .membership import Membership

OFFSET_MAX = 2**63 - 1
NO_LEADER_EPOCH = -1


async def commit(membership: Membership, shard: Shard, next_offset: int, note: str) -> Progress:
    """See ``Shard.commit``."""
    _check(next_offset, note)
    own = sent = shard.newest = shard.newest[0] + 1, next_offset, note
    backoff: Backoff | None = None
    while own[0] >= shard.kept[0]:
        if shard.is_lost or not membership.check_lease():
            raise ShardLost(
                f"{shard!r} is lost, somebody else may work on it already; stop, and go on with the next Assignment"
            )
        member_id, generation = identity = membership.identity
        rows = (Commit(*shard.topic_partition, sent[1], NO_LEADER_EPOCH, sent[2]),)
        request = OffsetCommit(membership.group_id, member_id, membership.options.instance_id, generation, rows)
        try:
            answer: Committed = await membership.beats.ask(request)
        except ChannelLost:
            pass
        else:
            error = answer.errors[0]
            if error is NO_ERROR:
                return _keep(shard, sent, Progress(answer.durability))
            step = step_after(Asked.COMMIT, error)
            if step is not Step.FAIL:
                membership.follow(step, identity, error, "a commit")
            elif sent is own:
                raise CommitRefused(refused(f"the commit of {next_offset} for {shard!r}", error), error)
            elif shard.newest is sent:
                shard.newest = own
        backoff = backoff or Backoff(membership.random)
        await backoff.wait()
        sent = shard.newest  # which may have been begun since: behind it, ours would take it back
    return shard.kept[1]


def _keep(shard: Shard, sent: tuple[int, int, str], progress: Progress) -> Progress:
    """One is acknowledged. What was begun before it, and is still on its way, is then acknowledged as well."""
    if sent[0] >= shard.kept[0]:
        shard.kept = sent[0], progress
        shard.next_offset, shard.note = sent[1:]
    return progress


def _check(next_offset: object, note: object) -> None:
    if type(next_offset) is not int or not 0 <= next_offset <= OFFSET_MAX:
        raise ValueError(
            f"next_offset {next_offset!r}: expected a whole number from 0 to 2**63-1, the offset of the next item to "
            f"process, as in shard.commit(43) after item 42"
        )
    if not isinstance(note, str):
        raise ValueError(f"note {note!r}: expected a string; json.dumps makes one of other values")
    if not note.isascii():
        check_text("note", note)
