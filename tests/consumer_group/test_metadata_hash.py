"""The metadata hash, as Kafka 4.3.1 has written it into records of type 3."""

from __future__ import annotations

from collections.abc import Iterable

from consumer_group.group_world import Topics

from callboard.actors.consumer_group.metadata_hash import metadata_hash
from callboard.actors.steps import run_steps


def topics(*rows: tuple[str, str, int]) -> Topics:
    known = Topics()
    for name, topic_id, count in rows:
        known.add(name, bytes.fromhex(topic_id.replace("-", "")), count)
    return known


ORDERS = ("orders", "a4606be3-20d2-47e8-83de-69c38b5d054e", 3)
ORDERS_EU = ("orders-eu", "0ce41238-cd49-482c-9185-53bbf730a6e6", 2)


def hash_of(known: Topics, names: Iterable[str]) -> int:
    return run_steps(metadata_hash(known, names))


def test_hashes_are_those_of_a_real_log() -> None:
    known = topics(("ta", "672ecab2-f20b-443b-acb0-583061331fd7", 4), ORDERS, ORDERS_EU)
    assert hash_of(known, ["ta"]) == -1544918559491393008
    assert hash_of(known, ["orders"]) == -5734829497332081045
    assert hash_of(known, ["orders-eu", "orders"]) == 3137606319848836751


def test_topics_that_do_not_exist_are_left_out() -> None:
    known = topics(ORDERS)
    assert hash_of(known, ["orders", "missing"]) == hash_of(known, ["orders"])
    assert hash_of(known, ["missing"]) == 0
    assert hash_of(known, []) == 0


def test_each_change_of_a_topic_changes_the_hash() -> None:
    name, topic_id, count = ORDERS
    first = hash_of(topics(ORDERS), [name])
    assert hash_of(topics((name, topic_id, count + 1)), [name]) != first
    assert hash_of(topics((name, ORDERS_EU[1], count)), [name]) != first
    assert hash_of(topics(("renamed", topic_id, count)), ["renamed"]) != first


def test_a_topic_of_many_partitions_and_a_group_of_many_topics() -> None:
    """Longer inputs take other paths of the hash. The numbers are from Kafka's classes."""
    rows = [(f"topic-{number:03}", f"{number:032x}", number + 1) for number in range(300)]
    known = topics(*rows)
    assert hash_of(known, [rows[299][0]]) == -1667995227850506029
    assert hash_of(known, [name for name, _, _ in rows]) == 4534526624329358250
