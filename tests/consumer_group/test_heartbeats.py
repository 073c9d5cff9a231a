"""Joining, rebalances, lost answers, static members, timeouts: the rules of consumer groups.

Expected epochs, records and errors are those of Kafka 4.3.1.
"""

from __future__ import annotations

from typing import Any

import pytest
from consumer_group.group_world import START_MS, Topics, World

from callboard.actors.assignors.server.base import AssignmentPending, GroupToAssign, TargetAssignment
from callboard.actors.assignors.server.uniform import Uniform
from callboard.actors.consumer_group.plan import ConsumerGroupSettings, RebalanceDeadline
from callboard.actors.consumer_group.records import MemberState
from callboard.actors.consumer_group.target import ASK_AGAIN_MS
from callboard.actors.errors import CoordinatorError, ErrorCode


def world(**counts: int) -> World:
    return World(Topics(**(counts or {"t": 4})))


def two_members() -> World:
    """a has t0 and t1, b has t2 and t3, both stable at epoch 3."""
    group = world()
    group.join("a", "t")
    group.join("b", "t")
    group.beat("a", 2, owned="t0 t1 t2 t3")
    group.beat("a", 2, owned="t0 t1")
    group.beat("b", 3, owned="")
    assert (group.assigned("a"), group.assigned("b"), group.phase) == ("t0 t1", "t2 t3", "Stable")
    return group


# Joining -------------------------------------------------------------------------------------------------------------


def test_the_first_member_gets_everything_at_epoch_2() -> None:
    group = world()
    assert group.phase == "Empty"
    reply = group.join("a", "t")
    assert (reply.member_id, reply.member_epoch, group.text(reply.assigned)) == ("a", 2, "t0 t1 t2 t3")
    assert reply.heartbeat_interval_ms == 5_000
    assert group.key_types() == [5, 3, 7, 6, 8]
    assert group.plan.sessions == {"a": None}
    assert group.phase == "Stable"
    assert group.state.target.timestamp_ms == START_MS


def test_a_member_without_topics_is_in_the_group_at_epoch_1() -> None:
    group = world()
    reply = group.join("a")
    assert (reply.member_epoch, reply.assigned, group.key_types()) == (1, (), [5, 8])


def test_a_member_whose_topics_do_not_exist_is_at_epoch_2() -> None:
    group = world()
    reply = group.join("a", "absent")
    assert (reply.member_epoch, reply.assigned) == (2, ())


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    group = two_members()
    reply = group.beat("a", 3, owned="t0 t1")
    assert (reply.member_epoch, reply.assigned, group.key_types()) == (3, None, [])
    assert group.plan.sessions == {"a": None}


def test_a_full_request_is_told_the_assignment() -> None:
    group = two_members()
    reply = group.beat("a", 3, rebalance_timeout_ms=60_000, topics=("t",), owned="t0 t1")
    assert (group.text(reply.assigned), group.key_types()) == ("t0 t1", [])


def test_version_0_lets_the_coordinator_make_the_id() -> None:
    group = world()
    assert group.error_of("", 0, rebalance_timeout_ms=1, topics=(), owned="") == ErrorCode.INVALID_REQUEST
    assert group.join("", "t", needs_member_id=False).member_id == "generated"


# Rebalances ----------------------------------------------------------------------------------------------------------


def test_partitions_move_when_their_owner_has_given_them_back() -> None:
    group = world()
    group.join("a", "t")
    newcomer = group.join("b", "t")
    assert (newcomer.member_epoch, newcomer.assigned) == (3, ())
    assert group.state.members["b"].current.state is MemberState.UNRELEASED_PARTITIONS
    told = group.beat("a", 2, owned="t0 t1 t2 t3")
    assert (told.member_epoch, group.text(told.assigned), group.pending("a")) == (2, "t0 t1", "t2 t3")
    assert group.plan.deadlines == {"a": RebalanceDeadline(60_000, 2)}
    assert group.phase == "Reconciling"
    assert group.beat("b", 3, owned="").assigned is None
    silent = group.beat("a", 2, owned=None)
    assert (silent.member_epoch, silent.assigned, group.key_types()) == (2, None, [])
    done = group.beat("a", 2, owned="t0 t1")
    assert (done.member_epoch, done.assigned, group.pending("a")) == (3, None, "")
    assert group.plan.deadlines == {"a": None}
    assert group.text(group.beat("b", 3, owned="").assigned) == "t2 t3"
    assert group.phase == "Stable"


