"""Expiry of offsets (KIP-211), to the millisecond, in virtual time."""

from __future__ import annotations

import struct

import pytest
from actor_system.instances import instance
from actor_system.ports import WALL_MS
from actor_system.requests import GROUP, commit, fetch, join, leave, sync
from actor_system.simulation import CoordinatorSimulation
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.coordinator import group_scan as scan
from callboard.actors.coordinator import retention
from callboard.actors.errors import ErrorCode
from callboard.actors.group import expiry
from callboard.actors.group.offsets import GroupData, packed_may_have_expired
from callboard.actors.messages import DescribeGroup, ExplainGroup, Protocol
from callboard.actors.recorder import expiries
from callboard.actors.recorder.expiries import ExpiredOffsets
from callboard.actors.recorder.now import OffsetsNow
from callboard.actors.records import (
    GroupRecord,
    GroupValue,
    MarkerRecord,
    OffsetRecord,
    OffsetValue,
    PendingOffsetRecord,
)
from callboard.actors.steps import run_steps
from callboard.actors.timer.messages import Expired

RETENTION_MS = 7 * 24 * 60 * 60_000
CHECK_MS = 600_000
LONGEST_SESSION_MS = 2**31 - 1  # 24 days


@pytest.fixture
def simulation() -> CoordinatorSimulation:
    return without_heartbeats(CoordinatorSimulation())


def without_heartbeats(simulation: CoordinatorSimulation) -> CoordinatorSimulation:
    """A simulation whose members need no heartbeats."""
    simulation.settings.group_max_session_timeout_ms = LONGEST_SESSION_MS
    return simulation


