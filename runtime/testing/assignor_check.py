"""Checks that a function is a usable assignor, on many made-up groups. Needs hypothesis.

A group has members that subscribe to some of its topics. It is assigned twice, the second time with the partitions that
the first assignment gave. Then one thing changes: a member joins or leaves, or a topic gets more partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...actors.assignors.base import AssignFunction, MemberSubscription, TopicPartition
from ...actors.assignors.custom import InvalidAssignment, check_result
from ...actors.assignors.order import sort_members

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

TOPICS = ("t", "u", "v")
MEMBERS_MAX = 6
PARTITIONS_MAX = 8

Owners = dict[TopicPartition, str]


class AssignorCheckFailed(AssertionError):
    """The function is no usable assignor. The text has the group and what is wrong with its assignment."""


class MadeUpGroup(NamedTuple):
    """``partitions``: the number of partitions of each topic. ``change``: the kind of the change and its place."""

    partitions: dict[str, int]
    members: list[MemberSubscription]
    newcomer: MemberSubscription
    change: tuple[str, int]


def check_assignor(
    function: AssignFunction,
    *,
    needless_moves_max: int | None = None,
    examples: int = 200,
    client_ids: Sequence[str] = ("", "consumer-1"),
    rack_ids: Sequence[str | None] = (None, "a", "b"),
    weights: Sequence[float] = (1.0,),
    equal_topics: bool = False,
) -> None:
    """Check ``function(partitions, members)`` with ``examples`` groups. The groups are the same in each run.

    Checked: it assigns every partition that has subscribers to one of them; the same arguments give the same result;
    members that own the result of the last assignment keep it while nothing changes. With ``needless_moves_max``, after
    one change at most so many partitions move that need not: a member must give away only as many as it then has less.

    ``client_ids``, ``rack_ids`` and ``weights``: what the members of a group may have. ``equal_topics``: all members of
    a group subscribe to the same topics.

    Raises AssignorCheckFailed with the smallest group that was found.
    """
    try:
        from hypothesis import HealthCheck, given, settings
    except ModuleNotFoundError:
        raise ModuleNotFoundError("check_assignor needs hypothesis: pip install 'callboard[hypothesis]'") from None
    groups = _groups(_attributes(client_ids, rack_ids, weights), equal_topics)

    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=tuple(HealthCheck)
    )
    @given(groups)
    def check(group: MadeUpGroup) -> None:
        _check_group(function, group, needless_moves_max)

    check()


# Groups --------------------------------------------------------------------------------------------------------------


def _attributes(
    client_ids: Sequence[str], rack_ids: Sequence[str | None], weights: Sequence[float]
) -> SearchStrategy[tuple[bool, str | None, str, float]]:
    """Of a member: whether it is static, its rack, client id and weight."""
    from hypothesis import strategies

    attributes = (rack_ids, client_ids, weights)
    return strategies.tuples(strategies.booleans(), *map(strategies.sampled_from, attributes))


def _groups(attributes: SearchStrategy[Any], equal_topics: bool) -> SearchStrategy[MadeUpGroup]:
    from hypothesis import strategies

    numbers = strategies.integers(1, PARTITIONS_MAX)
    partitions = strategies.dictionaries(strategies.sampled_from(TOPICS), numbers, min_size=1)
    topics = strategies.frozensets(strategies.sampled_from(TOPICS), min_size=1)
    changes = strategies.tuples(strategies.sampled_from(("join", "leave", "grow")), strategies.integers(0, MEMBERS_MAX))
    members = strategies.lists(strategies.tuples(topics, attributes), min_size=2, max_size=MEMBERS_MAX + 1)

    def group(
        partitions: dict[str, int], drawn: list[tuple[frozenset[str], Any]], change: tuple[str, int]
    ) -> MadeUpGroup:
        common = drawn[0][0]
        made = [
            _member(number, common if equal_topics else topics, attributes)
            for number, (topics, attributes) in enumerate(drawn)
        ]
        return MadeUpGroup(partitions, made[:-1], made[-1], change)

    return strategies.builds(group, partitions, members, changes)


def _member(number: int, topics: frozenset[str], attributes: tuple[bool, str | None, str, float]) -> MemberSubscription:
    is_static, rack_id, client_id, weight = attributes
    instance_id = f"instance-{number}" if is_static else None
    return MemberSubscription(
        f"member-{number}", instance_id, topics, rack_id=rack_id, client_id=client_id, weight=weight
    )


def _change(group: MadeUpGroup) -> tuple[dict[str, int], list[MemberSubscription]]:
    return _CHANGES[group.change[0]](group)


def _join(group: MadeUpGroup) -> tuple[dict[str, int], list[MemberSubscription]]:
    return group.partitions, [*group.members, group.newcomer]


def _leave(group: MadeUpGroup) -> tuple[dict[str, int], list[MemberSubscription]]:
    gone = group.change[1] % len(group.members)
    return group.partitions, [member for number, member in enumerate(group.members) if number != gone]


def _grow(group: MadeUpGroup) -> tuple[dict[str, int], list[MemberSubscription]]:
    grown = sorted(group.partitions)[group.change[1] % len(group.partitions)]
    return {**group.partitions, grown: group.partitions[grown] + 1 + group.change[1]}, group.members


_CHANGES: dict[str, Callable[[MadeUpGroup], tuple[dict[str, int], list[MemberSubscription]]]] = {
    "join": _join,
    "leave": _leave,
    "grow": _grow,
}


# Checks --------------------------------------------------------------------------------------------------------------


def _check_group(function: AssignFunction, group: MadeUpGroup, needless_moves_max: int | None) -> None:
    first = _assign(function, group.partitions, group.members)
    again = _assign(function, group.partitions, group.members)
    if again != first:
        _fail("the same arguments gave two results", group.partitions, group.members, first, again)
    members = _owning(group.members, first)
    kept = _assign(function, group.partitions, members)
    if kept != first:
        _fail("nothing has changed, but partitions moved", group.partitions, members, first, kept)
    if needless_moves_max is not None:
        _check_moves(function, group._replace(members=members), first, needless_moves_max)


def _check_moves(function: AssignFunction, group: MadeUpGroup, before: Owners, needless_moves_max: int) -> None:
    partitions, members = _change(group)
    after = _assign(function, partitions, members)
    needless = needless_moves(before, after, [member.member_id for member in members])
    if needless > needless_moves_max:
        problem = f"{needless} partitions moved needlessly after a change ({group.change[0]})"
        _fail(f"{problem}, more than {needless_moves_max}", partitions, members, before, after)


def needless_moves(before: Owners, after: Owners, member_ids: Sequence[str]) -> int:
    """The partitions that members lost beyond what each of them must lose to have as few as it has after the change."""
    sizes_before, sizes_after = Counter(before.values()), Counter(after.values())
    lost = Counter(owner for partition, owner in before.items() if after.get(partition) != owner)
    return sum(lost[name] - max(sizes_before[name] - sizes_after[name], 0) for name in member_ids)


def _assign(function: AssignFunction, partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Owners:
    ordered = sort_members(members)
    result = function(dict(partitions), tuple(ordered))
    try:
        shares = check_result(result, partitions, ordered)
    except InvalidAssignment as error:
        raise AssignorCheckFailed(f"{error}\n{_described(partitions, ordered)}\nresult: {result}") from None
    return {partition: member.member_id for member, share in zip(ordered, shares, strict=True) for partition in share}


def _owning(members: Sequence[MemberSubscription], owners: Owners) -> list[MemberSubscription]:
    owned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for partition, owner in sorted(owners.items()):
        owned[owner].append(partition)
    return [member._replace(owned=tuple(owned[member.member_id])) for member in members]


def _fail(
    problem: str,
    partitions: Mapping[str, int],
    members: Sequence[MemberSubscription],
    before: Owners,
    after: Owners,
) -> None:
    moved = [
        f"{topic}-{number}: {before.get((topic, number), 'nobody')} -> {after.get((topic, number), 'nobody')}"
        for topic, number in sorted(before.keys() | after.keys())
        if before.get((topic, number)) != after.get((topic, number))
    ]
    raise AssignorCheckFailed(f"{problem}\n{_described(partitions, members)}\nmoved: {', '.join(moved)}")


def _described(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> str:
    lines = [f"partitions: {dict(partitions)}", *(f"member: {member}" for member in members)]
    return "\n".join(lines)
