"""Sticky, cooperative-sticky and weighted: fair, nobody loses what it need not lose, and nothing has two owners."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import ceil

import pytest
from assignor_helpers import Group, all_of, given, member
from hypothesis import given as given_examples
from hypothesis import settings
from hypothesis import strategies as st

from callboard.runtime.member.assignors.base import (
    Assignor,
    GroupAssignment,
    MemberState,
    MemberSubscription,
    TopicPartition,
)
from callboard.runtime.member.assignors.cooperative import CooperativeSticky
from callboard.runtime.member.assignors.sticky import Sticky
from callboard.runtime.member.assignors.user_data import OwnedPartitions, write_generation, write_owned_partitions
from callboard.runtime.member.assignors.weighted import Weighted

EACH = [Sticky(), CooperativeSticky(), Weighted()]
COOPERATIVE = [CooperativeSticky(), Weighted()]
each = pytest.mark.parametrize("assignor", EACH, ids=lambda one: one.name)
each_cooperative = pytest.mark.parametrize("assignor", COOPERATIVE, ids=lambda one: one.name)


def filled(assignor: Assignor, partitions: dict[str, int], members: Iterable[str]) -> Group:
    """A settled group in which all want everything."""
    group = Group(assignor, partitions)
    for name in members:
        group.join(name, partitions)
    group.settle()
    return group


def sizes(assignment: GroupAssignment) -> list[int]:
    return sorted(len(share) for share in assignment.values())


def lost(before: Mapping[str, MemberState], after: Mapping[str, MemberState]) -> int:
    """How many partitions those who stay have lost."""
    return sum(len(set(own.owned) - set(after[name].owned)) for name, own in before.items() if name in after)


# --- what KIP-54 promises, by its own examples ---


def test_a_fresh_start_goes_round() -> None:
    group = filled(Sticky(), {"t0": 2, "t1": 2, "t2": 2, "t3": 2}, ["C0", "C1", "C2"])
    assert {name: list(own.owned) for name, own in group.members.items()} == {
        "C0": [("t0", 0), ("t1", 1), ("t3", 0)],
        "C1": [("t0", 1), ("t2", 0), ("t3", 1)],
        "C2": [("t1", 0), ("t2", 1)],
    }


def test_when_one_leaves_only_its_partitions_move() -> None:
    group = filled(Sticky(), {"t0": 2, "t1": 2, "t2": 2, "t3": 2}, ["C0", "C1", "C2"])
    del group.members["C1"]
    assert group.rebalance() == {
        "C0": [("t0", 0), ("t0", 1), ("t1", 1), ("t3", 0)],
        "C2": [("t1", 0), ("t2", 0), ("t2", 1), ("t3", 1)],
    }


@each
def test_different_subscriptions(assignor: Assignor) -> None:
    """Where round robin gives one, one and four."""
    group = Group(assignor, {"t0": 1, "t1": 2, "t2": 3})
    for name, topics in (("C0", ["t0"]), ("C1", ["t0", "t1"]), ("C2", ["t0", "t1", "t2"])):
        group.join(name, topics)
    shares = {"C0": [("t0", 0)], "C1": [("t1", 0), ("t1", 1)], "C2": [("t2", 0), ("t2", 1), ("t2", 2)]}
    assert group.rebalance() == shares
    del group.members["C0"]
    assert group.rebalance() == {"C1": [("t0", 0), *shares["C1"]], "C2": shares["C2"]}


@each
def test_partitions_pass_along_a_chain(assignor: Assignor) -> None:
    """C0 cannot give to C2, but to C1, which can. Kafka looks at one step only, and leaves C2 with nothing."""
    group = Group(assignor, {"a": 4, "b": 1})
    group.join("C0", ["a"])
    group.join("C1", ["a", "b"])
    group.settle()
    assert sizes(group.rebalance()) == [2, 3]
    group.join("C2", ["b"])
    assert {name: len(share) for name, share in group.settle().items()} == {"C0": 2, "C1": 2, "C2": 1}


# --- fairness, by trying everything ---

topics = st.sampled_from(["a", "b", "c"])
small_partitions = st.dictionaries(topics, st.integers(1, 3), min_size=1, max_size=3)
wants = st.frozensets(topics, min_size=1)
weights = st.sampled_from([0.5, 1.0, 1.0, 2.0, 3.0])
small_groups = st.dictionaries(st.sampled_from("pqrs"), st.tuples(wants, weights), min_size=1, max_size=4)


def unfairness(members: Mapping[str, MemberState], counts: Mapping[str, int]) -> float:
    """Least where no partition could be better placed: the sum of all partitions' costs (see ``balance.py``)."""
    return sum(counts[name] ** 2 / own.weight for name, own in members.items())


