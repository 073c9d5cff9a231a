"""One's own function as an assignor: its results are checked, and whatever it does the group gets its assignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest
from assignor_helpers import Group, all_of, given, member

from callboard.runtime.member.assignors.base import Assignor, MemberState, MemberSubscription, TopicPartition
from callboard.runtime.member.assignors.custom import FunctionAssignor, InvalidAssignment
from callboard.runtime.member.assignors.fallback import assign_with_fallback
from callboard.runtime.member.assignors.range_ import Range
from callboard.runtime.member.assignors.round_robin import RoundRobin
from callboard.runtime.member.assignors.user_data import read_weight

PARTITIONS = {"t": 3, "u": 1}
MEMBERS = [member("a", ["t", "u"]), member("b", ["t"])]

Result = Mapping[str, Iterable[TopicPartition]]


def backwards(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
    """All to the last member who wants it."""
    found: dict[str, list[TopicPartition]] = {}
    for topic, number in all_of(partitions):
        last = [one.member_id for one in members if topic in one.topics][-1]
        found.setdefault(last, []).append((topic, number))
    return found


def returning(result: object) -> Assignor:
    def function(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
        return result  # type: ignore[return-value]

    return FunctionAssignor("mine", function, cooperative=False)


def test_a_function_says_who_gets_what() -> None:
    mine = FunctionAssignor("last-takes-all", backwards)
    assert (mine.name, mine.is_cooperative) == ("last-takes-all", True)
    assert mine.assign(PARTITIONS, MEMBERS) == {"a": [("u", 0)], "b": [("t", 0), ("t", 1), ("t", 2)]}


def test_a_function_sees_members_in_order_with_weights_and_what_they_hold() -> None:
    seen: list[MemberSubscription] = []

    def function(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
        seen.extend(members)
        return {members[0].member_id: all_of(partitions)}

    mine = FunctionAssignor("mine", function)
    assert read_weight(mine.metadata(MemberState(frozenset("t"), weight=3.0)) or b"") == 3.0
    members = [member("b", ["t"], [("t", 1)], 4, weight=3.0), member("a", ["t"]), member("z", ["t"], instance="i")]
    mine.assign({"t": 2}, members)
    assert seen == [members[2], members[1], members[0]]


def test_what_a_function_does_to_its_arguments_stays_with_it() -> None:
    def function(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
        partitions.clear()  # type: ignore[attr-defined]
        return {"a": [("t", 0), ("t", 1), ("t", 2), ("u", 0)]}

    partitions = dict(PARTITIONS)
    assert given(FunctionAssignor("mine", function).assign(partitions, MEMBERS)) == all_of(PARTITIONS)
    assert partitions == PARTITIONS


@pytest.mark.parametrize("shares", [iter, set, tuple])
def test_shares_may_come_in_any_collection(shares: type) -> None:
    result = {"a": shares([("t", 2), ("u", 0), ("t", 0), ("t", 1)])}
    assert returning(result).assign(PARTITIONS, MEMBERS) == {"a": all_of(PARTITIONS), "b": []}


def test_a_cooperative_function_gives_nothing_that_another_still_holds() -> None:
    group = Group(FunctionAssignor("last-takes-all", backwards), {"t": 2})
    group.join("a", ["t"])
    assert group.rebalance() == {"a": [("t", 0), ("t", 1)]}
    group.join("b", ["t"])
    assert group.rebalance() == {"a": [], "b": []}
    assert group.rebalance() == {"a": [], "b": [("t", 0), ("t", 1)]}


def test_an_eager_function_gives_all_at_once() -> None:
    group = Group(FunctionAssignor("last-takes-all", backwards, cooperative=False), {"t": 2})
    group.join("a", ["t"])
    group.rebalance()
    group.join("b", ["t"])
    assert group.rebalance() == {"a": [], "b": [("t", 0), ("t", 1)]}


ALL = [("t", 0), ("t", 1), ("t", 2), ("u", 0)]


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (None, "the function returned None; expected a dict of member id to partitions"),
        ([("a", ALL)], r"the function returned \[.*; expected a dict"),
        ({"a": ALL, "c": []}, "there is no member 'c'; the members are 'a', 'b'"),
        ({"a": "t"}, r"a was given 't'; expected a list of \(topic, partition\)"),
        ({"a": None}, r"a was given None; expected a list"),
        ({"a": {"t": [0]}}, r"a was given \{'t': \[0\]\}; expected a list"),
        ({"a": ["t"]}, r"a was given 't'; expected \(topic, partition\) that exists"),
        ({"a": [("t", 3)]}, r"a was given \('t', 3\); expected \(topic, partition\) that exists"),
        ({"a": [("t", -1)]}, r"a was given \('t', -1\)"),
        ({"a": [("v", 0)]}, r"a was given \('v', 0\)"),
        ({"a": ALL[:3], "b": [("u", 0)]}, "b was given 'u', which it does not subscribe to"),
        ({"a": ALL, "b": ALL[:1]}, r"assigned more than once: \('t', 0\)$"),
        ({"a": [*ALL, ("u", 0)]}, r"assigned more than once: \('u', 0\)$"),
        ({"a": ALL[1:]}, r"not assigned: \('t', 0\)$"),
        ({}, r"not assigned: \('t', 0\), \('t', 1\), \('t', 2\), \('u', 0\)$"),
    ],
)
def test_what_is_no_assignment_is_said_in_words(result: object, problem: str) -> None:
    with pytest.raises(InvalidAssignment, match=problem):
        returning(result).assign(PARTITIONS, MEMBERS)


def test_of_many_mistakes_a_few_are_named() -> None:
    with pytest.raises(InvalidAssignment, match=r"not assigned: \('t', 0\), .*\('t', 4\) and 9995 more$"):
        returning({}).assign({"t": 10_000}, [member("a", "t")])


@pytest.mark.parametrize("name", ["", "range", "cooperative-sticky", "weighted", "callboard-mine"])
def test_a_name_must_stand_for_the_function_alone(name: str) -> None:
    with pytest.raises(ValueError, match=f"cannot have the name '{name}'"):
        FunctionAssignor(name, backwards)


# --- the leader does not fail ---


def failing(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
    raise ZeroDivisionError("no machines")


def test_an_assignor_that_works_is_heard() -> None:
    assert assign_with_fallback(Range(), PARTITIONS, MEMBERS) == (Range().assign(PARTITIONS, MEMBERS), None)


@pytest.mark.parametrize(
    ("assignor", "words"),
    [
        (FunctionAssignor("mine", failing, cooperative=False), "ZeroDivisionError: no machines"),
        (returning({}), "InvalidAssignment: not assigned"),
    ],
)
def test_round_robin_stands_in(assignor: Assignor, words: str) -> None:
    result, problem = assign_with_fallback(assignor, PARTITIONS, MEMBERS)
    assert result == RoundRobin().assign(PARTITIONS, MEMBERS)
    assert problem is not None
    assert problem.startswith("assignor mine failed, using round robin: " + words)


def test_what_stands_in_is_cooperative_if_the_members_are() -> None:
    mine = FunctionAssignor("mine", failing)
    holds = [member("a", "t", [("t", 0), ("t", 1)], 3), member("b", "t")]
    assert assign_with_fallback(mine, {"t": 2}, holds)[0] == {"a": [("t", 0)], "b": []}
    let_go = [member("a", "t", [("t", 0)], 4), member("b", "t", generation=4)]
    assert assign_with_fallback(mine, {"t": 2}, let_go)[0] == {"a": [("t", 0)], "b": [("t", 1)]}
