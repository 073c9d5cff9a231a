"""check_assignor accepts good assignors and finds what is wrong with others."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence

import pytest

from callboard.actors.assignors.base import MemberSubscription, TopicPartition
from callboard.actors.assignors.range_ import Range
from callboard.actors.assignors.server.base import GroupMember, GroupToAssign, Topic
from callboard.actors.assignors.server.table import SERVER_ASSIGNORS
from callboard.actors.assignors.sticky import Sticky
from callboard.runtime.testing.assignor_check import needless_moves
from callboard.testing import AssignorCheckFailed, check_assignor

Result = dict[str, list[TopicPartition]]


def by_name(assignor_name: str) -> Callable[[Mapping[str, int], Sequence[MemberSubscription]], Result]:
    """An assignor of the coordinator as a function."""

    def function(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
        topics = {name: Topic(name.encode().ljust(16), count) for name, count in partitions.items()}
        names = {topic.topic_id: name for name, topic in topics.items()}
        grouped = [GroupMember(member.member_id, sorted(member.topics), owned(member)) for member in members]
        target = SERVER_ASSIGNORS[assignor_name].assign(GroupToAssign.of_names(topics, grouped))
        return {
            member_id: [(names[topic_id], number) for topic_id, numbers in share.items() for number in numbers]
            for member_id, share in target.items()
        }

    return function


def owned(member: MemberSubscription) -> dict[bytes, list[int]]:
    numbers: dict[bytes, list[int]] = {}
    for topic, number in member.owned:
        numbers.setdefault(topic.encode().ljust(16), []).append(number)
    return numbers


def test_kafkas_assignors_pass() -> None:
    check_assignor(by_name("range"), examples=50)
    check_assignor(by_name("uniform"), examples=50)
    check_assignor(by_name("uniform"), examples=50, needless_moves_max=0, equal_topics=True)
    check_assignor(Range().assign, examples=50)


def test_the_bound_tells_sticky_assignors_from_others() -> None:
    with pytest.raises(AssignorCheckFailed, match=r"partitions moved needlessly after a change .*, more than 0"):
        check_assignor(by_name("range"), needless_moves_max=0, equal_topics=True)


def subscribers(topic: str, members: Sequence[MemberSubscription]) -> list[MemberSubscription]:
    return [member for member in members if topic in member.topics]


def deal(
    partitions: Mapping[str, int],
    members: Sequence[MemberSubscription],
    choose: Callable[[str, int, list[MemberSubscription]], MemberSubscription | None],
) -> Result:
    result: Result = {}
    for topic, count in partitions.items():
        for number in range(count if subscribers(topic, members) else 0):
            receiver = choose(topic, number, subscribers(topic, members))
            if receiver is not None:
                result.setdefault(receiver.member_id, []).append((topic, number))
    return result


def forgets_the_last(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
    return deal(partitions, members, lambda _topic, number, others: others[0] if number < 7 else None)


def takes_turns(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
    """Gives each partition to the subscriber after its owner."""

    def choose(topic: str, number: int, others: list[MemberSubscription]) -> MemberSubscription:
        owners = [index for index, member in enumerate(others) if (topic, number) in member.owned]
        return others[(owners[0] + 1) % len(others)] if owners else others[0]

    return deal(partitions, members, choose)


calls = itertools.count()


def counts_its_calls(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
    call = next(calls)
    return deal(partitions, members, lambda _topic, _number, others: others[call % len(others)])


def ignores_subscriptions(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
    return deal(partitions, members, lambda _topic, _number, _others: members[0])


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (forgets_the_last, r"not assigned: \('[tuv]', 7\)"),
        (ignores_subscriptions, "was given '[tuv]', which it does not subscribe to"),
        (takes_turns, "nothing has changed, but partitions moved"),
        (counts_its_calls, "the same arguments gave two results"),
    ],
)
def test_a_wrong_assignor_is_found(
    function: Callable[[Mapping[str, int], Sequence[MemberSubscription]], Result], problem: str
) -> None:
    with pytest.raises(AssignorCheckFailed, match=problem) as caught:
        check_assignor(function)
    assert "member: MemberSubscription(member_id='member-0'" in str(caught.value)


def test_members_have_what_the_caller_names() -> None:
    seen: set[tuple[str, str | None, float]] = set()

    def function(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
        seen.update((member.client_id, member.rack_id, member.weight) for member in members)
        return Sticky().assign(partitions, members)

    check_assignor(function, client_ids=["a"], rack_ids=["r"], weights=[1.0, 2.0], examples=20)
    assert seen == {("a", "r", 1.0), ("a", "r", 2.0)}


def test_needless_moves() -> None:
    """A member that keeps its number of partitions must not lose one; what a member must give away is not counted."""
    before = {("t", 0): "a", ("t", 1): "a", ("t", 2): "b", ("t", 3): "gone"}
    assert needless_moves(before, before, ["a", "b"]) == 0
    assert needless_moves(before, before | {("t", 1): "b", ("t", 3): "b"}, ["a", "b"]) == 0
    assert needless_moves(before, before | {("t", 1): "b", ("t", 2): "a", ("t", 3): "b"}, ["a", "b"]) == 2


def test_the_error_without_hypothesis_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'callboard\[hypothesis\]'"):
        check_assignor(by_name("range"))