def least_unfairness(group: Group, partitions: Sequence[TopicPartition], kept: Mapping[str, int]) -> float:
    """Of all the ways to give partitions to members, beside those that are kept."""
    takers = [[name for name, own in group.members.items() if topic in own.topics] for topic, _ in partitions]
    return min(
        unfairness(group.members, {name: kept.get(name, 0) + way.count(name) for name in group.members})
        for way in product(*takers)
    )


def group_of(
    assignor: Assignor, partitions: dict[str, int], members: Mapping[str, tuple[frozenset[str], float]]
) -> Group:
    group = Group(assignor, partitions)
    for name, (wanted, weight) in members.items():
        group.join(name, wanted, weight if isinstance(assignor, Weighted) else 1.0)
    return group


@each
@given_examples(partitions=small_partitions, members=small_groups)
@settings(max_examples=50)
def test_no_other_way_is_fairer(
    assignor: Assignor, partitions: dict[str, int], members: dict[str, tuple[frozenset[str], float]]
) -> None:
    group = group_of(assignor, partitions, members)
    result = group.rebalance()
    counts = {name: len(share) for name, share in result.items()}
    assert unfairness(group.members, counts) == pytest.approx(least_unfairness(group, group.wanted(), {}))


@each
@given_examples(st.data(), small_partitions, small_groups)
@settings(max_examples=100)
def test_nobody_loses_anything_while_it_can_be_fair_without(
    assignor: Assignor,
    data: st.DataObject,
    partitions: dict[str, int],
    members: dict[str, tuple[frozenset[str], float]],
) -> None:
    """From whatever members hold: taking something away is only right where all ways of not doing so are less fair."""
    group = group_of(assignor, partitions, members)
    held = draw_holders(data, group)
    before = dict(group.members)
    result = group.settle()
    counts = {name: len(share) for name, share in result.items()}
    assert given(result) == group.wanted()
    free = [partition for partition in group.wanted() if partition not in held]
    kept = {name: len(own.owned) for name, own in before.items()}
    at_best = least_unfairness(group, free, kept)
    assert unfairness(group.members, counts) <= at_best + 1e-9
    assert lost(before, group.members) == 0 or at_best > unfairness(group.members, counts) + 1e-9


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
    ids=["before others are looked at", "and in a chain"],
)
def test_what_is_new_to_a_member_is_passed_on_first(
    partitions: dict[str, int], members: dict[str, MemberState], least: int
) -> None:
    group = Group(Weighted(), partitions, dict(members), generation=3)
    group.settle()
    assert lost(members, group.members) == least


def draw_holders(data: st.DataObject, group: Group) -> dict[TopicPartition, str]:
    """Let members hold some of what they want, each partition one member at most."""
    group.generation = 3
    for topic, number in group.wanted():
        takers = [name for name, own in group.members.items() if topic in own.topics]
        holder = data.draw(st.none() | st.sampled_from(takers))
        if holder is not None:
            own = group.members[holder]
            group.members[holder] = own._replace(owned=(*own.owned, (topic, number)))
    for name, own in group.members.items():
        group.members[name] = own._replace(generation=3)
    return group.holders()