def test_a_partition_keeps_the_epoch_in_which_it_was_given() -> None:
    group = two_members()
    assert set(group.state.members["a"].current.assigned.values()) == {2}
    assert set(group.state.members["b"].current.assigned.values()) == {3}


def test_a_member_gets_back_what_it_was_to_give() -> None:
    group = world()
    group.join("a", "t")
    group.join("b", "t")
    group.beat("a", 2, owned="t0 t1 t2 t3")
    group.beat("b", -1)
    reply = group.beat("a", 2, owned="t0 t1")
    assert (reply.member_epoch, group.text(reply.assigned)) == (4, "t0 t1 t2 t3")


def test_a_new_subscription_takes_partitions_away_at_once() -> None:
    """Even if the new target has to wait for the assignment interval."""
    group = World(Topics(t=2, u=2), ConsumerGroupSettings())
    group.join("a", "t", "u")
    reply = group.beat("a", 2, topics=("t",), owned="t0 t1 u0 u1")
    assert (reply.member_epoch, group.text(reply.assigned), group.pending("a")) == (2, "t0 t1", "u0 u1")
    assert group.phase == "Assigning"
    group.wall_ms += 1_000
    assert group.beat("a", 2, owned="t0 t1").member_epoch == 3


def test_assignments_are_at_most_as_frequent_as_the_interval() -> None:
    group = World(Topics(t=4), ConsumerGroupSettings())
    group.join("a", "t")
    group.wall_ms += 999
    assert group.join("b", "t").member_epoch == 2
    assert group.phase == "Assigning"
    group.wall_ms += 1
    assert group.beat("b", 2, owned="").member_epoch == 3


def test_topics_grow_vanish_and_come_again() -> None:
    group = world(t=1, u=1)
    group.join("a", "t")
    group.topics.grow("u", 3)
    assert (group.beat("a", 2, owned="t0").member_epoch, group.key_types()) == (2, [])
    group.topics.grow("t", 2)
    assert group.text(group.beat("a", 2, owned="t0").assigned) == "t0 t1"
    group.topics.delete("t")
    owned = (*group.state.members["a"].current.assigned,)
    assert (group.pending("a"), group.state.epoch.epoch) == ("", 3)
    group.beat("a", 3, owned="")
    assert (group.assigned("a"), group.state.epoch.epoch, group.state.epoch.metadata_hash) == ("", 4, 0)
    group.topics.create("t", 2)
    group.beat("a", 4, owned="")
    assert set(group.state.members["a"].current.assigned).isdisjoint(owned)


def test_the_most_wanted_assignor_is_used() -> None:
    group = world(t=2, u=2)
    group.join("a", "t", "u", server_assignor="range")
    group.join("b", "t", "u", server_assignor="range")
    group.join("c", "t", "u")
    targets = {name: group.text(target) for name, target in group.state.targets.items()}
    assert targets == {"a": "t0 u0", "b": "t1 u1", "c": ""}


def test_of_two_assignors_with_as_many_votes_the_newer_one_is_used() -> None:
    """The vote of the heartbeat is the first in its bucket of a Java HashMap."""
    group = world(t=2, u=2)
    group.join("a", "t", "u", server_assignor="uniform")
    group.join("b", "t", "u", server_assignor="range")
    assert {name: group.text(target) for name, target in group.state.targets.items()} == {"a": "t0 u0", "b": "t1 u1"}


class Slow:
    """An assignor that works until it is told that it is ready. ``groups``: the ids of groups that it was asked for."""

    name = "slow"

    def __init__(self) -> None:
        self.is_ready = False
        self.groups: list[str] = []

    def assign(self, group: GroupToAssign) -> TargetAssignment:
        self.groups.append(group.group_id)
        if not self.is_ready:
            raise AssignmentPending
        return Uniform().assign(group)


def test_members_keep_their_target_while_the_assignor_works() -> None:
    group, slow = two_members(), Slow()
    group.assignors = {"slow": slow}
    assert group.join("c", "t").member_epoch == 3
    assert (group.state.epoch.epoch, group.state.target.epoch, group.phase) == (4, 3, "Assigning")
    assert [group.beat(name, 3).assigned for name in "abc"] == [None] * 3
    assert slow.groups == ["g"], "it is asked again only after a while"
    slow.is_ready = True
    group.wall_ms += ASK_AGAIN_MS
    assert group.beat("a", 3).assigned is None
    assert (group.state.target.epoch, group.phase) == (4, "Reconciling")
    assert {len(target) for target in group.state.targets.values()} == {1, 2}
    assert slow.groups == ["g"] * 2


