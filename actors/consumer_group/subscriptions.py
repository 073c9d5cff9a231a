"""The topics that members subscribe to: by name, and by the regular expressions that have been resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..steps import NAMES_PER_STEP, Steps, distinct, pieces, sorted_in_steps
from .records import MemberValue, RegexValue, Subscription
from .state import GroupState, Member


def topics_of(about: MemberValue, regexes: Mapping[str, RegexValue]) -> Steps[Sequence[str]]:
    """Of one member, sorted. A regular expression that has not been resolved yet matches nothing."""
    resolved = regexes.get(about.regex)
    if resolved is None or not resolved.topics:
        return about.topics
    if not about.topics:
        return resolved.topics
    names = yield from distinct((*about.topics, *resolved.topics))
    return tuple((yield from sorted_in_steps(names)))


def with_member(state: GroupState, member: Member) -> Mapping[Subscription, int]:
    """The number of members of each subscription after a heartbeat. A static member that is replaced is gone.

    It takes as long as there are different subscriptions, and no time for each member.
    """
    replaced = state.place_of(member)
    before = [state.members[member_id] for member_id in {replaced, member.member_id} if member_id in state.members]
    if [known.about.subscription for known in before] == [member.about.subscription]:
        return state.subscriptions
    counts = _without(state, before)
    counts[member.about.subscription] = counts.get(member.about.subscription, 0) + 1
    return counts


def without_members(state: GroupState, member_ids: Iterable[str]) -> Mapping[Subscription, int]:
    return _without(state, [state.members[member_id] for member_id in member_ids])


def _without(state: GroupState, members: Iterable[Member]) -> dict[Subscription, int]:
    counts = state.subscriptions.copy()
    for member in members:
        counts[member.about.subscription] -= 1
        if not counts[member.about.subscription]:
            del counts[member.about.subscription]
    return counts


def subscribed_topics(subscriptions: Iterable[Subscription], regexes: Mapping[str, RegexValue]) -> Steps[set[str]]:
    """Of all members. Regular expressions that no member has do not count."""
    names: set[str] = set()
    for topics, regex in subscriptions:
        for each in (topics, regexes[regex].topics if regex in regexes else ()):
            for piece in pieces(each, NAMES_PER_STEP):
                names.update(piece)
                yield
    return names


def subscribe_equally(subscriptions: Iterable[Subscription]) -> bool:
    """Whether all members name the same topics, or have one regular expression and name none.

    As in Kafka, names beside a regular expression make subscriptions different even if they are the same.
    """
    different = tuple(subscriptions)
    return not different or (len(different) == 1 and not all(different[0]))