@given_examples(st.integers(1, 60), st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_weights_are_proportions(count: int, weighing: list[int]) -> None:
    """Whole multiples come out exactly, and nobody's next partition is cheaper than somebody's last."""
    group = Group(Weighted(), {"t": count})
    for place, weight in enumerate(weighing):
        group.join(f"m{place}", ["t"], float(weight))
    result = [len(share) for share in group.rebalance().values()]
    dearest = max((2 * share - 1) / weight for share, weight in zip(result, weighing, strict=True) if share)
    cheapest = min((2 * share + 1) / weight for share, weight in zip(result, weighing, strict=True))
    assert sum(result) == count and dearest <= cheapest
    if count % sum(weighing) == 0:
        assert result == [weight * count // sum(weighing) for weight in weighing]


def test_a_weight_that_changes_moves_what_it_must() -> None:
    group = filled(Weighted(), {"t": 12}, ["a", "b", "c"])
    group.members["a"] = group.members["a"]._replace(weight=4.0)
    before = dict(group.members)
    assert sizes(group.settle()) == [2, 2, 8]
    assert lost(before, group.members) == 4


# --- stickiness among members that want the same ---


@each
@given_examples(st.integers(0, 40), st.integers(1, 9), st.lists(st.integers(0, 8), max_size=4), st.integers(0, 4))
def test_no_more_moves_than_balance_needs(
    assignor: Assignor, count: int, members: int, leaving: list[int], coming: int
) -> None:
    group = filled(assignor, {"t": count // 2, "u": count - count // 2}, [f"m{n}" for n in range(members)])
    for place in leaving:
        group.members.pop(f"m{place}", None)
    for place in range(coming):
        group.join(f"k{place}", ["t", "u"])
    before = dict(group.members)
    result = group.settle()
    if before:
        floor, more = divmod(count, len(before))
        assert sizes(result) == [floor] * (len(before) - more) + [floor + 1] * more
        above = [len(own.owned) - floor for own in before.values() if len(own.owned) > floor]
        assert lost(before, group.members) == sum(above) - min(more, len(above))


@each
@given_examples(st.integers(0, 60), st.integers(1, 12))
def test_one_more_member_moves_its_share_and_no_more(assignor: Assignor, count: int, members: int) -> None:
    group = filled(assignor, {"t": count}, [f"m{n}" for n in range(members)])
    group.join("a-newcomer", ["t"])
    before = dict(group.members)
    group.settle()
    assert lost(before, group.members) == len(group.members["a-newcomer"].owned) <= ceil(count / (members + 1))


@each
def test_ten_thousand_names_are_shared_over_all_of_them_together(assignor: Assignor) -> None:
    """Topics of one partition each, as resources with names are; some members know half of the names only."""
    names = [f"tenants.t{number:05d}" for number in range(10_000)]
    group = Group(assignor, dict.fromkeys(names, 1))
    chance = random.Random(1)
    for place in range(100):
        group.join(f"m{place:02d}", names if place % 2 else chance.sample(names, 5_000))
    assert sizes(group.settle()) == [100] * 100
    before = dict(group.members)
    group.join("n", names)
    group.settle()
    assert lost(before, group.members) == len(group.members["n"].owned) == 99


# --- cooperative: in two steps ---


@each_cooperative
def test_what_moves_is_taken_first_and_given_then(assignor: Assignor) -> None:
    group = filled(assignor, {"t": 4}, ["a"])
    group.join("b", ["t"])
    assert group.rebalance() == {"a": [("t", 0), ("t", 1)], "b": []}
    assert group.rebalance() == {"a": [("t", 0), ("t", 1)], "b": [("t", 2), ("t", 3)]}


def leave(data: st.DataObject, group: Group) -> None:
    group.members.pop(data.draw(st.sampled_from(sorted(group.members))))


def subscribe(data: st.DataObject, group: Group) -> None:
    group.subscribe(data.draw(st.sampled_from(sorted(group.members))), data.draw(wants))


def weigh(data: st.DataObject, group: Group) -> None:
    name = data.draw(st.sampled_from(sorted(group.members)))
    group.members[name] = group.members[name]._replace(weight=data.draw(weights))


def come(data: st.DataObject, group: Group) -> None:
    group.join(f"m{data.draw(st.integers(0, 12))}", data.draw(wants), data.draw(weights))


def grow(data: st.DataObject, group: Group) -> None:
    topic = data.draw(topics)
    group.partitions[topic] = group.partitions.get(topic, 0) + data.draw(st.integers(1, 6))


def forget(data: st.DataObject, group: Group) -> None:
    """A member was restarted, or its session ended: it comes back with empty hands."""
    name = data.draw(st.sampled_from(sorted(group.members)))
    group.members[name] = group.members[name]._replace(owned=(), generation=-1)


CHANGES: list[Callable[[st.DataObject, Group], None]] = [leave, subscribe, weigh, come, come, come, grow, forget]


@each_cooperative
@given_examples(st.data(), st.lists(st.lists(st.integers(0, len(CHANGES) - 1), min_size=1, max_size=4), max_size=5))
@settings(max_examples=100)
def test_two_generations_are_enough_whatever_changes(
    assignor: Assignor, data: st.DataObject, rounds: list[list[int]]
) -> None:
    """In the first nothing is given that another holds; after the second all is given, and a third changes nothing."""
    group = Group(assignor, {"a": 3, "b": 5})
    group.join("m0", ["a", "b"])
    for changes in rounds:
        for change in changes:
            if group.members or CHANGES[change] is come:
                CHANGES[change](data, group)
        held = group.holders()
        first = group.rebalance()
        for name, share in first.items():
            assert all(held.get(partition, name) == name for partition in share)
        second = group.rebalance()
        assert given(second) == group.wanted()
        assert all(set(first[name]) <= set(second[name]) for name in first)
        assert group.rebalance() == second


# --- members that contradict each other ---


def claiming(assignor: Assignor, name: str, owned: Sequence[TopicPartition], generation: int) -> MemberSubscription:
    data = assignor.metadata(MemberState(frozenset("t"), tuple(owned), generation)) or b""
    return member(name, "t", owned if assignor.is_cooperative else (), generation, user_data=data)


@each
def test_the_newer_claim_is_believed(assignor: Assignor) -> None:
    """A member was away for two generations and does not know that its partitions have gone to another."""
    both = [("t", 0), ("t", 1)]
    members = [
        claiming(assignor, "a", both, 3),
        claiming(assignor, "b", both, 5),
        member("c", "t"),
    ]
    result = assignor.assign({"t": 2}, members)
    assert result["b"] == [("t", 0)]
    assert given(result) == ([("t", 0)] if assignor.is_cooperative else both)


@each
def test_of_two_claims_of_one_generation_neither_is_believed(assignor: Assignor) -> None:
    """Somebody may be at work on it, so where members keep what they hold, both have to let go first."""
    members = [
        claiming(assignor, "a", [("t", 0), ("t", 1)], 5),
        claiming(assignor, "b", [("t", 1), ("t", 2)], 5),
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
def test_whatever_members_claim_all_is_given_once(
    assignor: Assignor, claims: list[tuple[list[TopicPartition], int]]
) -> None:
    """Partitions that are not there, that it does not subscribe to, or twice; and what two claim is not given yet."""
    members = [claiming(assignor, f"m{n}", owned, generation) for n, (owned, generation) in enumerate(claims)]
    result = given(assignor.assign({"t": 4, "u": 2}, members))
    assert len(set(result)) == len(result)
    claimed = {partition for owned, _ in claims for partition in owned} if assignor.is_cooperative else set()
    assert set(all_of({"t": 4})) - claimed <= set(result) <= set(all_of({"t": 4}))


def test_an_old_clients_generation_is_found_in_its_user_data() -> None:
    """Java's of 2.4 to 3.1 write a generation, librdkafka's what it holds; neither's subscription has one."""
    members = [
        member("a", "t", [("t", 0), ("t", 1)], user_data=write_generation(4)),
        member("b", "t", [("t", 0)], user_data=write_owned_partitions(OwnedPartitions((("t", 0),), 6))),
    ]
    assert CooperativeSticky().assign({"t": 2}, members) == {"a": [("t", 1)], "b": [("t", 0)]}


def test_a_static_member_that_is_restarted_keeps_its_place_among_equals() -> None:
    """Who gives, and who is first to get, goes by instance id; so a new member id changes nothing."""
    before = [member("x", "t", instance="i1"), member("y", "t", instance="i2"), member("a", "t")]
    after = [member("z", "t", instance="i1"), *before[1:]]
    first, second = (CooperativeSticky().assign({"t": 4}, members) for members in (before, after))
    assert first["x"] == second["z"] == [("t", 0), ("t", 3)]
    assert first["a"] == second["a"]


def test_sticky_user_data_that_make_no_sense_cost_nobody_anything() -> None:
    members = [
        member("a", "t", user_data=b"\xff" * 9),
        member("b", "t", user_data=write_owned_partitions(OwnedPartitions((("t", 0),), 1))),
    ]
    assert Sticky().assign({"t": 2}, members) == {"a": [("t", 1)], "b": [("t", 0)]}


def test_a_weight_that_makes_no_sense_counts_as_one() -> None:
    members = [member("a", "t", weight=float("nan")), member("b", "t", weight=-3.0), member("c", "t", weight=2.0)]
    assert sizes(Weighted().assign({"t": 8}, members)) == [2, 2, 4]
