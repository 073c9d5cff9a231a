"""Range and round robin equal Kafka's: cases from its documentation, and the results of other clients."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest
from assignor_helpers import assigned_partitions, member, partitions_of
from client_assignors import (
    AiokafkaRange,
    AiokafkaRoundRobin,
    AiokafkaSubscription,
    KafkaPythonRange,
    KafkaPythonRoundRobin,
    KafkaPythonSubscription,
)
from hypothesis import given as given_examples
from hypothesis import strategies as st

from callboard.actors.assignors.base import Assignor, GroupAssignment, MemberSubscription, TopicPartition
from callboard.actors.assignors.custom import FunctionAssignor
from callboard.actors.assignors.range_ import Range
from callboard.actors.assignors.round_robin import RoundRobin
from callboard.actors.assignors.table import ASSIGNORS, find_assignor


class Case(NamedTuple):
    """``members`` as "id" or "id@instance" to topics; ``expected`` as "t0p0 t0p1" by member id."""

    assignor: str
    partitions: dict[str, int]
    members: dict[str, str]
    expected: dict[str, str]


CASES = {
    "documentation of RangeAssignor": Case(
        "range", {"t0": 3, "t1": 3}, {"C0": "t0 t1", "C1": "t0 t1"}, {"C0": "t0p0 t0p1 t1p0 t1p1", "C1": "t0p2 t1p2"}
    ),
    "range, static members come first and by instance id": Case(
        "range", {"t": 4}, {"a": "t", "b@i2": "t", "c@i1": "t"}, {"c": "tp0 tp1", "b": "tp2", "a": "tp3"}
    ),
    "range, instance ids keep shares through a restart with new member ids": Case(
        "range", {"t": 3}, {"z@i1": "t", "a@i2": "t"}, {"z": "tp0 tp1", "a": "tp2"}
    ),
    "range, each topic among its own subscribers": Case(
        "range",
        {"t0": 3, "t1": 2, "t2": 1},
        {"C0": "t0", "C1": "t0 t1", "C2": "t1 t2"},
        {"C0": "t0p0 t0p1", "C1": "t0p2 t1p0", "C2": "t1p1 t2p0"},
    ),
    "range, more members than partitions": Case(
        "range", {"t": 2}, {"C0": "t", "C1": "t", "C2": "t"}, {"C0": "tp0", "C1": "tp1", "C2": ""}
    ),
    "range, many topics of one partition all go to the first member": Case(
        "range", {"n.a": 1, "n.b": 1, "n.c": 1}, {"C0": "n.a n.b n.c", "C1": "n.a n.b n.c"}, {"C0": "n.ap0 n.bp0 n.cp0"}
    ),
    "documentation of RoundRobinAssignor": Case(
        "roundrobin",
        {"t0": 3, "t1": 3},
        {"C0": "t0 t1", "C1": "t0 t1"},
        {"C0": "t0p0 t0p2 t1p1", "C1": "t0p1 t1p0 t1p2"},
    ),
    "documentation of RoundRobinAssignor, different subscriptions": Case(
        "roundrobin",
        {"t0": 1, "t1": 2, "t2": 3},
        {"C0": "t0", "C1": "t0 t1", "C2": "t0 t1 t2"},
        {"C0": "t0p0", "C1": "t1p0", "C2": "t1p1 t2p0 t2p1 t2p2"},
    ),
    "round robin, static members come first": Case(
        "roundrobin", {"t": 4}, {"a": "t", "b": "t", "z@i": "t"}, {"z": "tp0 tp3", "a": "tp1", "b": "tp2"}
    ),
    "round robin, continues after the member that got the last partition": Case(
        "roundrobin",
        {"t0": 1, "t1": 3},
        {"C0": "t1", "C1": "t0", "C2": "t1"},
        {"C0": "t1p1", "C1": "t0p0", "C2": "t1p0 t1p2"},
    ),
    "round robin, many topics of one partition are distributed": Case(
        "roundrobin",
        {"n.a": 1, "n.b": 1, "n.c": 1},
        {"C0": "n.a n.b n.c", "C1": "n.b n.c"},
        {"C0": "n.ap0 n.cp0", "C1": "n.bp0"},
    ),
}


def parse_partitions(text: str) -> list[TopicPartition]:
    names = (name.rpartition("p") for name in text.split())
    return [(topic, int(number)) for topic, _, number in names]


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_range_and_round_robin_follow_kafkas_rules(case: Case) -> None:
    members = []
    for name, topics in case.members.items():
        member_id, _, instance = name.partition("@")
        members.append(member(member_id, topics.split(), instance=instance or None))
    expected = {member.member_id: parse_partitions(case.expected.get(member.member_id, "")) for member in members}
    assert ASSIGNORS[case.assignor].assign(case.partitions, members) == expected


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=list(ASSIGNORS))
def test_assign_ignores_topics_that_do_not_exist(assignor: Assignor) -> None:
    members = [member("a", ["t", "gone"]), member("b", ["gone", "empty"]), member("c", [])]
    assert assignor.assign({"t": 2, "empty": 0, "nobodys": 5}, members) == {"a": [("t", 0), ("t", 1)], "b": [], "c": []}
    assert assignor.assign({}, members) == {"a": [], "b": [], "c": []}
    assert assignor.assign({"t": 1}, []) == {}


topics = st.sampled_from(["a", "b", "c", "d", "e"])
partition_counts = st.dictionaries(topics, st.integers(1, 7), max_size=5)
subscriptions = st.frozensets(topics, max_size=5)
groups = st.dictionaries(st.text("abcxyz", min_size=1, max_size=3), subscriptions, min_size=1, max_size=7)


def members_of(group: dict[str, frozenset[str]]) -> list[MemberSubscription]:
    return [member(name, topics) for name, topics in group.items()]


class Cluster:
    """The part of the clients' cluster metadata that their assignors use."""

    def __init__(self, partitions: dict[str, int]) -> None:
        self._partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._partitions[topic])) if topic in self._partitions else None


