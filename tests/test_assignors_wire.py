"""What members and leaders write to each other is what Kafka's clients write, byte for byte."""

from __future__ import annotations

import pytest
from assignor_helpers import member
from client_assignors import (
    AiokafkaAssignment,
    AiokafkaSticky,
    AiokafkaSubscription,
    AiokafkaUserData,
    KafkaPythonAssignment,
    KafkaPythonCooperative,
    KafkaPythonSubscription,
    KafkaPythonUserData,
)
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.messages import JoinedMember
from callboard.runtime.client.assignment import read_assignment as read_sorted
from callboard.runtime.member.assignors.base import MemberState, TopicPartition
from callboard.runtime.member.assignors.consumer_protocol import (
    VERSION_MAX,
    MemberAssignment,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from callboard.runtime.member.assignors.cooperative import CooperativeSticky
from callboard.runtime.member.assignors.fallback import to_member_subscription
from callboard.runtime.member.assignors.sticky import Sticky
from callboard.runtime.member.assignors.user_data import (
    OwnedPartitions,
    read_generation,
    read_owned_partitions,
    read_weight,
    write_generation,
    write_owned_partitions,
    write_weight,
)
from callboard.runtime.member.assignors.weighted import Weighted

# Written by Java's own classes.
JAVA = {
    0: "000000000002000161000162ffffffff",
    1: "000100000002000161000162ffffffff00000001000161000000020000000000000001",
    2: "000200000002000161000162ffffffff0000000100016100000002000000000000000100000005",
    3: "000300000002000161000162ffffffff000000010001610000000200000000000000010000000500027231",
}
# Written by librdkafka: with range, and with cooperative-sticky before and behind the first assignment.
LIBRDKAFKA_RANGE = "0003000000020001610001620000000000000000ffffffff00027231"
LIBRDKAFKA_NEW = "000300000002000161000162000000080000000000000002000000000000000200027231"
LIBRDKAFKA_HOLDS = (
    "0003000000020001610001620000001e000000020001610000000100000001000162000000010000000000000002"
    "0000000200016100000001000000010001620000000100000000000000020000"
)
LIBRDKAFKA_ASSIGNMENT = (
    "000000000002000161000000010000000100016200000001000000000000001e000000020001610000000100000001000162000000010000"
    "000000000002"
)

names = st.text("abcdef.-_0é", min_size=1, max_size=6)
places = st.lists(st.tuples(names, st.integers(0, 20)), max_size=8, unique=True).map(sorted).map(tuple)
data = st.none() | st.binary(max_size=12)
subscriptions = st.builds(
    Subscription,
    st.lists(names, max_size=4, unique=True).map(sorted).map(tuple),
    data,
    places,
    st.integers(-1, 2**31 - 1),
    st.none() | names,
)
versions = st.integers(0, VERSION_MAX)


def by_topic(partitions: tuple[TopicPartition, ...]) -> list[tuple[str, list[int]]]:
    topics = sorted({topic for topic, _ in partitions})
    return [(topic, [number for name, number in partitions if name == topic]) for topic in topics]


def theirs(said: Subscription, version: int) -> bytes:
    """The same by kafka-python."""
    owned = [KafkaPythonSubscription.TopicPartition(topic=t, partitions=p) for t, p in by_topic(said.owned)]
    rest = {"owned_partitions": owned, "generation_id": said.generation, "rack_id": said.rack_id}
    encoded: bytes = KafkaPythonSubscription(
        version=version, topics=list(said.topics), user_data=said.user_data, **rest
    ).encode()
    return encoded


def as_far_as(version: int, said: Subscription) -> Subscription:
    """What a version can say."""
    if version < 1:
        said = said._replace(owned=())
    if version < 2:
        said = said._replace(generation=-1)
    return said if version >= 3 else said._replace(rack_id=None)


@pytest.mark.parametrize("version", JAVA)
def test_subscriptions_are_those_of_java(version: int) -> None:
    said = Subscription(("b", "a"), None, (("a", 1), ("a", 0)), 5, "r1")
    assert write_subscription(said, version).hex() == JAVA[version]
    assert read_subscription(bytes.fromhex(JAVA[version])) == as_far_as(
        version, Subscription(("a", "b"), None, (("a", 0), ("a", 1)), 5, "r1")
    )


def test_assignments_are_those_of_java() -> None:
    some = bytes.fromhex("0003000000020001610000000200000000000000010001620000000100000002ffffffff")
    nothing = bytes.fromhex("000100000000ffffffff")
    assigned = MemberAssignment((("a", 0), ("a", 1), ("b", 2)))
    assert write_assignment(MemberAssignment((("b", 2), ("a", 1), ("a", 0)))) == some
    assert read_assignment(some) == assigned
    assert write_assignment(MemberAssignment(()), version=1) == nothing
    assert read_assignment(nothing) == MemberAssignment(())


def test_what_librdkafka_says_is_understood() -> None:
    ranged = read_subscription(bytes.fromhex(LIBRDKAFKA_RANGE))
    assert ranged == Subscription(("a", "b"), b"", (), -1, "r1")
    new = read_subscription(bytes.fromhex(LIBRDKAFKA_NEW))
    assert new is not None and (new.owned, new.generation, read_generation(new.user_data or b"")) == ((), 2, 2)
    holds = read_subscription(bytes.fromhex(LIBRDKAFKA_HOLDS))
    assert holds is not None
    assert (holds.owned, holds.generation) == ((("a", 1), ("b", 0)), 2)
    assert read_owned_partitions(holds.user_data or b"") == OwnedPartitions(holds.owned, 2)
    assert read_generation(holds.user_data or b"") == 2
    assigned = read_assignment(bytes.fromhex(LIBRDKAFKA_ASSIGNMENT))
    assert assigned is not None and assigned.partitions == (("a", 1), ("b", 0))


@pytest.mark.parametrize("text", [LIBRDKAFKA_RANGE, LIBRDKAFKA_NEW, LIBRDKAFKA_HOLDS])
def test_what_librdkafka_writes_is_what_we_write(text: str) -> None:
    said = read_subscription(bytes.fromhex(text))
    assert said is not None and write_subscription(said).hex() == text


@given(subscriptions, versions)
def test_subscriptions_are_those_of_kafka_python(said: Subscription, version: int) -> None:
    written = write_subscription(said, version)
    assert written == theirs(said, version)
    assert read_subscription(written) == as_far_as(version, said)


@given(places, data, versions)
def test_assignments_are_those_of_kafka_python(
    partitions: tuple[TopicPartition, ...], user: bytes, version: int
) -> None:
    written = write_assignment(MemberAssignment(partitions, user), version)
    assert written == KafkaPythonAssignment(version, by_topic(partitions), user).encode()
    assert read_assignment(written) == MemberAssignment(partitions, user)
    assert read_sorted(written) == partitions


@given(subscriptions, places)
def test_aiokafka_reads_and_writes_the_same(said: Subscription, partitions: tuple[TopicPartition, ...]) -> None:
    written = AiokafkaSubscription(0, list(said.topics), said.user_data).encode()
    assert written == write_subscription(said, 0)
    read = AiokafkaSubscription.decode(write_subscription(said))
    assert (tuple(read.subscription), read.user_data) == (said.topics, said.user_data)
    assigned = AiokafkaAssignment(0, by_topic(partitions), None).encode()
    assert assigned == write_assignment(MemberAssignment(partitions), 0)
    found = AiokafkaAssignment.decode(write_assignment(MemberAssignment(partitions)))
    assert tuple(tuple(partition) for partition in found.partitions()) == partitions


@given(subscriptions, st.integers(VERSION_MAX + 1, 32_767), st.binary(max_size=9))
def test_a_newer_version_is_read_as_the_newest_known(said: Subscription, version: int, more: bytes) -> None:
    newer = version.to_bytes(2, "big") + write_subscription(said)[2:] + more
    assert read_subscription(newer) == said
    assigned = version.to_bytes(2, "big") + write_assignment(MemberAssignment(said.owned, said.user_data))[2:] + more
    assert read_assignment(assigned) == MemberAssignment(said.owned, said.user_data)


@given(subscriptions)
def test_what_is_cut_off_anywhere_makes_no_sense(said: Subscription) -> None:
    """So a member whose bytes were damaged is found, and not taken for one that wants less."""
    written = write_subscription(said)
    assert [read_subscription(written[:end]) for end in range(len(written))] == [None] * len(written)
    assigned = write_assignment(MemberAssignment(said.owned, said.user_data))
    assert [read_assignment(assigned[:end]) for end in range(1, len(assigned))] == [None] * (len(assigned) - 1)


@given(st.binary(max_size=60))
def test_no_bytes_break_a_reader(garbage: bytes) -> None:
    for found in (read_subscription(garbage), read_assignment(garbage)):
        assert found is None or isinstance(found, Subscription | MemberAssignment)
    assert isinstance(read_owned_partitions(garbage), OwnedPartitions)
    assert isinstance(read_generation(garbage), int)
    assert read_weight(garbage) > 0


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\0", b"\xff\xff" + bytes(12), bytes.fromhex("00007fffffff"), bytes.fromhex("0000000000010002c3280000ffff")],
    ids=["nothing", "a byte", "version -1", "two thousand million topics", "no UTF-8"],
)
def test_garbage_is_no_subscription(garbage: bytes) -> None:
    assert read_subscription(garbage) is None


