"""Which members may commit and fetch offsets. The expected codes are those of Kafka 4.3.1."""

from __future__ import annotations

import pytest
from consumer_group.group_world import GROUP, Topics, World

from callboard.actors.consumer_group.offsets import check_commit, check_fetch, check_txn_commit
from callboard.actors.consumer_group.records import ClassicMember, MemberRecord
from callboard.actors.errors import ErrorCode
from callboard.actors.messages import Commit, OffsetCommit, OffsetFetch, TxnOffsetCommit

METADATA_MAX = 10
NONE, UNKNOWN_MEMBER, ILLEGAL, STALE, UNSUPPORTED = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.UNSUPPORTED_VERSION,
)


def commits(text: str, metadata: str = "") -> tuple[Commit, ...]:
    return tuple(Commit(item[0], int(item[1:]), 5, -1, metadata) for item in text.split())


def commit(world: World, member_id: str, epoch: int, text: str = "t0", metadata: str = "") -> ErrorCode:
    request = OffsetCommit(GROUP, member_id, None, epoch, commits(text, metadata))
    return check_commit(world.state, request, world.topics, METADATA_MAX)


def commit_before_version_9(world: World, member_id: str, epoch: int) -> ErrorCode:
    request = OffsetCommit(GROUP, member_id, None, epoch, commits("t0"), supports_group_id_not_found=False)
    return check_commit(world.state, request, world.topics, METADATA_MAX)


def txn_commit(
    world: World, member_id: str, epoch: int, text: str = "t0", instance_id: str | None = None, metadata: str = ""
) -> ErrorCode:
    request = TxnOffsetCommit(GROUP, "x", 1, 1, member_id, instance_id, epoch, commits(text, metadata))
    return check_txn_commit(world.state, request, world.topics, METADATA_MAX)


def fetch(world: World, member_id: str | None, epoch: int) -> ErrorCode:
    return check_fetch(world.state, OffsetFetch(GROUP, None, False, member_id, epoch))


def make_classic(world: World, member_id: str) -> None:
    about = world.state.members[member_id].about._replace(classic=ClassicMember(45_000, (("range", b""),)))
    world.state.replay(MemberRecord(GROUP, member_id, about))


@pytest.fixture
def world() -> World:
    """Member m has t0 and t1 since epoch 2 and has to give back t2, for which n waits. u exists, v does not."""
    world = World(Topics(t=3, u=1))
    world.join("m", "t")
    world.join("n", "t")
    world.beat("m", 2, owned="t0 t1 t2")
    assert (world.assigned("m"), world.pending("m"), world.assigned("n")) == ("t0 t1", "t2", "")
    return world


@pytest.fixture
def later(world: World) -> World:
    """m is at epoch 3 with t0 and t1 since epoch 2, n has t2 since epoch 3."""
    world.beat("m", 2, owned="t0 t1")
    world.beat("n", 3, owned="")
    assert (world.assigned("m"), world.assigned("n")) == ("t0 t1", "t2")
    assert [member.current.member_epoch for member in world.state.members.values()] == [3, 3]
    return world


@pytest.mark.parametrize(
    ("member_id", "epoch", "partitions", "expected"),
    [
        ("m", 3, "t0 t1", NONE),
        ("m", 3, "u0 v7", NONE),  # at the current epoch partitions are not looked at
        ("m", 2, "t0 t1", NONE),  # it was on its way when the epoch rose
        ("m", 2, "t0 t2", STALE),  # given back meanwhile
        ("m", 1, "t0", STALE),  # before the partition was the member's
        ("m", 2, "u0", STALE),
        ("m", 2, "v0", STALE),
        ("m", 4, "t0", STALE),
        ("n", 2, "t2", STALE),
        ("x", 3, "t0", UNKNOWN_MEMBER),
        ("", -1, "t0", UNKNOWN_MEMBER),  # without a member, while the group has members
        ("m", -1, "t0", STALE),
    ],
)
def test_commits_by_epoch(later: World, member_id: str, epoch: int, partitions: str, expected: ErrorCode) -> None:
    assert commit(later, member_id, epoch, partitions) is expected


