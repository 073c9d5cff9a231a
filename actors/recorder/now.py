"""What a group waits for at this moment. Pure."""

from __future__ import annotations

from typing import NamedTuple

from ..group.events import Identity
from .expiries import ExpiredOffsets
from .record import MemberName, Named


class Waiting(NamedTuple):
    """What a group in memory waits for. ``what``: as in "waits for ..."; "" for nothing.

    ``generation``: or the epoch. ``missing``: the members that have to do it, the first 20 of ``missing_count``.
    ``until_ms``: when the group goes on without them, in monotonic milliseconds; None: it has no deadline. ``members``:
    the first 100. ``assignors``: those that all members of the classic protocol offer.
    """

    generation: int

    what: str = ""
    missing: tuple[Identity, ...] = ()
    missing_count: int = 0
    until_ms: int | None = None
    members: tuple[Identity, ...] = ()
    member_count: int = 0
    assignors: tuple[str, ...] = ()


class OffsetsNow(NamedTuple):
    """The committed offsets of a group. ``first_expires_ms``: when the first of them expires; None: none will.

    ``lag``: the records between them and the ends of their partitions; None if one of the ends is not known.
    ``expired``: the last ones that have expired since the process began; None: none have.
    """

    offset_count: int
    first_expires_ms: int | None = None
    lag: int | None = None
    expired: ExpiredOffsets | None = None


class TopicsNow(NamedTuple):
    """The first 100 topics that members subscribe to. ``missing``: those of them that do not exist.

    ``untold``: how many the asker may not describe, so that it is not told whether they exist.
    """

    subscribed: tuple[str, ...]
    missing: tuple[str, ...] = ()
    untold: int = 0


class RefusedJoin(NamedTuple):
    """A client that was refused, because no assignor that it ``offers`` is offered by all members."""

    member: MemberName
    offers: tuple[str, ...]


class Refused(NamedTuple):
    """What was refused in the last ten minutes, at most 16 of each.

    ``commits``: the id of the sender, which is in the group no more, or had an old generation.
    ``instance_ids``: of requests whose instance id another member has. ``assignors``: those that all members offer now.
    """

    joins: tuple[RefusedJoin, ...] = ()
    commits: tuple[str, ...] = ()
    instance_ids: tuple[str, ...] = ()
    assignors: tuple[str, ...] = ()


class Offer(NamedTuple):
    """The first 10 assignors that a member offers, in its order."""

    member: MemberName
    assignors: tuple[str, ...]


class Votes(NamedTuple):
    """How the members of a classic group vote for an assignor. A loaded member is only known to offer the one in use.

    ``assignor``: the one in use, "" for none. ``preferred``: the one that most members name first: ``first_choices``
    has how many. ``voted``: each member votes for the first of its assignors that all members offer. ``offers``: those
    of the first 20 members. ``lacking``: the first 20, of ``lacking_count``, that do not offer the preferred one.
    """

    assignor: str
    preferred: str = ""
    first_choices: tuple[Named, ...] = ()
    voted: tuple[Named, ...] = ()
    offers: tuple[Offer, ...] = ()
    lacking: tuple[MemberName, ...] = ()
    lacking_count: int = 0


class Subscriptions(NamedTuple):
    """What members subscribe to and vote for. ``topics``: None if they are not known. ``votes``: None if none vote."""

    topics: TopicsNow | None = None
    votes: Votes | None = None


class OpenNow(NamedTuple):
    """A rebalance that has not ended. ``began_ms``: since 1970. The others as in ``record.Why``."""

    began_ms: int
    cause: str
    by: MemberName | None
    client_reason: str
    restarts: int


class GroupNow(NamedTuple):
    """A group at the time ``now_ms``; all times are in milliseconds since 1970. See ``Waiting``.

    ``state``: "" if only the time is known, "Dead" if the group does not exist.

    ``missing_since_ms``: when the group began to wait. ``guarded_until_ms``: until when commits without a
    generation to the partitions of the last reset are refused; None: they are not.
    """

    now_ms: int
    state: str
    generation: int
    waits_for: str = ""
    missing: tuple[MemberName, ...] = ()
    missing_count: int = 0
    missing_since_ms: int | None = None
    until_ms: int | None = None
    members: tuple[MemberName, ...] = ()
    member_count: int = 0
    rebalance: OpenNow | None = None
    guarded_until_ms: int | None = None
    refused: Refused = Refused()
    offsets: OffsetsNow | None = None
    subscriptions: Subscriptions = Subscriptions()
