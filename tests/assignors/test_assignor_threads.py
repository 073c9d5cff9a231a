"""Functions as assignors run in a thread, one group after the other, and their errors are logged once."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import pytest
from consumer_group.group_world import Topics, World

from callboard.actors.assignors.base import MemberSubscription, TopicPartition
from callboard.actors.assignors.server.base import (
    AssignmentFailed,
    AssignmentPending,
    GroupMember,
    GroupToAssign,
    TargetAssignment,
    Topic,
)
from callboard.actors.assignors.server.function import ServerFunction
from callboard.actors.assignors.server.table import SERVER_ASSIGNORS
from callboard.actors.consumer_group.target import ASK_AGAIN_MS
from callboard.runtime.node.assignor_thread import (
    JOBS_MAX,
    LOOP_MAX_US,
    MEMBER_US,
    PARTITION_US,
    SUBSCRIPTION_US,
    BackgroundAssignor,
    LargeInBackground,
    as_server_assignor,
    estimated_us,
)
from callboard.runtime.node.server_assignors import make_server_assignors

T = b"t" * 16
TARGET = {"a": {T: [0, 1]}}
FOREVER_S = 60.0

Shares = dict[str, list[TopicPartition]]


def group(group_id: str = "g", partitions: int = 2) -> GroupToAssign:
    return GroupToAssign({"t": Topic(T, partitions)}, [GroupMember("a", ["t"])], True, group_id)


def all_to_first(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Shares:
    return {members[0].member_id: [("t", number) for number in range(partitions["t"])]}


class Gate:
    """A function that works until it is released. ``calls``: the partitions of each call."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.entered = threading.Semaphore(0)
        self._released = threading.Semaphore(0)

    def release(self) -> None:
        self._released.release()

    def __call__(self, partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Shares:
        self.calls.append(partitions["t"])
        self.entered.release()
        assert self._released.acquire(timeout=FOREVER_S)
        return all_to_first(partitions, members)


def background(function: object, wait_s: float = 0, name: str = "mine") -> BackgroundAssignor:
    return BackgroundAssignor(ServerFunction(name, function), wait_s)  # type: ignore[arg-type]


def wait_for_last(assignor: BackgroundAssignor) -> None:
    assert assignor._last is not None and assignor._last.done.wait(FOREVER_S)


def test_a_fast_function_answers_at_once() -> None:
    assert background(all_to_first, FOREVER_S).assign(group()) == TARGET


def test_a_slow_function_runs_once_and_is_asked_for_again() -> None:
    gate = Gate()
    assignor = background(gate)
    for _ in range(3):
        with pytest.raises(AssignmentPending):
            assignor.assign(group())
    gate.release()
    wait_for_last(assignor)
    assert assignor.assign(group()) == TARGET
    assert gate.calls == [2]


def test_the_result_for_a_group_that_has_changed_is_not_used() -> None:
    gate = Gate()
    assignor = background(gate)
    for partitions in (2, 3, 4):
        with pytest.raises(AssignmentPending):
            assignor.assign(group(partitions=partitions))
        if partitions == 2:
            assert gate.entered.acquire(timeout=FOREVER_S)
    gate.release()
    gate.release()
    wait_for_last(assignor)
    assert assignor.assign(group(partitions=4)) == {"a": {T: [0, 1, 2, 3]}}
    assert gate.calls == [2, 4], "the one in between was never begun"


def test_groups_are_assigned_one_after_the_other_without_waiting() -> None:
    """The event loop waits for a function only if the thread has nothing else to do."""
    gate = Gate()
    assignor = background(gate)
    with pytest.raises(AssignmentPending):
        assignor.assign(group("g"))
    assignor._wait_s = FOREVER_S
    with pytest.raises(AssignmentPending):
        assignor.assign(group("h"))
    assert gate.entered.acquire(timeout=FOREVER_S)
    assert len(gate.calls) == 1
    gate.release()
    gate.release()
    wait_for_last(assignor)
    assert [assignor.assign(group(name)) for name in "gh"] == [TARGET] * 2


def test_assignments_that_nobody_asks_for_are_dropped() -> None:
    assignor = background(all_to_first)
    for number in range(JOBS_MAX + 5):
        try:
            assignor.assign(group(f"g{number}"))
        except AssignmentPending:
            continue
    assert len(assignor._jobs) <= JOBS_MAX


@pytest.mark.parametrize("error", [ValueError("no rack"), SystemExit("no rack")])
def test_an_error_is_raised_to_the_group_and_the_thread_goes_on(error: BaseException) -> None:
    def function(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Shares:
        if partitions["t"] == 2:
            raise error
        return all_to_first(partitions, members)

    assignor = background(function, FOREVER_S)
    with pytest.raises(AssignmentFailed, match=f"assignor mine failed: {type(error).__name__}: no rack"):
        assignor.assign(group())
    assert assignor.assign(group(partitions=1)) == {"a": {T: [0]}}


def test_the_thread_ends_with_the_assignor() -> None:
    assignor = background(all_to_first, FOREVER_S, "short-lived")
    assignor.assign(group())
    [thread] = [each for each in threading.enumerate() if each.name == "callboard-assignor-short-lived"]
    assert thread.daemon
    del assignor
    thread.join(FOREVER_S)
    assert not thread.is_alive()


def test_an_error_is_logged_once_with_the_function(caplog: pytest.LogCaptureFixture) -> None:
    problems = ["no rack", "no rack", "no zone"]

    def by_rack(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Shares:
        if problems:
            raise KeyError(problems.pop(0))
        return all_to_first(partitions, members)

    assignor = as_server_assignor("mine", by_rack, in_background=False)
    for _ in range(3):
        with pytest.raises(AssignmentFailed):
            assignor.assign(group())
    assert assignor.assign(group()) == TARGET
    first, second = (record.getMessage() for record in caplog.records)
    assert "an assignor has failed" in first and "by_rack" in first and "no rack" in first
    assert "no zone" in second
    assert "KeyError" in caplog.text


def test_only_large_groups_are_assigned_in_a_thread() -> None:
    """The event loop does not wait for the thread."""
    threads: list[bool] = []

    def assign(partitions: Mapping[str, int], members: Sequence[MemberSubscription]) -> Shares:
        threads.append(threading.current_thread() is threading.main_thread())
        return all_to_first(partitions, members)

    assignor = LargeInBackground(ServerFunction("mine", assign))
    largest = int((LOOP_MAX_US - MEMBER_US - SUBSCRIPTION_US) / PARTITION_US)
    assert assignor.assign(group(partitions=largest)) == {"a": {T: list(range(largest))}}
    with pytest.raises(AssignmentPending):
        assignor.assign(group(partitions=largest + 1))
    wait_for_last(assignor._background)
    assert assignor.assign(group(partitions=largest + 1)) == {"a": {T: list(range(largest + 1))}}
    assert threads == [True, False]


def test_members_and_their_topics_make_a_group_large() -> None:
    small = group(partitions=1)
    members = [GroupMember(str(number), ["t"]) for number in range(600)]
    topics = {f"t{number}": Topic(bytes([number]) * 16, 1) for number in range(100)}
    assert estimated_us(small) < LOOP_MAX_US
    assert estimated_us(small._replace(members=members)) > LOOP_MAX_US
    assert estimated_us(small._replace(members=members[:60])) < LOOP_MAX_US
    assert estimated_us(small._replace(members=members[:60], topics=topics)) > LOOP_MAX_US
    assert estimated_us(small._replace(names_max=3_000)) > LOOP_MAX_US


class Held:
    """Kafka's assignor, which begins when ``released`` is set."""

    name = "uniform"

    def __init__(self) -> None:
        self.released = threading.Event()

    def assign(self, group: GroupToAssign) -> TargetAssignment:
        assert self.released.wait(FOREVER_S)
        return SERVER_ASSIGNORS[self.name].assign(group)


def test_any_member_gets_the_result_that_another_one_has_asked_for() -> None:
    """Also if neither has a target yet."""
    world, held = World(Topics(t=3)), Held()
    assignor = BackgroundAssignor(held, wait_s=0)
    world.assignors = {"uniform": assignor}
    epochs = {}
    for member_id in "abc":
        epochs[member_id] = world.join(member_id, "t").member_epoch
        world.wall_ms += ASK_AGAIN_MS
    assert not world.state.targets
    held.released.set()
    wait_for_last(assignor)
    assert world.beat("a", epochs["a"]).member_epoch == world.state.epoch.epoch
    assert world.state.targets.keys() == {"a", "b", "c"}


def test_kafkas_assignors_of_a_node_run_in_a_thread_for_large_groups() -> None:
    made = make_server_assignors({}, "range,uniform", in_background=True)
    assert {name: type(assignor) for name, assignor in made.items()} == dict.fromkeys(made, LargeInBackground)
    assert list(made) == ["range", "uniform"]
    in_turn = make_server_assignors({}, "range,uniform", in_background=False)
    assert in_turn == SERVER_ASSIGNORS
