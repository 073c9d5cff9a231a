"""Commits and fetches of offsets of a consumer group, their expiry, and the events of the group."""

from __future__ import annotations

from typing import Any

import pytest
from actor_system.requests import fetch
from consumer_group.actor_world import GROUP, ActorWorld, two_members

from callboard.actors.consumer_group import group
from callboard.actors.consumer_group.subscriptions import subscribed_topics
from callboard.actors.errors import ErrorCode
from callboard.actors.group.events import Kind, Reason
from callboard.actors.messages import (
    Commit,
    DescribeEvents,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    TxnOffsetCommit,
)


@pytest.fixture
def world() -> ActorWorld:
    return ActorWorld()


# Offsets -------------------------------------------------------------------------------------------------------------


def commit_of(member_id: str, epoch: int, partition: int = 0, **fields: Any) -> OffsetCommit:
    return OffsetCommit(GROUP, member_id, None, epoch, (Commit("t", partition, 7, -1, ""),), **fields)


def errors_of(world: ActorWorld, request: Any) -> set[ErrorCode]:
    return set(world.post(request).value.errors)


def test_commits_of_members_are_checked_by_epoch() -> None:
    world = two_members()
    assert errors_of(world, commit_of("a", 3)) == {ErrorCode.NONE}
    assert errors_of(world, commit_of("a", 4)) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert errors_of(world, commit_of("x", 3)) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert errors_of(world, commit_of("", -1)) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert errors_of(world, commit_of("a", 3, supports_group_id_not_found=False)) == {ErrorCode.UNSUPPORTED_VERSION}


def test_commit_of_an_earlier_epoch_counts_for_partitions_that_the_member_had_then() -> None:
    """KIP-1251. One partition with too old an epoch fails the whole commit."""
    world = two_members()
    kept = [int(name[1:]) for name in str(world.assigned()["a"]).split()]
    other = ({0, 1, 2} - set(kept)).pop()
    assert errors_of(world, commit_of("a", 2, kept[0])) == {ErrorCode.NONE}
    assert errors_of(world, commit_of("a", 1, kept[0])) == {ErrorCode.STALE_MEMBER_EPOCH}
    both = commit_of("a", 2, kept[0])._replace(
        commits=(*commit_of("a", 2, kept[0]).commits, Commit("t", other, 7, -1, ""))
    )
    assert errors_of(world, both) == {ErrorCode.STALE_MEMBER_EPOCH}
    unknown = commit_of("a", 2)._replace(commits=(Commit("absent", 0, 7, -1, ""),))
    assert errors_of(world, unknown) == {ErrorCode.STALE_MEMBER_EPOCH}


def test_transactional_commits_have_their_own_error() -> None:
    world = two_members()
    commits = commit_of("a", 3).commits
    for member_id, epoch, expected in (
        ("a", 3, ErrorCode.NONE),
        ("a", 4, ErrorCode.ILLEGAL_GENERATION),
        ("a", 1, ErrorCode.ILLEGAL_GENERATION),
        ("x", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.NONE),
    ):
        request = TxnOffsetCommit(GROUP, "tx", 1, 0, member_id, None, epoch, commits)
        assert errors_of(world, request) == {expected}, (member_id, epoch)


def test_simple_commits_need_an_empty_group(world: ActorWorld) -> None:
    world.join("a")
    assert errors_of(world, commit_of("", -1)) == {ErrorCode.UNKNOWN_MEMBER_ID}
    world.beat("a", -1)
    assert errors_of(world, commit_of("", -1)) == {ErrorCode.NONE}


