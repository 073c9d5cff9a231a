"""Sticky, cooperative-sticky and weighted assignors: fair shares, few moves, and one owner for each partition."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import ceil

import pytest
from assignor_helpers import AssignorGroup, assigned_partitions, member, partitions_of
from hypothesis import given as given_examples
from hypothesis import settings
from hypothesis import strategies as st

from callboard.actors.assignors.base import (
    Assignor,
    GroupAssignment,
    MemberState,
    MemberSubscription,
    TopicPartition,
)
from callboard.actors.assignors.cooperative import CooperativeSticky
from callboard.actors.assignors.sticky import Sticky
from callboard.actors.assignors.user_data import OwnedPartitions, write_generation, write_owned_partitions
from callboard.actors.assignors.weighted import Weighted

EACH = [Sticky(), CooperativeSticky(), Weighted()]
COOPERATIVE = [CooperativeSticky(), Weighted()]
each = pytest.mark.parametrize("assignor", EACH, ids=lambda assignor: assignor.name)
each_cooperative = pytest.mark.parametrize("assignor", COOPERATIVE, ids=lambda assignor: assignor.name)


def rebalanced_group(assignor: Assignor, partitions: dict[str, int], members: Iterable[str]) -> AssignorGroup:
    """A group after its rebalances, in which all members subscribe to all topics."""
    group = AssignorGroup(assignor, partitions)
    for name in members:
        group.join(name, partitions)
    group.rebalance_twice()
    return group


def sorted_share_sizes(assignment: GroupAssignment) -> list[int]:
    return sorted(len(share) for share in assignment.values())


def lost_partition_count(before: Mapping[str, MemberState], after: Mapping[str, MemberState]) -> int:
    """The number of partitions that remaining members have lost."""
    return sum(len(set(own.owned) - set(after[name].owned)) for name, own in before.items() if name in after)


# --- the examples of KIP-54 ---


def test_new_group_gets_partitions_in_turn() -> None:
    group = rebalanced_group(Sticky(), {"t0": 2, "t1": 2, "t2": 2, "t3": 2}, ["C0", "C1", "C2"])
    assert {name: list(own.owned) for name, own in group.members.items()} == {
        "C0": [("t0", 0), ("t1", 1), ("t3", 0)],
        "C1": [("t0", 1), ("t2", 0), ("t3", 1)],
        "C2": [("t1", 0), ("t2", 1)],
    }


def test_leaving_member_moves_only_its_own_partitions() -> None:
    group = rebalanced_group(Sticky(), {"t0": 2, "t1": 2, "t2": 2, "t3": 2}, ["C0", "C1", "C2"])
    del group.members["C1"]
    assert group.rebalance() == {
        "C0": [("t0", 0), ("t0", 1), ("t1", 1), ("t3", 0)],
        "C2": [("t1", 0), ("t2", 0), ("t2", 1), ("t3", 1)],
    }


@each
def test_members_with_different_subscriptions_get_fair_shares(assignor: Assignor) -> None:
    """Round robin would give one, one and four partitions."""
    group = AssignorGroup(assignor, {"t0": 1, "t1": 2, "t2": 3})
    for name, topics in (("C0", ["t0"]), ("C1", ["t0", "t1"]), ("C2", ["t0", "t1", "t2"])):
        group.join(name, topics)
    shares = {"C0": [("t0", 0)], "C1": [("t1", 0), ("t1", 1)], "C2": [("t2", 0), ("t2", 1), ("t2", 2)]}
    assert group.rebalance() == shares
    del group.members["C0"]
    assert group.rebalance() == {"C1": [("t0", 0), *shares["C1"]], "C2": shares["C2"]}


@each
def test_partitions_move_along_a_chain_of_members(assignor: Assignor) -> None:
    """C0 cannot give to C2, but C1 can. Kafka considers single moves only, so C2 would get nothing."""
    group = AssignorGroup(assignor, {"a": 4, "b": 1})
    group.join("C0", ["a"])
    group.join("C1", ["a", "b"])
    group.rebalance_twice()
    assert sorted_share_sizes(group.rebalance()) == [2, 3]
    group.join("C2", ["b"])
    assert {name: len(share) for name, share in group.rebalance_twice().items()} == {"C0": 2, "C1": 2, "C2": 1}


# --- fairness, compared with all possible assignments ---

topics = st.sampled_from(["a", "b", "c"])
small_partitions = st.dictionaries(topics, st.integers(1, 3), min_size=1, max_size=3)
wants = st.frozensets(topics, min_size=1)
weights = st.sampled_from([0.5, 1.0, 1.0, 2.0, 3.0])
small_groups = st.dictionaries(st.sampled_from("pqrs"), st.tuples(wants, weights), min_size=1, max_size=4)


def sum_of_costs(members: Mapping[str, MemberState], counts: Mapping[str, int]) -> float:
    """The sum of all partitions' costs (see ``balance.py``). It is least if no move would improve the balance."""
    return sum(counts[name] ** 2 / own.weight for name, own in members.items())


