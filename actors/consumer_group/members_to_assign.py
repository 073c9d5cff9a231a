"""The members of a group as an assignor sees them, made when it looks at them.

For thousands of members this takes longer than an event loop should wait. An assignor of a large group runs in a
thread, and so does this then: it reads a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, overload

from ..assignors.server.base import GroupMember
from ..assignors.server.hash_order import timeline_bits, timeline_order
from ..steps import run_steps
from .records import MemberValue, Partition, RegexValue
from .state import NO_TARGET, GroupState, Member
from .subscriptions import topics_of


class Snapshot(NamedTuple):
    """What an assignment depends on. ``targets``: the last ones; no member changes these mappings later."""

    abouts: Mapping[str, MemberValue]
    targets: Mapping[str, tuple[Partition, ...]]
    regexes: Mapping[str, RegexValue]
    members_max: int


class MembersToAssign(Sequence[GroupMember]):
    """In the order of Kafka's table of members.

    Two are equal if the assignment of one is one of the other: which member asks makes no difference.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def __len__(self) -> int:
        return len(self.snapshot.abouts)

    @overload
    def __getitem__(self, index: int) -> GroupMember: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[GroupMember]: ...

    def __getitem__(self, index: int | slice) -> GroupMember | Sequence[GroupMember]:
        return self._members[index]

    def __iter__(self) -> Iterator[GroupMember]:
        return iter(self._members)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MembersToAssign) and self._compared == other._compared

    __hash__ = None  # type: ignore[assignment]

    @property
    def _compared(self) -> tuple[object, ...]:
        """The largest number of members grows when a member joins that has asked before."""
        abouts, targets, regexes, members_max = self.snapshot
        return timeline_bits(members_max), abouts, targets, regexes

    @cached_property
    def _members(self) -> list[GroupMember]:
        order = timeline_order(self.snapshot.abouts, self.snapshot.members_max)
        return [self._member(member_id) for member_id in order]

    def _member(self, member_id: str) -> GroupMember:
        about = self.snapshot.abouts[member_id]
        owned: dict[bytes, list[int]] = {}
        for topic_id, number in self.snapshot.targets.get(member_id, NO_TARGET):
            owned.setdefault(topic_id, []).append(number)
        topics = run_steps(topics_of(about, self.snapshot.regexes))
        return GroupMember(member_id, topics, owned, about.instance_id, about.rack_id, about.client_id)


def members_to_assign(state: GroupState, member: Member) -> MembersToAssign:
    """The members after the heartbeat of ``member``: a static one that it replaces is gone."""
    replaced = state.place_of(member)
    abouts = {known.member_id: known.about for known in state.members.values()}
    abouts[member.member_id] = member.about
    targets = state.targets.copy()
    if replaced != member.member_id:
        abouts.pop(replaced, None)
        targets[member.member_id] = state.target_of(member)
    return MembersToAssign(Snapshot(abouts, targets, state.regexes.copy(), state.seen.members_max))