def test_fetches_of_members_are_checked_by_epoch() -> None:
    world = two_members()
    world.post(commit_of("a", 3))
    topics = (("t", (0,)),)

    def fetched(*member: Any) -> ErrorCode:
        error: ErrorCode = world.post(OffsetFetch(GROUP, topics, False, *member)).value.error
        return error

    assert fetched() is ErrorCode.NONE
    assert fetched("a", 3) is ErrorCode.NONE
    assert fetched("a", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetched("x", 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_subscribed_topics_are_not_deleted(world: ActorWorld) -> None:
    world.join("a")
    world.post(commit_of("a", 2))
    assert world.post(OffsetDelete(GROUP, (("t", (0,)),))).value.topics == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,)
    world.join("a", "jobs")
    assert world.post(OffsetDelete(GROUP, (("t", (0,)),))).value.topics == (ErrorCode.NONE,)


def test_topics_of_a_group_are_collected_once_for_all_topics_of_a_request(
    world: ActorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request may have 50,000 topics, and so may a subscription."""
    world.join("a")
    calls: list[None] = []

    def counted(*arguments: Any) -> Any:
        calls.append(None)
        return subscribed_topics(*arguments)

    monkeypatch.setattr(group, "subscribed_topics", counted)
    request = OffsetDelete(GROUP, tuple((name, (0,)) for name in ("t", "u", "v")))
    assert world.post(request).value.topics == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.NONE)
    assert len(calls) == 1


def test_offsets_expire_and_an_empty_group_with_them(world: ActorWorld) -> None:
    world.settings.offsets_retention_minutes = 60
    world.settings.group_consumer_session_timeout_ms = 10**9
    world.join("a")
    world.post(commit_of("a", 2))
    world.advance(2 * 60 * 60_000)
    assert world.post(fetch(group_id=GROUP)).value.topics[0][1][0].offset == 7, "a member is subscribed"
    world.beat("a", -1)
    world.advance(2 * world.settings.offsets_retention_check_interval_ms)
    assert world.listed() == ()


# Events --------------------------------------------------------------------------------------------------------------


def events(world: ActorWorld) -> list[tuple[str, str, str, str, int]]:
    described = world.post(DescribeEvents(GROUP)).value.events
    return [(event.kind, event.reason, event.state, event.member_id, event.generation) for event in described]


def test_events_tell_what_happened_and_why(world: ActorWorld) -> None:
    world.join("a")
    world.join("b")
    world.settle("a", "b")
    world.beat("b", -1)
    assert events(world) == [
        (Kind.MEMBER_ADDED, Reason.MEMBER_JOINED, "Stable", "a", 2),
        (Kind.STATE_CHANGED, Reason.MEMBER_JOINED, "Assigning", "a", 2),
        (Kind.STATE_CHANGED, Reason.ALL_HAVE_TARGET, "Stable", "a", 2),
        (Kind.MEMBER_ADDED, Reason.MEMBER_JOINED, "Reconciling", "b", 3),
        (Kind.STATE_CHANGED, Reason.MEMBER_JOINED, "Assigning", "b", 3),
        (Kind.STATE_CHANGED, Reason.TARGET_CHANGED, "Reconciling", "b", 3),
        (Kind.STATE_CHANGED, Reason.ALL_HAVE_TARGET, "Stable", "b", 3),
        (Kind.MEMBER_REMOVED, Reason.MEMBER_LEFT, "Assigning", "b", 4),
        (Kind.STATE_CHANGED, Reason.MEMBER_LEFT, "Assigning", "b", 4),
    ]


def test_events_of_a_failed_append_are_not_reported(world: ActorWorld) -> None:
    world.join("a")
    before = events(world)
    world.holds_appends = True
    world.join("b")
    world.fail()
    world.holds_appends = False
    assert events(world) == before
    assert sum(world.directory.rebalances.started.values()) == 1


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (Reason.SESSION_EXPIRED, lambda world: world.advance(45_000)),
        (Reason.MEMBER_LEFT, lambda world: world.beat("a", -1)),
        (Reason.ADMIN, lambda world: world.post(LeaveGroup(GROUP, (LeavingMember("", "i"),)))),
        (Reason.MEMBER_LEFT, lambda world: world.post(LeaveGroup(GROUP, (LeavingMember("a", "i"),)))),
    ],
)
def test_events_of_the_last_member(world: ActorWorld, reason: Reason, cause: Any) -> None:
    world.join("a", instance_id="i")
    if reason is Reason.MEMBER_LEFT:
        world.beat("a", 2, instance_id="i")
    cause(world)
    if not world.consumer_group.soft.members:
        assert events(world)[-2:] == [
            (Kind.MEMBER_REMOVED, reason, "Empty", "a", 3),
            (Kind.STATE_CHANGED, Reason.NO_MEMBERS, "Empty", "a", 3),
        ]