def test_no_bytes_are_an_assignment_of_nothing() -> None:
    """So a coordinator answers a member that its leader has left out."""
    assert read_assignment(b"") == MemberAssignment(())
    assert read_assignment(b"\xff\xff\0\0\0\0\xff\xff\xff\xff") is None


@pytest.mark.parametrize("version", [-1, 4])
def test_only_known_versions_are_written(version: int) -> None:
    with pytest.raises(ValueError, match=f"version {version} .* 0 to 3"):
        write_subscription(Subscription(()), version)
    with pytest.raises(ValueError, match=f"version {version} "):
        write_assignment(MemberAssignment(()), version)


def test_a_name_that_is_too_long_is_named() -> None:
    with pytest.raises(ValueError, match=r"'xxx.* has 40000 bytes; .* at most 32767"):
        write_subscription(Subscription(("x" * 40_000,)))


# --- what assignors put into the user data ---


@given(places, st.integers(-1, 2**31 - 1))
def test_stickys_user_data_are_those_of_aiokafka(partitions: tuple[TopicPartition, ...], generation: int) -> None:
    written = write_owned_partitions(OwnedPartitions(partitions, generation))
    assert read_owned_partitions(written) == OwnedPartitions(partitions, generation)
    assert written == AiokafkaUserData(by_topic(partitions), generation).encode()
    assert read_owned_partitions(written[:-4]) == OwnedPartitions(partitions, -1)  # version 0


