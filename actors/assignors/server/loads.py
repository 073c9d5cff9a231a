"""The members that give and receive partitions when Kafka's ``uniform`` balances a group.

``members`` is the list of the subscribers of one topic, sorted by load; both sides share it, and ``loads`` too, which
changes while they work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class LeastLoaded:
    """Hands out the members with the lowest load in turn. ``level``: the load that all of them have at least."""

    def __init__(self, members: Sequence[int], loads: Sequence[int]) -> None:
        self._members = members
        self._loads = loads
        self._end = 0
        self._position = 0
        self.level = loads[members[0]] - 1

    def next(self) -> int:
        if self._position >= self._end:
            self._raise_level()
        member = self._members[self._position]
        self._position += 1
        return member

    def _raise_level(self) -> None:
        """After a turn everybody has one more, and so the members with that load join them."""
        self.level += 1
        while self._end < len(self._members) and self._loads[self._members[self._end]] == self.level:
            self._end += 1
        self._position = 0


class MostLoaded:
    """Hands out the members with the highest load in turn, from the last one backwards.

    Members without partitions of the topic are swapped to the end of the list, and no longer in the range of members.
    """

    def __init__(self, members: list[int], loads: Sequence[int]) -> None:
        self._members = members
        self._loads = loads
        self._start = len(members)
        self._end = len(members)
        self._position = len(members) - 1
        self.level = loads[members[-1]] + 1

    def next(self, numbers: Mapping[int, Sequence[int]]) -> int | None:
        """The next member with partitions in ``numbers``; None if there is none."""
        while (position := self._next_position()) >= 0:
            member = self._members[position]
            if numbers.get(member):
                return member
            self._exclude(position)
        return None

    def _next_position(self) -> int:
        if self._position < self._start:
            self._lower_level()
        position = self._position
        self._position -= position >= 0
        return position

    def _lower_level(self) -> None:
        is_empty = self._end <= self._start and self._start > 0
        self.level = self._loads[self._members[self._start - 1]] if is_empty else self.level - 1
        while self._start > 0 and self._loads[self._members[self._start - 1]] == self.level:
            self._start -= 1
        self._position = self._end - 1

    def _exclude(self, position: int) -> None:
        self._end -= 1
        members = self._members
        members[position], members[self._end] = members[self._end], members[position]