def least_sum_of_costs(group: AssignorGroup, partitions: Sequence[TopicPartition], kept: Mapping[str, int]) -> float:
    """The least over all ways to assign the partitions, in addition to those that members keep."""
    candidates = [[name for name, own in group.members.items() if topic in own.topics] for topic, _ in partitions]
    return min(
        sum_of_costs(group.members, {name: kept.get(name, 0) + owners.count(name) for name in group.members})
        for owners in product(*candidates)
    )


def draw_group(
    assignor: Assignor, partitions: dict[str, int], members: Mapping[str, tuple[frozenset[str], float]]
) -> AssignorGroup:
    group = AssignorGroup(assignor, partitions)
    for name, (subscription, weight) in members.items():
        group.join(name, subscription, weight if isinstance(assignor, Weighted) else 1.0)
    return group


@each
@given_examples(partitions=small_partitions, members=small_groups)
@settings(max_examples=50)
def test_no_other_assignment_is_fairer(
    assignor: Assignor, partitions: dict[str, int], members: dict[str, tuple[frozenset[str], float]]
) -> None:
    group = draw_group(assignor, partitions, members)
    result = group.rebalance()
    counts = {name: len(share) for name, share in result.items()}
    assert sum_of_costs(group.members, counts) == pytest.approx(
        least_sum_of_costs(group, group.subscribed_partitions(), {})
    )


@each
@given_examples(st.data(), small_partitions, small_groups)
@settings(max_examples=100)
def test_no_member_loses_partitions_unless_fairness_requires_it(
    assignor: Assignor,
    data: st.DataObject,
    partitions: dict[str, int],
    members: dict[str, tuple[frozenset[str], float]],
) -> None:
    """For any initial owners: a move is allowed only if all assignments without it are less fair."""
    group = draw_group(assignor, partitions, members)
    owners = draw_owners(data, group)
    before = dict(group.members)
    result = group.rebalance_twice()
    counts = {name: len(share) for name, share in result.items()}
    assert assigned_partitions(result) == group.subscribed_partitions()
    free = [partition for partition in group.subscribed_partitions() if partition not in owners]
    kept = {name: len(own.owned) for name, own in before.items()}
    least_without_moves = least_sum_of_costs(group, free, kept)
    assert sum_of_costs(group.members, counts) <= least_without_moves + 1e-9
    assert (
        lost_partition_count(before, group.members) == 0
        or least_without_moves > sum_of_costs(group.members, counts) + 1e-9
    )


