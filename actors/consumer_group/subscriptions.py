"""The topics that members subscribe to: by name, and by the regular expressions that have been resolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from .records import MemberValue, RegexValue
from .state import Member


def topics_of(about: MemberValue, regexes: Mapping[str, RegexValue]) -> Sequence[str]:
    """Of one member, sorted. A regular expression that has not been resolved yet matches nothing."""
    resolved = regexes.get(about.regex)
    if resolved is None or not resolved.topics:
        return about.topics
    return tuple(sorted({*about.topics, *resolved.topics})) if about.topics else resolved.topics


def subscribed_topics(members: Mapping[str, Member], regexes: Mapping[str, RegexValue]) -> set[str]:
    """Of all members. Regular expressions that no member has do not count."""
    names = set(chain.from_iterable(member.about.topics for member in members.values()))
    for regex in {member.about.regex for member in members.values()} & regexes.keys():
        names.update(regexes[regex].topics)
    return names


def subscribe_equally(members: Mapping[str, Member]) -> bool:
    """Whether all members name the same topics, or have one regular expression and name none.

    As in Kafka, names beside a regular expression make subscriptions different even if they are the same.
    """
    names = {member.about.topics for member in members.values()}
    regexes = {member.about.regex for member in members.values()}
    return len(names) <= 1 and len(regexes) <= 1 and (regexes <= {""} or names <= {()})