def test_a_member_without_topics_takes_all_partitions_away_for_a_while() -> None:
    """A fault of Kafka 4.3.1: it does not count the new member, which then speaks for the subscriptions of all."""
    group = world()
    group.join("z", "t")
    group.join("c", "t")
    group.beat("c", -1)
    group.join("a")
    assert {name: group.text(target) for name, target in group.state.targets.items()} == {"a": "", "z": ""}


def test_a_heartbeat_that_changes_nothing_needs_no_decision() -> None:
    """``World.beat`` compares its reply with that of the decision."""
    group = two_members()
    for epoch, fields in ((3, {}), (3, {"owned": "t0 t1"}), (3, {"rack_id": "r"}), (3, {})):
        group.beat("a", epoch, **fields)
    assert group.unchanged == 2
    for change in (lambda: group.topics.create("u", 1), lambda: group.join("c", "t")):
        change()
        group.beat("a", 3)
        assert group.unchanged == 2


# Epochs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "owned", "expected"),
    [
        (2, "t0", ErrorCode.NONE),
        (2, "", ErrorCode.NONE),
        (2, "t0 t3", ErrorCode.FENCED_MEMBER_EPOCH),
        (2, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (1, "", ErrorCode.FENCED_MEMBER_EPOCH),
        (4, "t0", ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
def test_the_previous_epoch_is_accepted_after_a_lost_answer(epoch: int, owned: str | None, expected: ErrorCode) -> None:
    assert two_members().error_of("a", epoch, owned=owned) == expected


def test_a_known_member_may_join_again() -> None:
    group = two_members()
    reply = group.join("a", "t")
    assert (reply.member_epoch, group.text(reply.assigned), group.key_types()) == (3, "t0 t1", [])


@pytest.mark.parametrize("epoch", [1, -1])
def test_an_unknown_member_is_told(epoch: int) -> None:
    with pytest.raises(CoordinatorError, match=r"Member z is not a member of group g\.") as caught:
        two_members().beat("z", epoch)
    assert caught.value.code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_refuses_new_members_only() -> None:
    group = World(Topics(t=1), ConsumerGroupSettings(max_size=1))
    group.join("a", "t")
    assert group.error_of("a", 2, owned="t0") == ErrorCode.NONE
    with pytest.raises(CoordinatorError, match=r"maximum capacity of 1 members\.") as caught:
        group.join("b", "t")
    assert caught.value.code == ErrorCode.GROUP_MAX_SIZE_REACHED


JOIN: dict[str, Any] = {"rebalance_timeout_ms": 1, "topics": ("t",), "owned": ""}


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "message"),
    [
        (" ", 0, JOIN, "MemberId can't be empty."),
        ("a", 0, JOIN | {"instance_id": " "}, "InstanceId can't be empty."),
        ("a", 0, JOIN | {"rack_id": ""}, "RackId can't be empty."),
        ("a", 0, JOIN | {"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ("a", 0, JOIN | {"owned": "t0"}, "TopicPartitions must be empty when (re-)joining."),
        ("a", 0, JOIN | {"owned": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            *("a", 0, JOIN | {"topics": None}),
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ("a", -2, {}, "InstanceId can't be null."),
        ("a", -3, {}, "MemberEpoch is invalid."),
    ],
)
def test_a_wrong_request_is_refused(member_id: str, epoch: int, fields: dict[str, Any], message: str) -> None:
    group = world()
    with pytest.raises(CoordinatorError) as caught:
        group.beat(member_id, epoch, **fields)
    assert (caught.value.code, str(caught.value)) == (ErrorCode.INVALID_REQUEST, message)


def test_unknown_assignors_are_refused() -> None:
    group = world()
    with pytest.raises(CoordinatorError, match=r"ServerAssignor x is not supported. .* uniform, range\."):
        group.join("a", "t", server_assignor="x")
    assert group.error_of("a", 0, **JOIN, server_assignor="x") == ErrorCode.UNSUPPORTED_ASSIGNOR


# Leaving and timeouts ------------------------------------------------------------------------------------------------


def test_a_member_that_leaves_is_forgotten() -> None:
    group = two_members()
    reply = group.beat("b", -1)
    assert (reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms) == ("b", -1, 0)
    assert group.key_types() == [-8, -7, -5, 3]
    assert group.plan.removed == ["b"]
    assert (list(group.state.members), group.phase) == (["a"], "Assigning")
    assert group.text(group.beat("a", 3, owned="t0 t1").assigned) == "t0 t1 t2 t3"


def test_several_members_are_removed_in_one_write() -> None:
    group = two_members()
    group.remove("a", "b")
    assert group.key_types() == [-8, -7, -5, -8, -7, -5, 3]
    assert (group.phase, group.state.owners, group.state.targets) == ("Empty", {}, {})
    group.remove()
    assert group.key_types() == []


def test_a_member_whose_session_ends_is_removed() -> None:
    group = two_members()
    group.expire_session("b")
    assert list(group.state.members) == ["a"]
    group.expire_session("b")
    assert group.key_types() == []


def test_a_member_that_does_not_give_back_is_removed() -> None:
    group = world()
    group.join("a", "t")
    group.join("b", "t")
    group.beat("a", 2, owned="t0 t1 t2 t3")
    deadline = group.plan.deadlines["a"]
    assert deadline is not None
    group.expire_rebalance("a", deadline.member_epoch)
    assert list(group.state.members) == ["b"]
    assert group.text(group.beat("b", 3, owned="").assigned) == "t0 t1 t2 t3"


def test_a_deadline_of_an_earlier_epoch_has_no_effect() -> None:
    group = two_members()
    group.expire_rebalance("a", 2)
    assert (list(group.state.members), group.key_types()) == (["a", "b"], [])


# Static members ------------------------------------------------------------------------------------------------------


def static_group() -> World:
    group = world()
    group.join("a", "t", instance_id="i")
    group.join("b", "t")
    group.beat("a", 2, owned="t0 t1 t2 t3", instance_id="i")
    group.beat("a", 2, owned="t0 t1", instance_id="i")
    group.beat("b", 3, owned="")
    return group


def test_a_static_member_that_comes_back_has_its_partitions() -> None:
    group = static_group()
    reply = group.beat("a", -2, instance_id="i")
    assert (reply.member_epoch, group.key_types(), group.assigned("a")) == (-2, [8], "t0 t1")
    assert group.phase == "Reconciling"
    again = group.join("a2", "t", instance_id="i")
    assert (again.member_epoch, group.text(again.assigned)) == (3, "t0 t1")
    assert group.key_types() == [-8, -7, -5, 5, 7, 8, 8]
    assert (sorted(group.state.members), group.state.static_members) == (["a2", "b"], {"i": "a2"})
    assert (group.state.epoch.epoch, group.phase) == (3, "Stable")


def test_a_static_member_with_another_subscription_gets_a_new_target() -> None:
    group = static_group()
    group.beat("a", -2, instance_id="i")
    again = group.join("a2", instance_id="i")
    assert (again.member_epoch, again.assigned) == (4, ())
    assert {name: group.text(target) for name, target in group.state.targets.items()} == {"a2": "", "b": "t0 t1 t2 t3"}


@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [
        ("a2", 0, ErrorCode.UNRELEASED_INSTANCE_ID),
        ("a", 0, ErrorCode.UNRELEASED_INSTANCE_ID),
        ("a2", 3, ErrorCode.FENCED_INSTANCE_ID),
        ("a2", -1, ErrorCode.FENCED_INSTANCE_ID),
        ("a2", -2, ErrorCode.FENCED_INSTANCE_ID),
        ("a", -1, ErrorCode.NONE),
    ],
)
def test_only_a_static_member_that_has_left_is_replaced(member_id: str, epoch: int, expected: ErrorCode) -> None:
    fields = JOIN if epoch == 0 else {}
    assert static_group().error_of(member_id, epoch, instance_id="i", **fields) == expected


def test_an_unknown_instance_is_told() -> None:
    with pytest.raises(CoordinatorError, match=r"Instance id other is unknown\.") as caught:
        static_group().beat("a", 3, instance_id="other")
    assert caught.value.code == ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(CoordinatorError, match="Static member z with instance id i was fenced by member a"):
        static_group().beat("z", 3, instance_id="i")


def test_a_static_member_that_stays_away_is_removed_by_its_session() -> None:
    group = static_group()
    group.beat("a", -2, instance_id="i")
    assert "a" not in group.plan.removed
    group.expire_session("a")
    assert (list(group.state.members), group.state.static_members) == (["b"], {})