@pytest.mark.parametrize(
    ("partitions", "members", "least"),
    [
        (
            {"a": 2, "b": 3},
            {
                "p": MemberState(frozenset("ab"), (), 3, 2.0),
                "q": MemberState(frozenset("ab"), (("a", 1),), 3, 3.0),
                "r": MemberState(frozenset("b"), (("b", 0),), 3, 0.5),
                "s": MemberState(frozenset("a"), (), 3, 2.0),
            },
            1,
        ),
        (
            {"a": 3, "b": 1, "c": 1, "d": 1},
            {
                "p": MemberState(frozenset("cd"), (("c", 0), ("d", 0)), 3, 0.5),
                "q": MemberState(frozenset("abcd"), (("b", 0),), 3, 3.0),
                "r": MemberState(frozenset("ad"), (("a", 1),), 3, 3.0),
                "s": MemberState(frozenset("ab"), (), 3, 3.0),
                "t": MemberState(frozenset("cd"), (), 3, 0.5),
            },
            2,
        ),
    ],
    ids=["direct", "in a chain"],
)
def test_partition_that_is_new_to_a_member_moves_first(
    partitions: dict[str, int], members: dict[str, MemberState], least: int
) -> None:
    group = AssignorGroup(Weighted(), partitions, dict(members), generation=3)
    group.rebalance_twice()
    assert lost_partition_count(members, group.members) == least


def draw_owners(data: st.DataObject, group: AssignorGroup) -> dict[TopicPartition, str]:
    """Draw owners for some partitions, at most one subscriber for each."""
    group.generation = 3
    for topic, number in group.subscribed_partitions():
        subscribers = [name for name, own in group.members.items() if topic in own.topics]
        owner = data.draw(st.none() | st.sampled_from(subscribers))
        if owner is not None:
            own = group.members[owner]
            group.members[owner] = own._replace(owned=(*own.owned, (topic, number)))
    for name, own in group.members.items():
        group.members[name] = own._replace(generation=3)
    return group.owners()


