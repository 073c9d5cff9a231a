"""The register: pure rules of who owns what."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from callboard.runtime.cluster.register import (
    NOBODY,
    Endpoint,
    Register,
    decode_register,
    empty_register,
    planned_owners,
)
from callboard.runtime.log.partition_counts import PartitionCounts

COUNTS = PartitionCounts(50, 50)
ENDPOINTS = {"PLAINTEXT": Endpoint("host", 9092)}


def register_of(*sessions: str, counts: PartitionCounts = COUNTS) -> Register:
    register = empty_register(counts, "t", "id", 1500)
    for session in sessions:
        register = register.with_node(session, session, ENDPOINTS, "1.0")
    return register


def test_first_node_owns_everything() -> None:
    register = register_of("a")
    assert register.owned("a") == dict.fromkeys(range(100), 1)


def test_next_node_owns_nothing_before_it_is_given_something() -> None:
    assert register_of("a", "b").owned("b") == {}


def test_plan_divides_each_topic_evenly_and_moves_few() -> None:
    wanted = planned_owners(register_of("a", "b", "c"))
    assert sorted(Counter(wanted[:50]).values()) == [16, 17, 17]
    assert sorted(Counter(wanted).values()) == [33, 33, 34]
    register = register_of("a", "b", "c")
    moved = register.given({p: owner for p, owner in enumerate(wanted) if register.owners[p] != owner})
    assert planned_owners(moved) == list(moved.owners)


def test_partitions_of_a_node_that_is_gone_have_new_owners_and_epochs() -> None:
    register = register_of("a", "b").without_nodes(["a"])
    assert register.owned("b") == dict.fromkeys(range(100), 2)
    assert register.without_nodes(["b"]).owners == (NOBODY,) * 100


def test_partitions_wait_for_the_next_node() -> None:
    register = register_of("a").without_nodes(["a"]).with_node("b", "b", ENDPOINTS, "1.0")
    assert set(register.owned("b").values()) == {3}


def test_session_that_replaces_another_owns_its_partitions_with_new_epochs() -> None:
    register = register_of("a", "b")
    half = register.given(dict.fromkeys(range(0, 100, 2), "b"))
    replaced = half.with_node("a2", "a", ENDPOINTS, "1.0", ["a"])
    assert replaced.owned("a2") == dict.fromkeys(range(1, 100, 2), 2)
    assert replaced.owned("b") == half.owned("b")
    assert replaced.node_ids == half.node_ids
    assert list(replaced.nodes) == ["b", "a2"]


def test_node_keeps_its_id() -> None:
    register = register_of("a", "b").without_nodes(["a"]).with_node("a-2", "a", ENDPOINTS, "1.0")
    assert [node.node_id for node in register.nodes.values()] == [2, 1]


def test_register_is_the_same_after_decoding() -> None:
    register = register_of("a", "b", counts=PartitionCounts(3, 2))
    assert decode_register(register.encode()) == register


@given(st.lists(st.sampled_from("abcdef"), min_size=7, max_size=7), st.sets(st.sampled_from("abcdef"), min_size=1))
def test_plan_is_balanced_complete_and_stable(owners: list[str], nodes: set[str]) -> None:
    register = register_of(*sorted(nodes), counts=PartitionCounts(5, 2))._replace(owners=tuple(owners))
    wanted = planned_owners(register)
    assert set(wanted) <= nodes
    for part in (wanted[:5], wanted[5:]):
        counts = Counter({node: part.count(node) for node in nodes}).values()
        assert max(counts) - min(counts) <= 1
    assert planned_owners(register._replace(owners=tuple(wanted))) == wanted


def drained(register: Register, *sessions: str) -> Register:
    for session in sessions:
        register = register.with_draining(session, True)
    return register


def test_draining_node_shall_own_nothing() -> None:
    wanted = Counter(planned_owners(drained(register_of("a", "b", "c"), "a")))
    assert wanted == {"b": 50, "c": 50}


def test_partitions_of_a_dead_node_are_not_given_to_a_draining_one() -> None:
    register = drained(register_of("a", "b", "c"), "b").without_nodes(["a"])
    assert set(register.owners) == {"c"}


def test_draining_nodes_share_the_partitions_when_there_is_no_other() -> None:
    wanted = Counter(planned_owners(drained(register_of("a", "b"), "a", "b")))
    assert wanted == {"a": 50, "b": 50}
    register = drained(register_of("a", "b", "c"), "b").without_nodes(["a", "c"])
    assert set(register.owners) == {"b"}


def test_node_entry_of_an_older_version_does_not_drain() -> None:
    register = drained(register_of("a", "b"), "b")
    assert decode_register(register.encode()) == register
    older = register.encode().replace(b',"1.0",false]', b',"1.0"]')
    assert older != register.encode()
    assert [node.is_draining for node in decode_register(older).nodes.values()] == [False, True]
