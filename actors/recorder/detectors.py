"""Patterns in the last rebalances of a group that have a name and a remedy. Pure: each is a rule with a window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..text import format_count
from .expiries import ExpiredOffsets
from .now import GroupNow
from .record import MemberName, RebalanceRecord
from .texts import duration, short_host, shown_name, who

WINDOW_MS = 600_000
STORM_GENERATIONS = 6
FLAPS = 3
SLOW_OF_RECORDS, SLOW_TIMES, SLOW_MS = 5, 3, 1000
FENCED_TIMES = 2
EXPIRE_SOON_MS = 2 * 24 * 3_600_000
EXPIRED_SHOWN_MS = 7 * 24 * 3_600_000

JOINED = frozenset({"new_member"})
LEFT = frozenset({"member_left", "poll_timeout", "session_expired", "join_timeout", "sync_timeout", "revoke_timeout"})


class Finding(NamedTuple):
    """``detector``: the name of the rule in docs/operate.md, such as "storm".

    ``text``: what was found and what to look at, at most 200 characters.
    """

    detector: str
    text: str


class Change(NamedTuple):
    """A member that came or went, by the name of the cause."""

    cause: str
    member: MemberName


Records = Sequence[RebalanceRecord]
"""Those of one group, the newest first."""


def find(records: Records, now: GroupNow) -> tuple[Finding, ...]:
    """All findings, the most severe first."""
    recent = [record for record in records if now.now_ms - record.ended_ms < WINDOW_MS]
    found = (detector(recent, now) for detector in DETECTORS)
    return tuple(Finding(detector, text[:200]) for detector, text in filter(None, found))


def _find_conflict(_recent: Records, now: GroupNow) -> Finding | None:
    """An instance id was refused at least twice in 10 minutes, because another member has it."""
    for instance_id, times in Counter(now.refused.instance_ids).most_common(1):
        if times >= FENCED_TIMES:
            name = who(MemberName("", instance_id, "", ""))
            text = f"{name} was fenced {times} times in 10 minutes: two processes have the same group.instance.id"
            return Finding("instance_id_conflict", text)
    return None


def _find_no_common_assignor(_recent: Records, now: GroupNow) -> Finding | None:
    """A member was refused in 10 minutes, because no assignor that it offers is offered by all members."""
    if not now.refused.joins:
        return None
    member, offers = now.refused.joins[-1]
    theirs = ", ".join(map(shown_name, now.refused.assignors)) or "none"
    text = f"{who(member)} was refused: it offers the assignors {', '.join(map(shown_name, offers)) or 'none'}"
    return Finding("no_common_assignor", f"{text}, but all members offer {theirs}: set the same ones everywhere")


def _find_missing_topic(_recent: Records, now: GroupNow) -> Finding | None:
    """Members subscribe to a topic that does not exist."""
    topics = now.subscriptions.topics
    missing = () if topics is None else topics.missing
    if not missing:
        return None
    text = f"members subscribe to the topic {shown_name(missing[0])}, which does not exist"
    others = f" (and to {len(missing) - 1} more)" if len(missing) > 1 else ""
    return Finding("missing_topic", f"{text}{others}: create it, or correct the subscription")


def _find_refused_commits(_recent: Records, now: GroupNow) -> Finding | None:
    """Commits of a member that was removed, or of an old generation, were refused in 10 minutes."""
    for member_id, times in Counter(now.refused.commits).most_common(1):
        commits = f"{format_count(times, 'commit')} of {shown_name(member_id)}"
        text = f"{commits} refused in 10 minutes: it had lost its partitions"
        return Finding("refused_commits", f"{text}, so another member does that work again")
    return None


def _find_assignor_choice(_recent: Records, now: GroupNow) -> Finding | None:
    """Another assignor is in use than the one that most members name first."""
    votes = now.subscriptions.votes
    if now.state != "Stable" or votes is None or votes.preferred in ("", votes.assignor):
        return None
    firsts, voted = dict(votes.first_choices), dict(votes.voted)
    wanted, used = shown_name(votes.preferred), shown_name(votes.assignor)
    count, members = firsts[votes.preferred], format_count(now.member_count, "member")
    text = f"{used} is in use, though {count} of {members} prefer{'s' if count == 1 else ''} {wanted}"
    if votes.lacking:
        others = f" and {votes.lacking_count - 1} more" if votes.lacking_count > 1 else ""
        return Finding("assignor_choice", f"{text}: not offered by {who(votes.lacking[0])}{others}")
    if voted.get(votes.preferred) == voted.get(votes.assignor):
        return Finding("assignor_choice", f"{text}: as many voted for {used}, so give all members the same order")
    return Finding("assignor_choice", f"{text}: others voted for {used}, since not all offer what they prefer")


def _find_expired_offsets(_recent: Records, now: GroupNow) -> Finding | None:
    """Offsets of the group have expired in seven days."""
    expired = None if now.offsets is None else now.offsets.expired
    if expired is None or now.now_ms - expired.at_ms >= EXPIRED_SHOWN_MS:
        return None
    more = f" and {format_count(len(expired.topics) - 1, 'more topic')}" if len(expired.topics) > 1 else ""
    topics = f" of {shown_name(expired.topics[0])}{more}" if expired.topics else ""
    text = f"{format_count(expired.offset_count, 'offset')}{topics} expired {duration(now.now_ms - expired.at_ms)} ago"
    return Finding("offsets_expired", f"{text}{_after_expiry(now, expired)}")


def _after_expiry(now: GroupNow, expired: ExpiredOffsets) -> str:
    if expired.with_members:
        return ", as no member read them: whoever subscribes again begins at auto.offset.reset"
    if now.member_count:
        return ", before its members came: they began at auto.offset.reset, and skipped records or read some again"
    ended = ", and the group with them" if expired.ended_group else ""
    return f"{ended}: consumers that start begin at auto.offset.reset"


def _find_lag_without_members(_recent: Records, now: GroupNow) -> Finding | None:
    """The group has no members, and records behind its committed offsets."""
    if now.state != "Empty" or now.offsets is None or not now.offsets.lag:
        return None
    return Finding(
        "lag_without_members", f"{format_count(now.offsets.lag, 'record')} behind, and no member: start consumers"
    )


def _find_offsets_that_expire(_recent: Records, now: GroupNow) -> Finding | None:
    """The group has no members, and the first of its committed offsets expires within two days."""
    offsets = now.offsets
    if now.state != "Empty" or offsets is None or offsets.first_expires_ms is None:
        return None
    left_ms = offsets.first_expires_ms - now.now_ms
    if left_ms > EXPIRE_SOON_MS:
        return None
    text = f"the first of {format_count(offsets.offset_count, 'offset')} expires in {duration(left_ms)}"
    return Finding("offsets_expire", f"{text}: then consumers start at auto.offset.reset")


def _find_idle_members(recent: Records, now: GroupNow) -> Finding | None:
    """Members of the generation have no partition."""
    moves = recent[0].moves if recent and now.state == "Stable" else None
    if moves is None or not moves.idle:
        return None
    text = f"{moves.idle} of {format_count(now.member_count, 'member')} without a partition: the topics have"
    return Finding("idle_members", f"{text} {format_count(moves.total, 'partition')}, so more members do not help")


def _find_storm(recent: Records, _now: GroupNow) -> Finding | None:
    """More than 6 generations in 10 minutes."""
    if len(recent) <= STORM_GENERATIONS:
        return None
    cause, times = Counter(record.why.cause for record in recent).most_common(1)[0]
    return Finding("storm", f"{len(recent)} rebalances in 10 minutes, {times} of them with the cause {cause}")


def _find_loop(recent: Records, _now: GroupNow) -> Finding | None:
    """A member joins, leaves or expires, and one with the same client id and host joins, in 10 minutes."""
    joined: set[str] = set()
    gone: set[tuple[str, str]] = set()
    for cause, member in _changes(recent):
        if cause in JOINED and member.lasting in gone:
            text = f"{who(member)} joins, leaves and joins again: look for restarts, or a poll loop that is too slow"
            return Finding("loop", text)
        if cause in JOINED:
            joined.add(member.member_id)
        elif cause in LEFT and member.member_id in joined:
            gone.add(member.lasting)
    return None


def _find_flapping(recent: Records, _now: GroupNow) -> Finding | None:
    """A partition has changed its owner more than 3 times in 10 minutes."""
    moves = (record.moves for record in recent if record.moves is not None)
    for (topic, number), times in Counter(label for each in moves for label in each.moved_partitions).most_common(1):
        if times > FLAPS:
            text = f"changed its owner {times} times in 10 minutes: an assignor that is sticky keeps them in place"
            return Finding("flapping", f"partition {short_host(topic)}-{number} {text}")
    return None


def _find_slow_member(recent: Records, _now: GroupNow) -> Finding | None:
    """In at least 3 of the last 5 rebalances the same member came last, a second or more after the one before."""
    last = Counter(
        record.members.late[0].member
        for record in recent[:SLOW_OF_RECORDS]
        if len(record.members.late) > 1 and record.members.late[0].after_ms - record.members.late[1].after_ms >= SLOW_MS
    )
    by_lasting = Counter[tuple[str, str]]()
    for member, times in last.items():
        by_lasting[member.lasting] += times
    for member in last:
        if by_lasting[member.lasting] >= SLOW_TIMES:
            times = by_lasting[member.lasting]
            text = f"{who(member)} came last in {times} of the last {len(recent[:SLOW_OF_RECORDS])} rebalances"
            return Finding("slow_member", f"{text}: its poll loop takes long, or its process has too little CPU")
    return None


def _find_zombie(recent: Records, now: GroupNow) -> Finding | None:
    """A session has expired in 10 minutes while its host had another member, which is alive still."""
    later: set[str] = set()
    for record in recent:
        later |= {member.member_id for member in record.members.joined.names}
        for cause, member in _changes([record]):
            alive = [other for other in now.members if _is_alive_beside(member, other, later)]
            if cause == "session_expired" and alive:
                text = f"{who(member)} expired, but {who(alive[0])} on the same host is alive"
                return Finding("zombie", f"{text}: the process hangs, or was killed without closing its consumer")
    return None


def _is_alive_beside(expired: MemberName, other: MemberName, later: set[str]) -> bool:
    is_other = other.member_id != expired.member_id and other.member_id not in later
    return is_other and other.client_host == expired.client_host


def _changes(records: Records) -> Iterator[Change]:
    """Who came and went, oldest first. Further causes of a rebalance are in the order of their times."""
    for record in reversed(records):
        if record.why.by is not None:
            yield Change(record.why.cause, record.why.by)
        for further in record.why.also:
            if further.member is not None:
                yield Change(further.cause, further.member)


Detector = Callable[[Records, GroupNow], Finding | None]

DETECTORS: Sequence[Detector] = (
    _find_conflict,
    _find_no_common_assignor,
    _find_missing_topic,
    _find_storm,
    _find_loop,
    _find_zombie,
    _find_slow_member,
    _find_flapping,
    _find_assignor_choice,
    _find_refused_commits,
    _find_expired_offsets,
    _find_lag_without_members,
    _find_offsets_that_expire,
    _find_idle_members,
)
"""The most severe first."""