@given(places, st.integers(-1, 2**31 - 1))
def test_stickys_user_data_of_kafka_python_are_understood(
    partitions: tuple[TopicPartition, ...], generation: int
) -> None:
    """It writes a version in front that Java does not write, so neither Java nor kafka-python understands the other."""
    item = KafkaPythonUserData.TopicPartition
    previous = [item(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions)]
    written = KafkaPythonUserData(previous_assignment=previous, generation=generation)
    assert read_owned_partitions(written.encode()) == OwnedPartitions(partitions, generation)
    assert written.encode(header=False) == write_owned_partitions(OwnedPartitions(partitions, generation))


def test_aiokafka_understands_our_sticky_member() -> None:
    own = MemberState(frozenset("ab"), (("a", 1), ("b", 0)), 7)
    said = write_subscription(Subscription(("a", "b"), Sticky().metadata(own), (), 7))
    read = AiokafkaSticky.parse_member_metadata(AiokafkaSubscription.decode(said))
    assert (read.partitions, read.generation) == ([("a", 1), ("b", 0)], 7)


def test_kafka_python_understands_our_cooperative_member() -> None:
    own = MemberState(frozenset("ab"), (("a", 1), ("b", 0)), 7)
    said = write_subscription(Subscription(("a", "b"), CooperativeSticky().metadata(own), own.owned, 7))
    read = KafkaPythonCooperative.parse_member_metadata(KafkaPythonSubscription.decode(said))
    assert (read.partitions, read.generation) == ([("a", 1), ("b", 0)], 7)


def test_a_generation_is_four_bytes_as_javas() -> None:
    assert CooperativeSticky().metadata(MemberState(frozenset("a"))) == b"\xff\xff\xff\xff" == write_generation(-1)
    assert read_generation(write_generation(41)) == 41
    assert read_generation(b"") == read_generation(b"\1\2\3") == -1


def test_a_new_sticky_member_has_no_user_data() -> None:
    assert Sticky().metadata(MemberState(frozenset("a"))) is None
    assert read_owned_partitions(b"") == OwnedPartitions()


@given(st.floats(1e-9, 1e9))
def test_a_weight_travels_in_the_user_data(weight: float) -> None:
    data = Weighted().metadata(MemberState(frozenset("a"), weight=weight)) or b""
    assert read_weight(data) == read_weight(data + b"more of a later version") == weight


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf"), 1e-10, 1e10])
def test_a_weight_is_positive(weight: float) -> None:
    with pytest.raises(ValueError, match=r"weight .*: expected 1e-09 to 1e\+09"):
        write_weight(weight)


def test_user_data_of_another_kind_weigh_one() -> None:
    nan = b"cbwt\0\0\x7f\xf8\0\0\0\0\0\0"
    assert {
        read_weight(data) for data in (b"", b"cbwt", b"x" * 14, nan, write_owned_partitions(OwnedPartitions()))
    } == {1.0}


def test_a_leader_sees_all_of_a_member() -> None:
    data = write_weight(2.5)
    said = Subscription(("a", "b"), data, (("a", 1),), 4, "r")
    assert to_member_subscription(JoinedMember("m", "i", b""), said) == member("m", "ab", [("a", 1)], 4, "i", data, 2.5)
    assert to_member_subscription(JoinedMember("m", None, b""), Subscription(())) == member("m", "")