def assign_with_aiokafka(
    assignor: Any, partitions: dict[str, int], group: dict[str, frozenset[str]]
) -> GroupAssignment:
    subscriptions = {name: AiokafkaSubscription(0, sorted(topics), b"") for name, topics in group.items()}
    result = assignor.assign(Cluster(partitions), subscriptions)
    return {name: sorted(tuple(partition) for partition in assigned.partitions()) for name, assigned in result.items()}


class KafkaPythonMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: Any


def assign_with_kafka_python(
    assignor: Any, partitions: dict[str, int], members: list[MemberSubscription]
) -> GroupAssignment:
    """Static members come first: the client groups only adjacent members."""
    subscriptions = [
        KafkaPythonMember(
            member.member_id,
            member.group_instance_id,
            KafkaPythonSubscription(version=0, topics=sorted(member.topics), user_data=b""),
        )
        for member in sorted(members, key=lambda member: member.group_instance_id is None)
    ]
    result = assignor.assign(Cluster(partitions), subscriptions)
    return {name: sorted(tuple(partition) for partition in assigned.partitions()) for name, assigned in result.items()}


@given_examples(partition_counts, groups)
def test_range_and_round_robin_equal_aiokafkas(partitions: dict[str, int], group: dict[str, frozenset[str]]) -> None:
    members = members_of(group)
    assert Range().assign(partitions, members) == assign_with_aiokafka(AiokafkaRange, partitions, group)
    assert RoundRobin().assign(partitions, members) == assign_with_aiokafka(AiokafkaRoundRobin, partitions, group)


@given_examples(partition_counts, groups, st.data())
def test_range_equals_kafka_pythons(
    partitions: dict[str, int], group: dict[str, frozenset[str]], data: st.DataObject
) -> None:
    instances = data.draw(st.permutations([None, None, None, "i1", "i2", "i3", "i4"]))
    members = [
        member._replace(group_instance_id=instance)
        for member, instance in zip(members_of(group), instances, strict=False)
    ]
    assert Range().assign(partitions, members) == assign_with_kafka_python(KafkaPythonRange, partitions, members)


@given_examples(partition_counts, st.integers(1, 7), st.data())
def test_round_robin_equals_kafka_pythons(partitions: dict[str, int], count: int, data: st.DataObject) -> None:
    """With equal subscriptions; with different ones kafka-python's assignor fails."""
    instances = data.draw(st.permutations([None, None, None, "i1", "i2", "i3", "i4"]))
    members = [member(f"m{n}", partitions, instance=instances[n]) for n in range(count)]
    assert RoundRobin().assign(partitions, members) == assign_with_kafka_python(
        KafkaPythonRoundRobin, partitions, members
    )


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=list(ASSIGNORS))
@given_examples(partitions=partition_counts, group=groups, seed=st.integers(0, 9))
def test_each_partition_is_assigned_once_in_any_order_of_members_and_topics(
    assignor: Assignor, partitions: dict[str, int], group: dict[str, frozenset[str]], seed: int
) -> None:
    members = members_of(group)
    result = assignor.assign(partitions, members)
    assert assigned_partitions(result) == partitions_of(partitions, frozenset().union(*group.values()))
    assert all(topic in group[name] for name, share in result.items() for topic, _ in share)
    shuffle = random.Random(seed)
    shuffle.shuffle(members)
    shuffled = dict(shuffle.sample(sorted(partitions.items()), len(partitions)))
    assert assignor.assign(shuffled, members) == result


def test_find_assignor_returns_assignor_by_name() -> None:
    assert list(ASSIGNORS) == ["range", "roundrobin", "sticky", "cooperative-sticky", "callboard-weighted"]
    assert all(find_assignor(name).name == name for name in ASSIGNORS)
    assert [name for name, assignor in ASSIGNORS.items() if assignor.is_cooperative] == [
        "cooperative-sticky",
        "callboard-weighted",
    ]
    mine = FunctionAssignor("mine", lambda partitions, members: {})
    assert find_assignor(mine) is mine
    with pytest.raises(
        ValueError,
        match=r"there is no assignor 'rang': did you mean 'range'\? expected range, roundrobin, .*FunctionAssignor",
    ):
        find_assignor("rang")
