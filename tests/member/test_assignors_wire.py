"""Subscriptions, assignments and user data have the same bytes as those of Kafka's clients."""

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

from callboard.actors.assignors.assignment import read_assignment as read_sorted
from callboard.actors.assignors.base import MemberState, TopicPartition
from callboard.actors.assignors.consumer_protocol import (
    VERSION_MAX,
    MemberAssignment,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from callboard.actors.assignors.cooperative import CooperativeSticky
from callboard.actors.assignors.fallback import to_member_subscription
from callboard.actors.assignors.sticky import Sticky
from callboard.actors.assignors.user_data import (
    OwnedPartitions,
    read_generation,
    read_owned_partitions,
    read_weight,
    write_generation,
    write_owned_partitions,
    write_weight,
)
from callboard.actors.assignors.weighted import Weighted
from callboard.actors.messages import JoinedMember

# Written by Java's own classes.
JAVA = {
    0: "000000000002000161000162ffffffff",
    1: "000100000002000161000162ffffffff00000001000161000000020000000000000001",
    2: "000200000002000161000162ffffffff0000000100016100000002000000000000000100000005",
    3: "000300000002000161000162ffffffff000000010001610000000200000000000000010000000500027231",
}
# Written by librdkafka: with range, and with cooperative-sticky before and after the first assignment.
LIBRDKAFKA_RANGE = "0003000000020001610001620000000000000000ffffffff00027231"
LIBRDKAFKA_NEW = "000300000002000161000162000000080000000000000002000000000000000200027231"
LIBRDKAFKA_OWNER = (
    "0003000000020001610001620000001e000000020001610000000100000001000162000000010000000000000002"
    "0000000200016100000001000000010001620000000100000000000000020000"
)
LIBRDKAFKA_ASSIGNMENT = (
    "000000000002000161000000010000000100016200000001000000000000001e000000020001610000000100000001000162000000010000"
    "000000000002"
)

names = st.text("abcdef.-_0é", min_size=1, max_size=6)
partition_tuples = st.lists(st.tuples(names, st.integers(0, 20)), max_size=8, unique=True).map(sorted).map(tuple)
data = st.none() | st.binary(max_size=12)
subscriptions = st.builds(
    Subscription,
    st.lists(names, max_size=4, unique=True).map(sorted).map(tuple),
    data,
    partition_tuples,
    st.integers(-1, 2**31 - 1),
    st.none() | names,
)
versions = st.integers(0, VERSION_MAX)


def by_topic(partitions: tuple[TopicPartition, ...]) -> list[tuple[str, list[int]]]:
    topics = sorted({topic for topic, _ in partitions})
    return [(topic, [number for name, number in partitions if name == topic]) for topic in topics]


def encode_with_kafka_python(subscription: Subscription, version: int) -> bytes:
    """Encode with kafka-python."""
    owned = [KafkaPythonSubscription.TopicPartition(topic=t, partitions=p) for t, p in by_topic(subscription.owned)]
    rest = {"owned_partitions": owned, "generation_id": subscription.generation, "rack_id": subscription.rack_id}
    encoded: bytes = KafkaPythonSubscription(
        version=version, topics=list(subscription.topics), user_data=subscription.user_data, **rest
    ).encode()
    return encoded


def limit_to_version(version: int, subscription: Subscription) -> Subscription:
    """The subscription without the fields that a version lacks."""
    if version < 1:
        subscription = subscription._replace(owned=())
    if version < 2:
        subscription = subscription._replace(generation=-1)
    return subscription if version >= 3 else subscription._replace(rack_id=None)


@pytest.mark.parametrize("version", JAVA)
def test_subscription_bytes_equal_javas(version: int) -> None:
    subscription = Subscription(("b", "a"), None, (("a", 1), ("a", 0)), 5, "r1")
    assert write_subscription(subscription, version).hex() == JAVA[version]
    assert read_subscription(bytes.fromhex(JAVA[version])) == limit_to_version(
        version, Subscription(("a", "b"), None, (("a", 0), ("a", 1)), 5, "r1")
    )


def test_assignment_bytes_equal_javas() -> None:
    encoded = bytes.fromhex("0003000000020001610000000200000000000000010001620000000100000002ffffffff")
    empty = bytes.fromhex("000100000000ffffffff")
    assigned = MemberAssignment((("a", 0), ("a", 1), ("b", 2)))
    assert write_assignment(MemberAssignment((("b", 2), ("a", 1), ("a", 0)))) == encoded
    assert read_assignment(encoded) == assigned
    assert write_assignment(MemberAssignment(()), version=1) == empty
    assert read_assignment(empty) == MemberAssignment(())


def test_librdkafkas_subscription_and_assignment_are_decoded() -> None:
    ranged = read_subscription(bytes.fromhex(LIBRDKAFKA_RANGE))
    assert ranged == Subscription(("a", "b"), b"", (), -1, "r1")
    new = read_subscription(bytes.fromhex(LIBRDKAFKA_NEW))
    assert new is not None and (new.owned, new.generation, read_generation(new.user_data or b"")) == ((), 2, 2)
    owner = read_subscription(bytes.fromhex(LIBRDKAFKA_OWNER))
    assert owner is not None
    assert (owner.owned, owner.generation) == ((("a", 1), ("b", 0)), 2)
    assert read_owned_partitions(owner.user_data or b"") == OwnedPartitions(owner.owned, 2)
    assert read_generation(owner.user_data or b"") == 2
    assigned = read_assignment(bytes.fromhex(LIBRDKAFKA_ASSIGNMENT))
    assert assigned is not None and assigned.partitions == (("a", 1), ("b", 0))


@pytest.mark.parametrize("text", [LIBRDKAFKA_RANGE, LIBRDKAFKA_NEW, LIBRDKAFKA_OWNER])
def test_subscription_bytes_equal_librdkafkas(text: str) -> None:
    subscription = read_subscription(bytes.fromhex(text))
    assert subscription is not None and write_subscription(subscription).hex() == text


@given(subscriptions, versions)
def test_subscription_bytes_equal_kafka_pythons(subscription: Subscription, version: int) -> None:
    written = write_subscription(subscription, version)
    assert written == encode_with_kafka_python(subscription, version)
    assert read_subscription(written) == limit_to_version(version, subscription)


@given(partition_tuples, data, versions)
def test_assignment_bytes_equal_kafka_pythons(
    partitions: tuple[TopicPartition, ...], user: bytes, version: int
) -> None:
    written = write_assignment(MemberAssignment(partitions, user), version)
    assert written == KafkaPythonAssignment(version, by_topic(partitions), user).encode()
    assert read_assignment(written) == MemberAssignment(partitions, user)
    assert read_sorted(written) == partitions


@given(subscriptions, partition_tuples)
def test_aiokafka_decodes_and_encodes_the_same_bytes(
    subscription: Subscription, partitions: tuple[TopicPartition, ...]
) -> None:
    written = AiokafkaSubscription(0, list(subscription.topics), subscription.user_data).encode()
    assert written == write_subscription(subscription, 0)
    read = AiokafkaSubscription.decode(write_subscription(subscription))
    assert (tuple(read.subscription), read.user_data) == (subscription.topics, subscription.user_data)
    assigned = AiokafkaAssignment(0, by_topic(partitions), None).encode()
    assert assigned == write_assignment(MemberAssignment(partitions), 0)
    decoded = AiokafkaAssignment.decode(write_assignment(MemberAssignment(partitions)))
    assert tuple(tuple(partition) for partition in decoded.partitions()) == partitions


@given(subscriptions, st.integers(VERSION_MAX + 1, 32_767), st.binary(max_size=9))
def test_newer_version_is_decoded_as_version_max(subscription: Subscription, version: int, more: bytes) -> None:
    newer = version.to_bytes(2, "big") + write_subscription(subscription)[2:] + more
    assert read_subscription(newer) == subscription
    assigned = (
        version.to_bytes(2, "big")
        + write_assignment(MemberAssignment(subscription.owned, subscription.user_data))[2:]
        + more
    )
    assert read_assignment(assigned) == MemberAssignment(subscription.owned, subscription.user_data)


@given(subscriptions)
def test_truncated_subscription_or_assignment_is_decoded_as_none(subscription: Subscription) -> None:
    """So a damaged subscription is detected, and not decoded as one with fewer topics."""
    written = write_subscription(subscription)
    assert [read_subscription(written[:end]) for end in range(len(written))] == [None] * len(written)
    assigned = write_assignment(MemberAssignment(subscription.owned, subscription.user_data))
    assert [read_assignment(assigned[:end]) for end in range(1, len(assigned))] == [None] * (len(assigned) - 1)


@given(st.binary(max_size=60))
def test_decoding_arbitrary_bytes_raises_no_error(garbage: bytes) -> None:
    for decoded in (read_subscription(garbage), read_assignment(garbage)):
        assert decoded is None or isinstance(decoded, Subscription | MemberAssignment)
    assert isinstance(read_owned_partitions(garbage), OwnedPartitions)
    assert isinstance(read_generation(garbage), int)
    assert read_weight(garbage) > 0


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\0", b"\xff\xff" + bytes(12), bytes.fromhex("00007fffffff"), bytes.fromhex("0000000000010002c3280000ffff")],
    ids=["nothing", "a byte", "version -1", "two billion topics", "no UTF-8"],
)
def test_invalid_subscription_is_decoded_as_none(garbage: bytes) -> None:
    assert read_subscription(garbage) is None


