"""A commit of one share, through whatever happens to the group meanwhile, as long as the share is held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...actors.errors import NO_ERROR
from ...actors.messages import Commit, Committed, OffsetCommit
from .channel import ChannelLost
from .errors import CommitRefused, WorkLost, refused
from .line import Backoff
from .protocol import Asked, Step, step_after
from .work import Progress, Share

if TYPE_CHECKING:
    from .membership import Membership

POSITION_MAX = 2**63 - 1
NO_LEADER_EPOCH = -1


async def commit(membership: Membership, share: Share, position: int, note: str) -> Progress:
    """See ``Share.commit``."""
    _check(position, note)
    rows = (Commit(*share.place, position, NO_LEADER_EPOCH, note),)
    backoff: Backoff | None = None
    while True:
        if share.is_lost or not membership.check_lease():
            raise WorkLost(
                f"{share!r} is lost, somebody else may work on it already; stop, and go on with the next Work"
            )
        member_id, generation = identity = membership.identity
        request = OffsetCommit(membership.group_id, member_id, membership.options.instance_id, generation, rows)
        try:
            answer: Committed = await membership.beats.ask(request)
        except ChannelLost:
            pass
        else:
            error = answer.errors[0]
            if error is NO_ERROR:
                share.position, share.note = position, note
                return Progress(answer.durability)
            step = step_after(Asked.COMMIT, error)
            if step is Step.FAIL:
                raise CommitRefused(refused(f"the commit of {position} for {share!r}", error), error)
            membership.follow(step, identity, error, "a commit")
        backoff = backoff or Backoff(membership.random)
        await backoff.wait()


def _check(position: object, note: object) -> None:
    if type(position) is not int or not 0 <= position <= POSITION_MAX:
        raise ValueError(f"position {position!r}: expected a whole number from 0 to 2**63-1, as in share.commit(42)")
    if not isinstance(note, str):
        raise ValueError(f"note {note!r}: expected a string; json.dumps makes one of other values")
