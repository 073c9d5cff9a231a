"""Functions as assignors of the coordinator: what they see, the check of their result, and where they are found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint

import pytest

from callboard.actors.assignors.base import AssignFunction, MemberSubscription
from callboard.actors.assignors.server.base import (
    AssignmentFailed,
    GroupMember,
    GroupToAssign,
    ServerAssignor,
    Topic,
)
from callboard.actors.assignors.server.function import ServerFunction
from callboard.actors.errors import ErrorCode
from callboard.runtime.cli.serve import server_environment
from callboard.runtime.common.errors import StartError
from callboard.runtime.node import server_assignors
from callboard.runtime.node.server_assignors import ENTRY_POINTS, load_entry_points, make_server_assignors
from callboard.runtime.settings.table import Options, Settings

T, U, GONE = b"t" * 16, b"u" * 16, b"g" * 16
TOPICS = {"t": Topic(T, 2), "u": Topic(U, 1)}
MEMBERS = [
    GroupMember("b", ["t", "u"], {GONE: [0], U: [0], T: [1, 0]}, rack_id="r", client_id="c"),
    GroupMember("a", ["t", "absent"]),
    GroupMember("z", ["t"], instance_id="i"),
]
GROUP = GroupToAssign.of_names(TOPICS, MEMBERS)

Result = dict[str, list[tuple[str, int]]]


def all_to_owner(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
    return {member.member_id: list(member.owned) for member in members}


def test_a_function_sees_names_and_returns_names() -> None:
    seen: list[object] = []

    def function(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
        seen.append((partitions, members))
        return all_to_owner(partitions, members)

    assert ServerFunction("mine", function).assign(GROUP) == {"z": {}, "a": {}, "b": {T: [0, 1], U: [0]}}
    owned = (("t", 0), ("t", 1), ("u", 0))
    assert seen == [
        (
            {"t": 2, "u": 1},
            (
                MemberSubscription("z", "i", frozenset("t")),
                MemberSubscription("a", None, frozenset(["t", "absent"])),
                MemberSubscription("b", None, frozenset("tu"), owned, rack_id="r", client_id="c"),
            ),
        )
    ]


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ({"b": [("t", 0), ("t", 1), ("u", 0)], "x": []}, "there is no member 'x'; the members are 'a', 'b', 'z'"),
        ({"b": [("t", 0), ("t", 1), ("u", 0), ("t", 2)]}, r"b was given \('t', 2\); expected .* that exists"),
        ({"b": [("t", 0), ("t", 1), ("u", 0)], "a": [("t", 1)]}, r"assigned more than once: \('t', 1\)"),
        ({"b": [("t", 0), ("t", 1)], "a": [("u", 0)]}, "a was given 'u', which it does not subscribe to"),
        ({"b": [("t", 0), ("u", 0)]}, r"not assigned: \('t', 1\)"),
        (None, "the function returned None; expected a dict of member id to partitions"),
    ],
)
def test_a_wrong_result_is_refused(result: object, problem: str) -> None:
    with pytest.raises(AssignmentFailed, match=f"assignor mine: {problem}") as caught:
        ServerFunction("mine", lambda _partitions, _members: result).assign(GROUP)  # type: ignore[arg-type,return-value]
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_function_that_raises_is_named() -> None:
    def function(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Result:
        raise KeyError("no such rack")

    with pytest.raises(AssignmentFailed, match="assignor mine failed: KeyError: 'no such rack'"):
        ServerFunction("mine", function).assign(GROUP)


def make(functions: Mapping[str, AssignFunction], named: str = "uniform,range") -> dict[str, ServerAssignor]:
    return make_server_assignors(functions, named, in_background=False)


def test_kafkas_assignors_come_first() -> None:
    assignors = make({"mine": all_to_owner})
    assert list(assignors) == ["uniform", "range", "mine"]
    assert {name: assignor.name for name, assignor in assignors.items()} == {name: name for name in assignors}


@pytest.mark.parametrize(
    ("named", "names"),
    [
        ("range", ["range", "mine"]),
        ("mine, uniform", ["mine", "uniform"]),
    ],
)
def test_the_setting_says_which_assignor_is_the_default(named: str, names: list[str]) -> None:
    assert list(make({"mine": all_to_owner}, named)) == names


def test_a_setting_with_an_unknown_assignor_is_refused() -> None:
    with pytest.raises(StartError, match="there is no assignor 'other'; expected names of uniform, range, mine"):
        make({"mine": all_to_owner}, "uniform,other")


@pytest.mark.parametrize("name", ["uniform", "", " ", "a,b", " mine", 5])
def test_a_name_that_cannot_be_used(name: str) -> None:
    with pytest.raises(StartError, match=f"cannot have the name {name!r}; expected a text"):
        make({name: all_to_owner})


def test_a_function_that_cannot_be_called() -> None:
    with pytest.raises(StartError, match="assignor 'mine': 5 is not callable"):
        make({"mine": 5})  # type: ignore[dict-item]


def entry_point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, ENTRY_POINTS)


def test_entry_points_are_loaded() -> None:
    point = entry_point("mine", f"{__name__}:all_to_owner")
    assert load_entry_points([point]) == {"mine": all_to_owner}


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("mine", "no_such_module:f", "mine = no_such_module:f cannot be used: ModuleNotFoundError"),
        ("mine", "json:no_such_function", "mine = json:no_such_function cannot be used: AttributeError"),
        ("mine", "json:__name__", "cannot be used: StartError: assignor 'mine': 'json' is not callable"),
        ("range", "json:dumps", "cannot be used: StartError: an assignor cannot have the name 'range'"),
    ],
)
def test_an_entry_point_that_cannot_be_used_is_named(name: str, value: str, problem: str) -> None:
    with pytest.raises(StartError, match=problem):
        load_entry_points([entry_point(name, value)])


def test_a_server_has_the_assignors_of_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [entry_point("mine", f"{__name__}:all_to_owner")]
    monkeypatch.setattr(server_assignors, "entry_points", lambda group: points if group == ENTRY_POINTS else [])
    environment = server_environment(Settings(), Options(), {}, lambda _error: None)
    assert environment.assignors == {"mine": all_to_owner}


def test_two_entry_points_with_one_name() -> None:
    points = [entry_point("mine", "json:dumps"), entry_point("mine", "json:loads")]
    with pytest.raises(StartError, match=r"two installed packages offer .* json:loads is the second"):
        load_entry_points(points)