def test_no_bytes_are_decoded_as_an_empty_assignment() -> None:
    """The coordinator sends them to a member that the leader left out."""
    assert read_assignment(b"") == MemberAssignment(())
    assert read_assignment(b"\xff\xff\0\0\0\0\xff\xff\xff\xff") is None


@pytest.mark.parametrize("version", [-1, 4])
def test_encoding_an_unknown_version_raises_value_error(version: int) -> None:
    with pytest.raises(ValueError, match=f"version {version} .* 0 to 3"):
        write_subscription(Subscription(()), version)
    with pytest.raises(ValueError, match=f"version {version} "):
        write_assignment(MemberAssignment(()), version)


def test_topic_name_longer_than_a_kafka_string_raises_value_error() -> None:
    with pytest.raises(ValueError, match=r"'xxx.* has 40000 bytes; .* at most 32767"):
        write_subscription(Subscription(("x" * 40_000,)))


# --- user data ---


@given(partition_tuples, st.integers(-1, 2**31 - 1))
def test_sticky_user_data_equal_aiokafkas(partitions: tuple[TopicPartition, ...], generation: int) -> None:
    written = write_owned_partitions(OwnedPartitions(partitions, generation))
    assert read_owned_partitions(written) == OwnedPartitions(partitions, generation)
    assert written == AiokafkaUserData(by_topic(partitions), generation).encode()
    assert read_owned_partitions(written[:-4]) == OwnedPartitions(partitions, -1)  # version 0