def consumers_of(*topics: str) -> tuple[Protocol, ...]:
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return (Protocol("range", struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", -1)),)


def stable(simulation: CoordinatorSimulation, *topics: str) -> str:
    [member] = simulation.form_group({"protocols": consumers_of(*topics), "session_ms": LONGEST_SESSION_MS})
    member_id: str = member.member_id
    return member_id


def advance_to(simulation: CoordinatorSimulation, wall_ms: int) -> None:
    simulation.advance(wall_ms - simulation.clock.wall_ms())


def scan_at(simulation: CoordinatorSimulation, wall_ms: int) -> None:
    """Run a retention scan at this wall-clock time."""
    advance_to(simulation, wall_ms)
    run_retention_scan(simulation)


def run_retention_scan(simulation: CoordinatorSimulation) -> None:
    simulation.coordinator.tell(Expired((retention.RETENTION_SCAN,)))
    simulation.run()


def durable_offsets(simulation: CoordinatorSimulation, group_id: str = GROUP) -> list[tuple[str, int]]:
    """The durable offsets of a group, as (topic, partition)."""
    data = simulation.log.groups().get(group_id, GroupData())
    return [(topic, partition) for topic, partition, _ in data.offsets]


def is_listed(simulation: CoordinatorSimulation, group_id: str = GROUP) -> bool:
    return group_id in [group.group_id for group in simulation.listed()]


# Expiry times --------------------------------------------------------------------------------------------------------


def test_offsets_of_simple_group_expire_by_commit_time(simulation: CoordinatorSimulation) -> None:
    """Each offset expires separately. The last one deletes the group, which gets a tombstone too, as in Kafka."""
    simulation.post(commit(1, topic="early"))
    early_ms = simulation.clock.wall_ms()
    simulation.advance(1000)
    simulation.post(commit(1, topic="late"))
    scan_at(simulation, early_ms + RETENTION_MS - 1)
    assert durable_offsets(simulation) == [("early", 0), ("late", 0)]
    scan_at(simulation, early_ms + RETENTION_MS)
    assert durable_offsets(simulation) == [("late", 0)]
    assert is_listed(simulation)
    scan_at(simulation, early_ms + RETENTION_MS + 1000)
    assert durable_offsets(simulation) == []
    assert not is_listed(simulation)
    assert [record for _, record in simulation.log.durable][-2:] == [
        OffsetRecord(GROUP, "late", 0, None),
        GroupRecord(GROUP, None),
    ]
    assert (simulation.directory.groups, dict(simulation.directory.passivated)) == ({}, {})


def test_offsets_of_empty_group_expire_by_time_since_empty(simulation: CoordinatorSimulation) -> None:
    """All expire together when the group has been empty for the retention time; commit times do not matter."""
    member = stable(simulation, "t")
    simulation.post(commit(1, member_id=member, generation_id=1))
    simulation.advance(2 * RETENTION_MS)
    assert durable_offsets(simulation) == [("t", 0)]
    simulation.post(leave(member))
    empty_ms = simulation.clock.wall_ms()
    simulation.advance(1000)
    simulation.post(commit(1, topic="by a tool"))
    scan_at(simulation, empty_ms + RETENTION_MS - 1)
    assert durable_offsets(simulation) == [("t", 0), ("by a tool", 0)]
    scan_at(simulation, empty_ms + RETENTION_MS)
    assert durable_offsets(simulation) == []
    assert not is_listed(simulation)


def test_offsets_of_unsubscribed_topics_expire_in_stable_group(simulation: CoordinatorSimulation) -> None:
    member = stable(simulation, "t")
    for topic in ("t", "u"):
        simulation.post(commit(1, topic=topic, member_id=member, generation_id=1))
    at_ms = simulation.clock.wall_ms()
    scan_at(simulation, at_ms + RETENTION_MS - 1)
    assert durable_offsets(simulation) == [("t", 0), ("u", 0)]
    scan_at(simulation, at_ms + RETENTION_MS)
    assert durable_offsets(simulation) == [("t", 0)]
    simulation.advance(RETENTION_MS)
    assert durable_offsets(simulation) == [("t", 0)]
    assert simulation.post(DescribeGroup(GROUP)).value.state == "Stable"


def test_group_with_members_stays_after_all_offsets_expired(simulation: CoordinatorSimulation) -> None:
    member = stable(simulation, "t")
    simulation.post(commit(1, topic="u", member_id=member, generation_id=1))
    simulation.advance(2 * RETENTION_MS)
    assert durable_offsets(simulation) == []
    assert simulation.post(DescribeGroup(GROUP)).value.state == "Stable"


@pytest.mark.parametrize("protocol_type", ["connect", "consumer"])
def test_offsets_do_not_expire_if_subscriptions_are_unknown(
    simulation: CoordinatorSimulation, protocol_type: str
) -> None:
    """Members of another protocol type, and consumers with invalid subscriptions."""
    invalid_protocols = (Protocol("range", b"nonsense"),)
    join_reply = simulation.post(
        join(protocol_type=protocol_type, protocols=invalid_protocols, session_ms=LONGEST_SESSION_MS)
    )
    simulation.advance(3000)
    member = join_reply.value
    simulation.post(sync(member.member_id, 1, {member.member_id: b"all"}, protocol_type=protocol_type))
    simulation.post(commit(1, member_id=member.member_id, generation_id=1))
    assert simulation.post(DescribeGroup(GROUP)).value.state == "Stable"
    simulation.advance(2 * RETENTION_MS)
    assert durable_offsets(simulation) == [("t", 0)]


def test_offsets_do_not_expire_during_rebalance(simulation: CoordinatorSimulation) -> None:
    """Not even offsets with an explicit retention."""
    member = stable(simulation, "t")
    own_time = commit(1, topic="u", member_id=member, generation_id=1)._replace(retention_ms=1000)
    simulation.post(own_time)
    join_reply = simulation.post(join(protocols=consumers_of("t"), session_ms=LONGEST_SESSION_MS))
    assert join_reply.is_waiting
    scan_at(simulation, simulation.clock.wall_ms() + 2000)
    assert durable_offsets(simulation) == [("u", 0)]
    simulation.advance(60_000)
    assert simulation.post(DescribeGroup(GROUP)).value.state == "CompletingRebalance"
    scan_at(simulation, simulation.clock.wall_ms())
    assert durable_offsets(simulation) == [("u", 0)]


@pytest.mark.parametrize("retention_ms", [1000, 2 * RETENTION_MS])
def test_offset_with_explicit_retention_expires_at_that_time(
    simulation: CoordinatorSimulation, retention_ms: int
) -> None:
    """OffsetCommit v2 to v4: earlier or later than other offsets, to the millisecond, also in a passivated group."""
    simulation.post(commit(1)._replace(retention_ms=retention_ms))
    due_ms = simulation.clock.wall_ms() + retention_ms
    scan_at(simulation, due_ms - 1)
    assert durable_offsets(simulation) == [("t", 0)]
    scan_at(simulation, due_ms)
    assert durable_offsets(simulation) == []


def test_new_commit_restarts_offset_age(simulation: CoordinatorSimulation) -> None:
    simulation.post(commit(1))
    simulation.advance(RETENTION_MS - CHECK_MS)
    simulation.post(commit(2))
    at_ms = simulation.clock.wall_ms()
    scan_at(simulation, at_ms + RETENTION_MS - 1)
    assert durable_offsets(simulation) == [("t", 0)]
    scan_at(simulation, at_ms + RETENTION_MS)
    assert durable_offsets(simulation) == []


def test_empty_group_without_offsets_is_deleted_by_retention_scan(simulation: CoordinatorSimulation) -> None:
    """The age of the group does not matter. A group with only a pending member id is deleted too."""
    simulation.post(join(version=4, group_id="pending"))
    member = stable(simulation, "t")
    simulation.post(leave(member))
    assert is_listed(simulation)
    simulation.advance(CHECK_MS)
    assert simulation.listed() == ()
    assert {record for _, record in simulation.log.durable} >= {GroupRecord(GROUP, None), GroupRecord("pending", None)}


def test_offsets_expire_by_commit_time_if_empty_since_is_unknown() -> None:
    data = GroupData()
    data.replay(GroupRecord(GROUP, GroupValue("consumer", 3, None, None, -1, ())))
    data.replay(OffsetRecord(GROUP, "t", 0, OffsetValue(1, commit_timestamp_ms=WALL_MS)))
    simulation = CoordinatorSimulation({GROUP: data})
    scan_at(simulation, WALL_MS + RETENTION_MS - 1)
    assert is_listed(simulation)
    scan_at(simulation, WALL_MS + RETENTION_MS)
    assert not is_listed(simulation)


def test_changed_retention_applies_at_run_time(simulation: CoordinatorSimulation) -> None:
    """Packed data contain commit times, not expiry times."""
    simulation.post(commit(1))
    simulation.advance(300_000)
    assert list(simulation.directory.passivated) == [GROUP]
    simulation.settings.offsets_retention_minutes = 10
    simulation.settings.offsets_retention_check_interval_ms = 1000
    simulation.advance(CHECK_MS)
    assert durable_offsets(simulation) == []


def test_pending_offset_prevents_expiry_of_offset_and_group(simulation: CoordinatorSimulation) -> None:
    """The offset that it would replace stays; other offsets expire."""
    for topic in ("t", "u"):
        simulation.post(commit(1, topic=topic))
    pending = PendingOffsetRecord(GROUP, "t", 0, OffsetValue(5, commit_timestamp_ms=WALL_MS), 7, 0)
    simulation.group().data.replay(pending)
    scan_at(simulation, simulation.clock.wall_ms() + RETENTION_MS)
    assert durable_offsets(simulation) == [("t", 0)]
    simulation.tell(GROUP, MarkerRecord(7, 0, False))
    run_retention_scan(simulation)
    assert durable_offsets(simulation) == []
    assert not is_listed(simulation)


def test_open_transaction_prevents_deletion_of_group_without_offsets(simulation: CoordinatorSimulation) -> None:
    simulation.post(join(version=4))
    simulation.group().data.replay(PendingOffsetRecord(GROUP, "t", 0, OffsetValue(5), 7, 0))
    run_retention_scan(simulation)
    assert is_listed(simulation)


# Concurrent requests -------------------------------------------------------------------------------------------------


def test_commit_in_flight_prevents_expiry_of_its_offset() -> None:
    """It was sent before the tombstones; later requests wait for them."""
    simulation = CoordinatorSimulation(holds_appends=True)
    simulation.post(commit(1, topic="old"))
    simulation.complete_all_appends()
    simulation.post(commit(1, topic="t"))
    simulation.complete_all_appends()
    simulation.advance(RETENTION_MS - 1)
    commit_reply = simulation.post(commit(2))
    simulation.clock.now_ms += 1
    run_retention_scan(simulation)
    late_reply = simulation.post(commit(7, topic="old"))
    assert commit_reply.is_waiting and late_reply.is_waiting
    simulation.complete_all_appends()
    assert commit_reply.value.errors == late_reply.value.errors == (ErrorCode.NONE,)
    assert durable_offsets(simulation) == [("t", 0), ("old", 0)]
    offsets = {topic: value.offset for topic, _, value in simulation.group().data.offsets}
    assert offsets == {"t": 2, "old": 7}


def test_commits_in_flight_for_all_expired_offsets_prevent_deletion() -> None:
    simulation = CoordinatorSimulation(holds_appends=True)
    simulation.post(commit(1))
    simulation.complete_all_appends()
    simulation.advance(RETENTION_MS - 1)
    commit_reply = simulation.post(commit(2))
    simulation.clock.now_ms += 1
    run_retention_scan(simulation)
    join_reply = simulation.post(join())
    simulation.complete_all_appends()
    assert commit_reply.value.errors == (ErrorCode.NONE,)
    assert durable_offsets(simulation) == [("t", 0)]
    simulation.advance(3000)
    assert join_reply.error is ErrorCode.NONE
    assert simulation.group().active.in_flight.is_idle


def test_failed_tombstones_are_retried_by_next_retention_scan() -> None:
    simulation = CoordinatorSimulation(holds_appends=True)
    simulation.post(commit(1))
    simulation.complete_all_appends()
    simulation.advance(RETENTION_MS + CHECK_MS)
    commit_reply = simulation.post(commit(1, topic="u"))
    simulation.fail()
    simulation.complete_all_appends()
    assert commit_reply.value.errors == (ErrorCode.NONE,)
    assert durable_offsets(simulation) == [("t", 0), ("u", 0)]
    simulation.advance(CHECK_MS)
    simulation.complete_all_appends()
    assert durable_offsets(simulation) == [("u", 0)]


def test_expired_offsets_stay_deleted_after_restart(simulation: CoordinatorSimulation) -> None:
    simulation.post(commit(1))
    simulation.post(commit(1, group_id="other"))
    half_ms = simulation.clock.now_ms + RETENTION_MS // 2
    restarted = CoordinatorSimulation(simulation.log.groups(), log=simulation.log)
    restarted.clock.now_ms = half_ms
    assert restarted.post(fetch()).value.topics[0][1][0].offset == 1
    restarted.advance(RETENTION_MS)
    assert durable_offsets(restarted) == durable_offsets(restarted, "other") == []
    assert CoordinatorSimulation(restarted.log.groups()).listed() == ()


def test_expired_offsets_are_deleted_in_batches() -> None:
    """The group is deleted with the last batch, unless an offset is committed in between."""
    count = 2 * expiry.BATCH + 1
    data = GroupData()
    for partition in range(count):
        data.replay(OffsetRecord(GROUP, "t", partition, OffsetValue(1, commit_timestamp_ms=WALL_MS)))
    simulation = CoordinatorSimulation({GROUP: data})
    scan_at(simulation, WALL_MS + RETENTION_MS)
    sizes = [len(entry.records) for entries in simulation.log.rounds for entry in entries]
    assert sizes == [expiry.BATCH, expiry.BATCH, 2]
    assert not is_listed(simulation)


# What is remembered of it --------------------------------------------------------------------------------------------


def expired(simulation: CoordinatorSimulation) -> ExpiredOffsets | None:
    return simulation.directory.event_log.recorder.expiries.find(GROUP)


def test_expiry_is_remembered_also_when_it_has_ended_the_group() -> None:
    simulation = CoordinatorSimulation()
    simulation.post(commit(1, topic="early"))
    early_ms = simulation.clock.wall_ms()
    simulation.advance(1000)
    simulation.post(commit(1, topic="late"))
    assert expired(simulation) is None
    scan_at(simulation, early_ms + RETENTION_MS)
    assert expired(simulation) == ExpiredOffsets(early_ms + RETENTION_MS, 1, ("early",), False, False)
    assert simulation.post(ExplainGroup(GROUP)).value.now.offsets.expired == expired(simulation)
    late_ms = early_ms + RETENTION_MS + 1000
    scan_at(simulation, late_ms)
    assert expired(simulation) == ExpiredOffsets(late_ms, 1, ("late",), False, True)
    absent = simulation.directory.event_log.recorder.absent(GROUP, late_ms + 5)
    assert absent is not None
    assert (absent.state, absent.now_ms) == ("Dead", late_ms + 5)
    assert absent.offsets == OffsetsNow(0, expired=expired(simulation))
    assert simulation.directory.event_log.recorder.absent("another", 0) is None


def test_expiry_in_several_batches_is_one(simulation: CoordinatorSimulation) -> None:
    member = stable(simulation, "t")
    count = 2 * expiry.BATCH + 1
    for partition in range(count):
        simulation.post(commit(1, topic="u", partition=partition, member_id=member, generation_id=1))
    scan_at(simulation, simulation.clock.wall_ms() + RETENTION_MS)
    found = expired(simulation)
    assert found is not None
    assert (found.offset_count, found.topics, found.with_members, found.ended_group) == (count, ("u",), True, False)


def test_expiries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiries, "GROUPS_MAX", 2)
    remembered, some = expiries.Expiries(), ExpiredOffsets(0, 1, tuple("abcdef"), False, False)
    for name in ("a", "b", "a", "c"):
        remembered.note(name, some, is_last=True)
    assert [remembered.find(name) is not None for name in "abc"] == [True, False, True]
    assert remembered.find("a") == some._replace(topics=tuple("abcde"))


# Many groups ---------------------------------------------------------------------------------------------------------


def test_retention_scan_activates_only_groups_with_expired_offsets(simulation: CoordinatorSimulation) -> None:
    for number in range(20):
        simulation.post(commit(1, group_id=f"g{number}"))
    simulation.advance(300_000)
    assert len(simulation.directory.passivated) == 20
    simulation.advance(RETENTION_MS - 300_000 - CHECK_MS)
    assert len(simulation.directory.passivated) == 20
    active_groups = simulation.directory.groups
    assert active_groups == {}


def test_retention_scan_of_many_groups_limits_pending_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of active groups is limited, and each part waits until the previous one is durable."""
    monkeypatch.setattr(scan, "GROUPS_PER_TURN", 40)
    monkeypatch.setattr(scan, "MAX_PENDING_GROUPS", 10)
    groups = {}
    for number in range(1000):
        data = groups[f"g{number}"] = GroupData()
        committed_ms = WALL_MS if number % 2 else WALL_MS + RETENTION_MS
        data.replay(OffsetRecord(f"g{number}", "t", 0, OffsetValue(1, commit_timestamp_ms=committed_ms)))
    simulation = CoordinatorSimulation(groups, holds_appends=True)
    advance_to(simulation, WALL_MS + RETENTION_MS)
    simulation.advance(CHECK_MS)
    scan_turns = 0
    while simulation.log.in_flight:
        scan_turns += 1
        assert len(simulation.log.in_flight) <= 10
        assert len(simulation.directory.groups) <= 10
        simulation.complete_append()
    assert scan_turns >= 50
    assert sorted(simulation.directory.passivated) == sorted(name for name in groups if int(name[1:]) % 2 == 0)
    assert simulation.directory.groups == {}


def test_retention_scan_longer_than_its_interval_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MAX_PENDING_GROUPS", 1)
    simulation = CoordinatorSimulation(holds_appends=True)
    for number in range(3):
        simulation.send(commit(1, group_id=f"g{number}"))
    simulation.run()
    simulation.complete_all_appends()
    simulation.advance(RETENTION_MS)
    simulation.advance(3 * CHECK_MS)
    simulation.complete_all_appends()
    assert simulation.listed() == ()
    simulation.post(commit(1))
    simulation.complete_all_appends()
    simulation.advance(RETENTION_MS + CHECK_MS)
    simulation.complete_all_appends()
    assert simulation.listed() == (), "the later scans delete the remaining groups"


@pytest.mark.parametrize("seed", range(20))
def test_joins_and_commits_wait_while_offsets_expire(seed: int) -> None:
    """Commits acknowledged after the scan began are kept, in any order of turns."""
    simulation = CoordinatorSimulation(seed=seed)
    simulation.post(commit(1))
    simulation.clock.now_ms += RETENTION_MS
    simulation.coordinator.tell(Expired((retention.RETENTION_SCAN,)))
    commit_replies = [simulation.send(commit(number)) for number in range(2, 5)]
    join_reply = simulation.send(join(version=4))
    simulation.run()
    assert all(reply.value.errors == (ErrorCode.NONE,) for reply in commit_replies)
    assert join_reply.error is ErrorCode.MEMBER_ID_REQUIRED
    assert simulation.post(fetch()).value.topics[0][1][0].offset == 4


OFFSETS = st.builds(
    OffsetValue,
    st.integers(0, 9),
    commit_timestamp_ms=st.integers(0, 100),
    expire_timestamp_ms=st.just(-1) | st.integers(0, 300),
)
VALUES = st.none() | st.builds(
    GroupValue,
    st.sampled_from(["", "consumer", "x"]),
    st.just(1),
    st.none(),
    st.none(),
    st.integers(-1, 100),
    st.just(()),
)


@given(
    value=VALUES, offsets=st.lists(OFFSETS, max_size=4), now_ms=st.integers(0, 400), retention_ms=st.integers(1, 200)
)
def test_packed_may_have_expired_agrees_with_find_expired(
    value: GroupValue | None, offsets: list[OffsetValue], now_ms: int, retention_ms: int
) -> None:
    simulation = CoordinatorSimulation()
    data = GroupData()
    data.value = value
    for partition, offset in enumerate(offsets):
        data.replay(OffsetRecord(GROUP, "t", partition, offset))
    number = simulation.directory.partitions.number_of(GROUP)
    group = instance(simulation.coordinator)._groups.start(GROUP, number, GroupData.unpack(data.pack()))
    simulation.run()
    classic = instance(group).group
    candidates = run_steps(expiry.find_expired(classic, data, now_ms, retention_ms))
    batch = expiry.next_expired(classic, data, candidates, now_ms, retention_ms)
    assert bool(batch.records) is packed_may_have_expired(data.pack(), now_ms, retention_ms)