@given_examples(st.integers(1, 60), st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_weighted_shares_are_proportional_to_weights(count: int, member_weights: list[int]) -> None:
    """Exact if the count is a multiple; else no member's next partition costs less than another's last one."""
    group = AssignorGroup(Weighted(), {"t": count})
    for number, weight in enumerate(member_weights):
        group.join(f"m{number}", ["t"], float(weight))
    result = [len(share) for share in group.rebalance().values()]
    highest_last_cost = max(
        (2 * share - 1) / weight for share, weight in zip(result, member_weights, strict=True) if share
    )
    lowest_next_cost = min((2 * share + 1) / weight for share, weight in zip(result, member_weights, strict=True))
    assert sum(result) == count and highest_last_cost <= lowest_next_cost
    if count % sum(member_weights) == 0:
        assert result == [weight * count // sum(member_weights) for weight in member_weights]


def test_changed_weight_moves_as_few_partitions_as_possible() -> None:
    group = rebalanced_group(Weighted(), {"t": 12}, ["a", "b", "c"])
    group.members["a"] = group.members["a"]._replace(weight=4.0)
    before = dict(group.members)
    assert sorted_share_sizes(group.rebalance_twice()) == [2, 2, 8]
    assert lost_partition_count(before, group.members) == 4


# --- stickiness with equal subscriptions ---


@each
@given_examples(st.integers(0, 40), st.integers(1, 9), st.lists(st.integers(0, 8), max_size=4), st.integers(0, 4))
def test_rebalance_moves_no_more_than_the_balance_requires(
    assignor: Assignor, count: int, members: int, leaving: list[int], joining: int
) -> None:
    group = rebalanced_group(assignor, {"t": count // 2, "u": count - count // 2}, [f"m{n}" for n in range(members)])
    for number in leaving:
        group.members.pop(f"m{number}", None)
    for number in range(joining):
        group.join(f"k{number}", ["t", "u"])
    before = dict(group.members)
    result = group.rebalance_twice()
    if before:
        floor, remainder = divmod(count, len(before))
        assert sorted_share_sizes(result) == [floor] * (len(before) - remainder) + [floor + 1] * remainder
        above = [len(own.owned) - floor for own in before.values() if len(own.owned) > floor]
        assert lost_partition_count(before, group.members) == sum(above) - min(remainder, len(above))


@each
@given_examples(st.integers(0, 60), st.integers(1, 12))
def test_joining_member_moves_only_its_own_share(assignor: Assignor, count: int, members: int) -> None:
    group = rebalanced_group(assignor, {"t": count}, [f"m{n}" for n in range(members)])
    group.join("a-newcomer", ["t"])
    before = dict(group.members)
    group.rebalance_twice()
    assert (
        lost_partition_count(before, group.members)
        == len(group.members["a-newcomer"].owned)
        <= ceil(count / (members + 1))
    )


@each
def test_many_topics_of_one_partition_are_balanced_in_total(assignor: Assignor) -> None:
    """Topics of one partition each, as for named resources. Half of the members subscribe to half of the topics."""
    names = [f"tenants.t{number:05d}" for number in range(3_000)]
    group = AssignorGroup(assignor, dict.fromkeys(names, 1))
    generator = random.Random(1)
    for number in range(100):
        group.join(f"m{number:02d}", names if number % 2 else generator.sample(names, 1_500))
    assert sorted_share_sizes(group.rebalance_twice()) == [30] * 100
    before = dict(group.members)
    group.join("n", names)
    group.rebalance_twice()
    assert lost_partition_count(before, group.members) == len(group.members["n"].owned) == 29


# --- cooperative rebalances in two generations ---


@each_cooperative
def test_moving_partition_is_revoked_one_generation_before_it_is_assigned(assignor: Assignor) -> None:
    group = rebalanced_group(assignor, {"t": 4}, ["a"])
    group.join("b", ["t"])
    assert group.rebalance() == {"a": [("t", 0), ("t", 1)], "b": []}
    assert group.rebalance() == {"a": [("t", 0), ("t", 1)], "b": [("t", 2), ("t", 3)]}


def _member_leaves(data: st.DataObject, group: AssignorGroup) -> None:
    group.members.pop(data.draw(st.sampled_from(sorted(group.members))))


def _member_resubscribes(data: st.DataObject, group: AssignorGroup) -> None:
    group.subscribe(data.draw(st.sampled_from(sorted(group.members))), data.draw(wants))


def _member_changes_weight(data: st.DataObject, group: AssignorGroup) -> None:
    name = data.draw(st.sampled_from(sorted(group.members)))
    group.members[name] = group.members[name]._replace(weight=data.draw(weights))


def _member_joins(data: st.DataObject, group: AssignorGroup) -> None:
    group.join(f"m{data.draw(st.integers(0, 12))}", data.draw(wants), data.draw(weights))


def _topic_grows(data: st.DataObject, group: AssignorGroup) -> None:
    topic = data.draw(topics)
    group.partitions[topic] = group.partitions.get(topic, 0) + data.draw(st.integers(1, 6))


def _member_restarts(data: st.DataObject, group: AssignorGroup) -> None:
    """A member was restarted, or its session expired: it owns nothing when it joins."""
    name = data.draw(st.sampled_from(sorted(group.members)))
    group.members[name] = group.members[name]._replace(owned=(), generation=-1)


CHANGES: list[Callable[[st.DataObject, AssignorGroup], None]] = [
    _member_leaves,
    _member_resubscribes,
    _member_changes_weight,
    *3 * [_member_joins],
    _topic_grows,
    _member_restarts,
]


@each_cooperative
@given_examples(st.data(), st.lists(st.lists(st.integers(0, len(CHANGES) - 1), min_size=1, max_size=4), max_size=5))
@settings(max_examples=100)
def test_any_change_takes_at_most_two_generations(
    assignor: Assignor, data: st.DataObject, rounds: list[list[int]]
) -> None:
    """The first assigns nothing that another member owns. After the second all is assigned; a third changes nothing."""
    group = AssignorGroup(assignor, {"a": 3, "b": 5})
    group.join("m0", ["a", "b"])
    for changes in rounds:
        for change in changes:
            if group.members or CHANGES[change] is _member_joins:
                CHANGES[change](data, group)
        owners = group.owners()
        first = group.rebalance()
        for name, share in first.items():
            assert all(owners.get(partition, name) == name for partition in share)
        second = group.rebalance()
        assert assigned_partitions(second) == group.subscribed_partitions()
        assert all(set(first[name]) <= set(second[name]) for name in first)
        assert group.rebalance() == second


# --- contradicting claims ---


def claiming_member(
    assignor: Assignor, name: str, owned: Sequence[TopicPartition], generation: int
) -> MemberSubscription:
    data = assignor.metadata(MemberState(frozenset("t"), tuple(owned), generation)) or b""
    return member(name, "t", owned if assignor.is_cooperative else (), generation, user_data=data)


@each
def test_partition_claimed_twice_stays_with_the_newer_generation(assignor: Assignor) -> None:
    """A member that was away for two generations claims partitions that another member has got."""
    both = [("t", 0), ("t", 1)]
    members = [
        claiming_member(assignor, "a", both, 3),
        claiming_member(assignor, "b", both, 5),
        member("c", "t"),
    ]
    result = assignor.assign({"t": 2}, members)
    assert result["b"] == [("t", 0)]
    assert assigned_partitions(result) == ([("t", 0)] if assignor.is_cooperative else both)


@each
def test_partition_claimed_twice_in_one_generation_has_no_owner(assignor: Assignor) -> None:
    """Both may be working on it, so with a cooperative assignor both must revoke it first."""
    members = [
        claiming_member(assignor, "a", [("t", 0), ("t", 1)], 5),
        claiming_member(assignor, "b", [("t", 1), ("t", 2)], 5),
    ]
    result = assignor.assign({"t": 3}, members)
    kept = [("t", 0)] if assignor.is_cooperative else [("t", 0), ("t", 1)]
    assert result == {"a": kept, "b": [("t", 2)]}


@each
@given_examples(
    st.lists(
        st.tuples(st.lists(st.tuples(st.sampled_from("tuv"), st.integers(-1, 5)), max_size=6), st.integers(-1, 2)),
        min_size=1,
        max_size=5,
    )
)
def test_each_partition_is_assigned_once_whatever_members_claim(
    assignor: Assignor, claims: list[tuple[list[TopicPartition], int]]
) -> None:
    """Claims of partitions that do not exist, of other topics, or of one partition twice."""
    members = [claiming_member(assignor, f"m{n}", owned, generation) for n, (owned, generation) in enumerate(claims)]
    result = assigned_partitions(assignor.assign({"t": 4, "u": 2}, members))
    assert len(set(result)) == len(result)
    claimed = {partition for owned, _ in claims for partition in owned} if assignor.is_cooperative else set()
    assert set(partitions_of({"t": 4})) - claimed <= set(result) <= set(partitions_of({"t": 4}))


def test_generation_of_a_version_1_subscription_is_read_from_user_data() -> None:
    """Java's clients 2.4 to 3.1 write a generation there, librdkafka its owned partitions."""
    members = [
        member("a", "t", [("t", 0), ("t", 1)], user_data=write_generation(4)),
        member("b", "t", [("t", 0)], user_data=write_owned_partitions(OwnedPartitions((("t", 0),), 6))),
    ]
    assert CooperativeSticky().assign({"t": 2}, members) == {"a": [("t", 1)], "b": [("t", 0)]}


def test_restarted_static_member_keeps_its_share() -> None:
    """Static members are ordered by instance id, so a new member id changes nothing."""
    before = [member("x", "t", instance="i1"), member("y", "t", instance="i2"), member("a", "t")]
    after = [member("z", "t", instance="i1"), *before[1:]]
    first, second = (CooperativeSticky().assign({"t": 4}, members) for members in (before, after))
    assert first["x"] == second["z"] == [("t", 0), ("t", 3)]
    assert first["a"] == second["a"]


def test_invalid_sticky_user_data_mean_no_owned_partitions() -> None:
    members = [
        member("a", "t", user_data=b"\xff" * 9),
        member("b", "t", user_data=write_owned_partitions(OwnedPartitions((("t", 0),), 1))),
    ]
    assert Sticky().assign({"t": 2}, members) == {"a": [("t", 1)], "b": [("t", 0)]}


def test_invalid_weight_counts_as_one() -> None:
    members = [member("a", "t", weight=float("nan")), member("b", "t", weight=-3.0), member("c", "t", weight=2.0)]
    assert sorted_share_sizes(Weighted().assign({"t": 8}, members)) == [2, 2, 4]