@given(partition_tuples, st.integers(-1, 2**31 - 1))
def test_sticky_user_data_of_kafka_python_are_decoded(partitions: tuple[TopicPartition, ...], generation: int) -> None:
    """kafka-python writes a version first, which Java does not, so the two cannot decode each other's."""
    item = KafkaPythonUserData.TopicPartition
    previous = [item(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions)]
    written = KafkaPythonUserData(previous_assignment=previous, generation=generation)
    assert read_owned_partitions(written.encode()) == OwnedPartitions(partitions, generation)
    assert written.encode(header=False) == write_owned_partitions(OwnedPartitions(partitions, generation))


def test_aiokafka_decodes_sticky_metadata() -> None:
    own = MemberState(frozenset("ab"), (("a", 1), ("b", 0)), 7)
    subscription = write_subscription(Subscription(("a", "b"), Sticky().metadata(own), (), 7))
    read = AiokafkaSticky.parse_member_metadata(AiokafkaSubscription.decode(subscription))
    assert (read.partitions, read.generation) == ([("a", 1), ("b", 0)], 7)


def test_kafka_python_decodes_cooperative_metadata() -> None:
    own = MemberState(frozenset("ab"), (("a", 1), ("b", 0)), 7)
    subscription = write_subscription(Subscription(("a", "b"), CooperativeSticky().metadata(own), own.owned, 7))
    read = KafkaPythonCooperative.parse_member_metadata(KafkaPythonSubscription.decode(subscription))
    assert (read.partitions, read.generation) == ([("a", 1), ("b", 0)], 7)


def test_cooperative_metadata_is_the_generation_in_four_bytes() -> None:
    assert CooperativeSticky().metadata(MemberState(frozenset("a"))) == b"\xff\xff\xff\xff" == write_generation(-1)
    assert read_generation(write_generation(41)) == 41
    assert read_generation(b"") == read_generation(b"\1\2\3") == -1


def test_sticky_metadata_of_a_new_member_is_null() -> None:
    assert Sticky().metadata(MemberState(frozenset("a"))) is None
    assert read_owned_partitions(b"") == OwnedPartitions()


@given(st.floats(1e-9, 1e9))
def test_weight_is_decoded_from_user_data(weight: float) -> None:
    data = Weighted().metadata(MemberState(frozenset("a"), weight=weight)) or b""
    assert read_weight(data) == read_weight(data + b"more of a later version") == weight


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf"), 1e-10, 1e10])
def test_weight_out_of_range_raises_value_error(weight: float) -> None:
    with pytest.raises(ValueError, match=r"weight .*: expected 1e-09 to 1e\+09"):
        write_weight(weight)


def test_weight_of_other_user_data_is_one() -> None:
    nan = b"cbwt\0\0\x7f\xf8\0\0\0\0\0\0"
    assert {
        read_weight(data) for data in (b"", b"cbwt", b"x" * 14, nan, write_owned_partitions(OwnedPartitions()))
    } == {1.0}


def test_member_subscription_has_all_fields_of_the_joined_member() -> None:
    data = write_weight(2.5)
    subscription = Subscription(("a", "b"), data, (("a", 1),), 4, "r")
    expected = member("m", "ab", [("a", 1)], 4, "i", data, 2.5)._replace(rack_id="r")
    assert to_member_subscription(JoinedMember("m", "i", b""), subscription) == expected
    assert to_member_subscription(JoinedMember("m", None, b""), Subscription(())) == member("m", "")
