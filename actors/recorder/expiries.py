"""Expiries: which groups have lost offsets because they had expired. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from .record import NAME_CHARACTERS_MAX

GROUPS_MAX = 1000
"""The group that has lost offsets first is forgotten for the next."""

TOPICS_MAX = 5


class ExpiredOffsets(NamedTuple):
    """The last expiry of a group: when its last offset was deleted, since 1970, and of the first 5 topics.

    ``with_members``: the group had members, none of which read these topics. ``ended_group``: it had no offsets and no
    members left, so it was deleted too.
    """

    at_ms: int
    offset_count: int
    topics: tuple[str, ...]
    with_members: bool
    ended_group: bool


class Expiry(NamedTuple):
    """``is_complete``: no more of its offsets will be deleted."""

    expired: ExpiredOffsets
    is_complete: bool


class Expiries:
    """By group, since the process began. They outlive the group."""

    def __init__(self) -> None:
        self._by_group: OrderedDict[str, Expiry] = OrderedDict()

    def note(self, group_id: str, expired: ExpiredOffsets, *, is_last: bool) -> None:
        """Offsets were deleted. ``is_last``: the last ones of this expiry, which deletes many in several steps."""
        earlier = self._by_group.get(group_id)
        if earlier is not None and not earlier.is_complete:
            expired = expired._replace(
                offset_count=earlier.expired.offset_count + expired.offset_count,
                topics=tuple(dict.fromkeys((*earlier.expired.topics, *expired.topics))),
            )
        self._by_group[group_id] = Expiry(expired._replace(topics=_first(expired.topics)), is_last)
        self._by_group.move_to_end(group_id)
        if len(self._by_group) > GROUPS_MAX:
            self._by_group.popitem(last=False)

    def find(self, group_id: str) -> ExpiredOffsets | None:
        expiry = self._by_group.get(group_id)
        return None if expiry is None else expiry.expired


def _first(topics: Iterable[str]) -> tuple[str, ...]:
    return tuple(topic[:NAME_CHARACTERS_MAX] for topic in tuple(topics)[:TOPICS_MAX])