def test_a_partition_that_is_to_be_given_back_can_be_committed(later: World) -> None:
    later.join("o", "t")
    later.beat("m", 3, owned="t0 t1")
    assert (later.assigned("m"), later.pending("m")) == ("t0", "t1")
    assert commit(later, "m", 2, "t0 t1") is NONE
    assert commit(later, "m", 1, "t1") is STALE
    assert commit(later, "n", 2, "t1") is STALE


def test_one_stale_partition_fails_the_whole_commit(later: World) -> None:
    assert commit(later, "m", 2, "t0 t1 t2") is STALE


def test_partitions_with_too_much_metadata_are_not_looked_at(later: World) -> None:
    """They have an error of their own."""
    assert commit(later, "m", 2, "t2", "x" * METADATA_MAX) is STALE
    assert commit(later, "m", 2, "t2", "x" * (METADATA_MAX + 1)) is NONE
    assert commit(later, "m", 2, "t2", "\U0001f600" * (METADATA_MAX // 2)) is STALE
    assert commit(later, "m", 2, "t2", "\U0001f600" * (METADATA_MAX // 2 + 1)) is NONE


def test_simple_commits_need_an_empty_group(later: World) -> None:
    later.remove("m", "n")
    assert commit(later, "", -1) is NONE
    assert commit(later, "m", 3) is UNKNOWN_MEMBER
    assert txn_commit(later, "m", -1) is NONE


def test_members_of_the_consumer_protocol_need_version_9(later: World) -> None:
    assert commit_before_version_9(later, "m", 3) is UNSUPPORTED
    assert commit_before_version_9(later, "m", 99) is UNSUPPORTED
    assert commit_before_version_9(later, "x", 3) is UNKNOWN_MEMBER
    make_classic(later, "m")
    assert commit_before_version_9(later, "m", 3) is NONE


@pytest.mark.parametrize(("epoch", "partitions"), [(4, "t0"), (2, "t2"), (1, "t0")])
def test_classic_members_get_an_illegal_generation(later: World, epoch: int, partitions: str) -> None:
    make_classic(later, "m")
    assert commit(later, "m", epoch, partitions) is ILLEGAL
    assert fetch(later, "m", epoch) is ILLEGAL
    assert commit(later, "m", 2, "t0") is NONE


@pytest.mark.parametrize(
    ("member_id", "epoch", "partitions", "instance_id", "expected"),
    [
        ("m", 3, "t0", None, NONE),
        ("m", 2, "t0", None, NONE),
        ("m", 4, "t0", None, ILLEGAL),
        ("m", 1, "t0", None, ILLEGAL),
        ("m", 2, "t2", None, ILLEGAL),
        ("m", 2, "v0", None, ILLEGAL),
        ("x", 3, "t0", None, UNKNOWN_MEMBER),
        ("", -1, "t0", None, NONE),  # a producer without group metadata
        ("", -1, "t0", "seat", UNKNOWN_MEMBER),
        ("", -2, "t0", None, UNKNOWN_MEMBER),
        ("m", -1, "t0", None, ILLEGAL),
    ],
)
def test_commits_in_transactions(
    later: World, member_id: str, epoch: int, partitions: str, instance_id: str | None, expected: ErrorCode
) -> None:
    assert txn_commit(later, member_id, epoch, partitions, instance_id) is expected


@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [
        (None, -1, NONE),
        (None, 3, UNKNOWN_MEMBER),
        ("", -1, UNKNOWN_MEMBER),
        ("x", 3, UNKNOWN_MEMBER),
        ("m", 3, NONE),
        ("m", 2, STALE),
        ("m", 4, STALE),
        ("m", -1, STALE),
    ],
)
def test_fetches_need_the_current_epoch(later: World, member_id: str | None, epoch: int, expected: ErrorCode) -> None:
    assert fetch(later, member_id, epoch) is expected
