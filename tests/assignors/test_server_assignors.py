"""The assignors of the coordinator give the same partitions to the same members as those of Kafka.

``server_assignors.json.xz`` has the groups of ``server_cases.make_case`` for the seeds 0 to 248 and 1138, and what
Kafka made of them: its classes UniformAssignor and RangeAssignor (kafka-group-coordinator 4.3.1, Java 17) were called
directly. Owned partitions went through ``Assignment.fromRecord`` and subscriptions through ``TopicIds``, as in the
broker.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from random import Random
from typing import Any

import pytest
from assignors.server_cases import Case, as_json, assign
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.assignors.server.base import AssignmentFailed, GroupMember, GroupToAssign, Topic
from callboard.actors.assignors.server.hash_order import (
    copied_set_capacity,
    grown_map_order,
    member_order,
    member_order_of,
    partition_order,
    timeline_order,
    uuid_hash,
)
from callboard.actors.assignors.server.table import SERVER_ASSIGNORS

RECORDED: dict[str, Any] = json.loads(
    lzma.decompress(Path(__file__).with_name("server_assignors.json.xz").read_bytes())
)
CASES: list[Case] = RECORDED["cases"]

TOPIC_ID = bytes(16)


def inserted_one_by_one(keys: list[int]) -> list[int]:
    """``HashMap.putVal``: a table of less than 64 buckets also grows when a bucket gets its ninth key."""
    buckets: list[list[int]] = [[] for _ in range(16)]
    for size, key in enumerate(keys, 1):
        bucket = buckets[_index(key, len(buckets))]
        bucket.append(key)
        if len(bucket) > 8 and len(buckets) < 64:
            buckets = _doubled(buckets)
        if size > len(buckets) * 3 // 4:
            buckets = _doubled(buckets)
    return [key for bucket in buckets for key in bucket]


def _doubled(buckets: list[list[int]]) -> list[list[int]]:
    doubled: list[list[int]] = [[] for _ in range(2 * len(buckets))]
    for bucket in buckets:
        for key in bucket:
            doubled[_index(key, len(doubled))].append(key)
    return doubled


def _index(key: int, capacity: int) -> int:
    return (key ^ key >> 16) & (capacity - 1)


@pytest.mark.parametrize("seed", range(len(CASES)))
def test_as_kafka(seed: int) -> None:
    assert as_json(assign(CASES[seed]["group"])) == CASES[seed]["assignment"]


def test_the_recording_has_groups_of_all_sorts() -> None:
    sorts = {
        (case["group"]["assignor"], len({frozenset(member["topics"]) for member in case["group"]["members"]}) == 1)
        for case in CASES
    }
    assert sorts == {(name, is_homogeneous) for name in ("uniform", "range") for is_homogeneous in (True, False)}
    assert RECORDED["kafka"] == "4.3.1"


def test_members_keep_what_they_own() -> None:
    """A partition moves only to the member that has too few."""
    topics = {"t": Topic(TOPIC_ID, 6)}
    owned = {"a": [0, 2, 4], "b": [1, 3, 5], "c": []}
    members = [GroupMember(name, ["t"], {TOPIC_ID: numbers}) for name, numbers in owned.items()]
    target = SERVER_ASSIGNORS["uniform"].assign(GroupToAssign.of_names(topics, members))
    assert target == {"a": {TOPIC_ID: [0, 2]}, "b": {TOPIC_ID: [1, 3]}, "c": {TOPIC_ID: [4, 5]}}


def test_members_without_topics_have_no_partitions() -> None:
    for assignor in SERVER_ASSIGNORS.values():
        members = [GroupMember("a", ["absent"]), GroupMember("b", [])]
        assert assignor.assign(GroupToAssign.of_names({}, members)) == {"a": {}, "b": {}}
        assert assignor.assign(GroupToAssign.of_names({}, [])) == {}


def test_a_partition_that_does_not_exist_is_an_error() -> None:
    """Kafka fails too: UniformHeterogeneousAssignmentBuilder with ArrayIndexOutOfBoundsException."""
    topics = {"t": Topic(TOPIC_ID, 2)}
    members = [GroupMember("a", ["t"], {TOPIC_ID: [0, 2]}), GroupMember("b", [])]
    with pytest.raises(AssignmentFailed, match=r"member a owns partition 2 of topic .*, which has 2 partitions"):
        SERVER_ASSIGNORS["uniform"].assign(GroupToAssign.of_names(topics, members))


class TestHashOrder:
    """Expected orders were printed by Java 17."""

    def test_a_map_grows_after_three_quarters(self) -> None:
        assert grown_map_order(range(16, -1, -1), lambda number: number) == list(range(17))
        assert grown_map_order([16, 0, 1], lambda number: number) == [16, 0, 1]

    @given(
        st.lists(st.integers(0, 40).map(lambda number: number * 8) | st.integers(0, 2**20), unique=True, max_size=120)
    )
    def test_a_map_is_iterated_as_if_its_keys_were_inserted_one_by_one(self, keys: list[int]) -> None:
        assert grown_map_order(keys, lambda key: key) == inserted_one_by_one(keys)

    @given(st.sets(st.text("abcd", min_size=1, max_size=4), max_size=120), st.randoms())
    def test_some_members_have_the_order_of_all(self, member_ids: set[str], random: Random) -> None:
        table = sorted(member_ids)
        some = [member_id for member_id in table if random.random() < 0.3]
        assert member_order_of(some, table) == [each for each in member_order(table) if each in some]

    def test_a_small_map_grows_when_a_bucket_is_full(self) -> None:
        numbers = [number * 16 for number in range(9)]
        assert partition_order(numbers[:8]) == numbers[:8]
        assert partition_order(numbers) == [0, 32, 64, 96, 128, 16, 48, 80, 112]

    def test_a_copied_set_has_room_for_its_elements(self) -> None:
        assert [copied_set_capacity(size) for size in (0, 11, 12, 23, 24)] == [16, 16, 32, 32, 64]

    def test_the_members_of_a_group_are_in_a_table_of_kafka(self) -> None:
        """The order of a TimelineHashMap of Kafka 4.3.1, in which each key was replaced once."""
        expected = [3, 10, 8, 0, 5, 2, 7, 4, 9, 1, 6]
        assert timeline_order([f"member-{number}" for number in range(11)], 11) == [f"member-{n}" for n in expected]
        assert timeline_order([f"member-{number}" for number in range(3)], 3) == ["member-0", "member-2", "member-1"]

    def test_hash_codes(self) -> None:
        assert uuid_hash(bytes.fromhex("672ecab2f20b443bacb0583061331fd7")) == 0x58A6_C96E
        assert member_order(["consumer-b", "consumer-a", "z"]) == ["z", "consumer-b", "consumer-a"]
