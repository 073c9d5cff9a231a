"""FunctionAssignor checks the results of its function; if it fails, the leader falls back to round robin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest
from assignor_helpers import AssignorGroup, assigned_partitions, member, partitions_of

from callboard.actors.assignors.base import Assignor, MemberState, MemberSubscription, TopicPartition
from callboard.actors.assignors.custom import FunctionAssignor, InvalidAssignment
from callboard.actors.assignors.fallback import assign_with_fallback
from callboard.actors.assignors.range_ import Range
from callboard.actors.assignors.round_robin import RoundRobin
from callboard.actors.assignors.user_data import read_weight

PARTITIONS = {"t": 3, "u": 1}
MEMBERS = [member("a", ["t", "u"]), member("b", ["t"])]

Result = Mapping[str, Iterable[TopicPartition]]


def all_to_last_member(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
    """Assign all partitions of a topic to its last subscriber."""
    assignment: dict[str, list[TopicPartition]] = {}
    for topic, number in partitions_of(partitions):
        last = [member.member_id for member in members if topic in member.topics][-1]
        assignment.setdefault(last, []).append((topic, number))
    return assignment


def assignor_that_returns(result: object) -> Assignor:
    def function(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
        return result  # type: ignore[return-value]

    return FunctionAssignor("mine", function, cooperative=False)


def test_function_assignor_returns_the_assignment_of_its_function() -> None:
    mine = FunctionAssignor("last-takes-all", all_to_last_member)
    assert (mine.name, mine.is_cooperative) == ("last-takes-all", True)
    assert mine.assign(PARTITIONS, MEMBERS) == {"a": [("u", 0)], "b": [("t", 0), ("t", 1), ("t", 2)]}


def test_function_gets_members_sorted_with_weights_and_owned_partitions() -> None:
    seen: list[MemberSubscription] = []

    def function(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
        seen.extend(members)
        return {members[0].member_id: partitions_of(partitions)}

    mine = FunctionAssignor("mine", function)
    assert read_weight(mine.metadata(MemberState(frozenset("t"), weight=3.0)) or b"") == 3.0
    members = [member("b", ["t"], [("t", 1)], 4, weight=3.0), member("a", ["t"]), member("z", ["t"], instance="i")]
    mine.assign({"t": 2}, members)
    assert seen == [members[2], members[1], members[0]]


def test_function_that_changes_its_arguments_does_not_change_the_callers() -> None:
    def function(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
        partitions.clear()  # type: ignore[attr-defined]
        return {"a": [("t", 0), ("t", 1), ("t", 2), ("u", 0)]}

    partitions = dict(PARTITIONS)
    assert assigned_partitions(FunctionAssignor("mine", function).assign(partitions, MEMBERS)) == partitions_of(
        PARTITIONS
    )
    assert partitions == PARTITIONS


@pytest.mark.parametrize("shares", [iter, set, tuple])
def test_function_may_return_any_iterable_of_partitions(shares: type) -> None:
    result = {"a": shares([("t", 2), ("u", 0), ("t", 0), ("t", 1)])}
    assert assignor_that_returns(result).assign(PARTITIONS, MEMBERS) == {"a": partitions_of(PARTITIONS), "b": []}


def test_cooperative_function_assigns_no_partition_that_another_member_owns() -> None:
    group = AssignorGroup(FunctionAssignor("last-takes-all", all_to_last_member), {"t": 2})
    group.join("a", ["t"])
    assert group.rebalance() == {"a": [("t", 0), ("t", 1)]}
    group.join("b", ["t"])
    assert group.rebalance() == {"a": [], "b": []}
    assert group.rebalance() == {"a": [], "b": [("t", 0), ("t", 1)]}


def test_eager_function_moves_partitions_in_one_generation() -> None:
    group = AssignorGroup(FunctionAssignor("last-takes-all", all_to_last_member, cooperative=False), {"t": 2})
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
def test_invalid_function_result_raises_invalid_assignment(result: object, problem: str) -> None:
    with pytest.raises(InvalidAssignment, match=problem):
        assignor_that_returns(result).assign(PARTITIONS, MEMBERS)


def test_invalid_assignment_lists_at_most_five_partitions() -> None:
    with pytest.raises(InvalidAssignment, match=r"not assigned: \('t', 0\), .*\('t', 4\) and 9995 more$"):
        assignor_that_returns({}).assign({"t": 10_000}, [member("a", "t")])


@pytest.mark.parametrize("name", ["", "range", "cooperative-sticky", "weighted", "callboard-mine"])
def test_function_assignor_with_reserved_name_raises_value_error(name: str) -> None:
    with pytest.raises(ValueError, match=f"cannot have the name '{name}'"):
        FunctionAssignor(name, all_to_last_member)


# --- fallback ---


def failing_function(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
    raise ZeroDivisionError("no machines")


def test_assign_with_fallback_returns_the_assignors_result() -> None:
    assert assign_with_fallback(Range(), PARTITIONS, MEMBERS) == (Range().assign(PARTITIONS, MEMBERS), None)


@pytest.mark.parametrize(
    ("assignor", "error"),
    [
        (FunctionAssignor("mine", failing_function, cooperative=False), "ZeroDivisionError: no machines"),
        (assignor_that_returns({}), "InvalidAssignment: not assigned"),
    ],
)
def test_assign_with_fallback_uses_round_robin_if_the_assignor_fails(assignor: Assignor, error: str) -> None:
    result, problem = assign_with_fallback(assignor, PARTITIONS, MEMBERS)
    assert result == RoundRobin().assign(PARTITIONS, MEMBERS)
    assert problem is not None
    assert problem.startswith("assignor mine failed, using round robin: " + error)


def test_fallback_for_a_cooperative_assignor_withholds_owned_partitions() -> None:
    mine = FunctionAssignor("mine", failing_function)
    before = [member("a", "t", [("t", 0), ("t", 1)], 3), member("b", "t")]
    assert assign_with_fallback(mine, {"t": 2}, before)[0] == {"a": [("t", 0)], "b": []}
    after_revoke = [member("a", "t", [("t", 0)], 4), member("b", "t", generation=4)]
    assert assign_with_fallback(mine, {"t": 2}, after_revoke)[0] == {"a": [("t", 0)], "b": [("t", 1)]}
