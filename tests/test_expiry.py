"""Old offsets go, as KIP-211 says: to the millisecond, and nothing that somebody may still need. In virtual time."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage.ports import WALL_MS
from stage.requests import GROUP, commit, fetch, join, leave, sync
from stage.world import World

from callboard.actors.coordinator import group_scan as scan
from callboard.actors.coordinator import retention as sweep
from callboard.actors.errors import ErrorCode
from callboard.actors.group import expiry
from callboard.actors.group.offsets import GroupData, packed_may_have_expired
from callboard.actors.messages import DescribeGroup, ListGroups, Protocol
from callboard.actors.records import (
    GroupRecord,
    GroupValue,
    MarkerRecord,
    OffsetRecord,
    OffsetValue,
    PendingOffsetRecord,
)
from callboard.actors.timer.messages import Expired

RETENTION_MS = 7 * 24 * 60 * 60_000
CHECK_MS = 600_000
FOR_EVER_MS = 2**31 - 1  # a session of 24 days


@pytest.fixture
def world() -> World:
    return patient(World())


def patient(world: World) -> World:
    """Where members need not be heard."""
    world.rules.group_max_session_timeout_ms = FOR_EVER_MS
    return world


def consumers_of(*topics: str) -> tuple[Protocol, ...]:
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return (Protocol("range", struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", -1)),)


def stable(world: World, *topics: str) -> str:
    [member] = world.form({"protocols": consumers_of(*topics), "session_ms": FOR_EVER_MS})
    member_id: str = member.member_id
    return member_id


def advance_to(world: World, wall_ms: int) -> None:
    world.advance(wall_ms - world.clock.wall_ms())


def sweep_at(world: World, wall_ms: int) -> None:
    """One sweep at this time of the wall clock, wherever the regular ones stand."""
    advance_to(world, wall_ms)
    ring(world)


def ring(world: World) -> None:
    world.coordinator.tell(Expired((sweep.RETENTION_SCAN,)))
    world.run()


def kept(world: World, group_id: str = GROUP) -> list[tuple[str, int]]:
    """What of a group is durable, by its records in the log."""
    data = world.log.groups().get(group_id, GroupData())
    return [(topic, partition) for topic, partition, _ in data.offsets]


def is_listed(world: World, group_id: str = GROUP) -> bool:
    return group_id in [one.group_id for one in world.ask(ListGroups()).value]


# Which, and when -----------------------------------------------------------------------------------------------------


def test_a_simple_groups_offsets_go_by_their_commit(world: World) -> None:
    """Each for itself; the group with the last of them, with a tombstone of its own as in Kafka."""
    world.post(commit(1, topic="early"))
    early_ms = world.clock.wall_ms()
    world.advance(1000)
    world.post(commit(1, topic="late"))
    sweep_at(world, early_ms + RETENTION_MS - 1)
    assert kept(world) == [("early", 0), ("late", 0)]
    sweep_at(world, early_ms + RETENTION_MS)
    assert kept(world) == [("late", 0)]
    assert is_listed(world)
    sweep_at(world, early_ms + RETENTION_MS + 1000)
    assert kept(world) == []
    assert not is_listed(world)
    assert [record for _, record in world.log.durable][-2:] == [
        OffsetRecord(GROUP, "late", 0, None),
        GroupRecord(GROUP, None),
    ]
    assert (world.directory.groups, world.directory.passivated) == ({}, {})


def test_an_empty_groups_offsets_go_when_it_has_been_empty_for_long(world: World) -> None:
    """However old the commits are; and together, as soon as the group has been without members for long enough."""
    member = stable(world, "t")
    world.post(commit(1, member_id=member, generation_id=1))
    world.advance(2 * RETENTION_MS)
    assert kept(world) == [("t", 0)]
    world.post(leave(member))
    empty_ms = world.clock.wall_ms()
    world.advance(1000)
    world.post(commit(1, topic="by a tool"))
    sweep_at(world, empty_ms + RETENTION_MS - 1)
    assert kept(world) == [("t", 0), ("by a tool", 0)]
    sweep_at(world, empty_ms + RETENTION_MS)
    assert kept(world) == []
    assert not is_listed(world)


def test_a_stable_groups_offsets_go_where_nobody_subscribes(world: World) -> None:
    member = stable(world, "t")
    for topic in ("t", "u"):
        world.post(commit(1, topic=topic, member_id=member, generation_id=1))
    at_ms = world.clock.wall_ms()
    sweep_at(world, at_ms + RETENTION_MS - 1)
    assert kept(world) == [("t", 0), ("u", 0)]
    sweep_at(world, at_ms + RETENTION_MS)
    assert kept(world) == [("t", 0)]
    world.advance(RETENTION_MS)
    assert kept(world) == [("t", 0)]
    assert world.post(DescribeGroup(GROUP)).value.state == "Stable"


def test_a_group_with_members_outlives_all_its_offsets(world: World) -> None:
    member = stable(world, "t")
    world.post(commit(1, topic="u", member_id=member, generation_id=1))
    world.advance(2 * RETENTION_MS)
    assert kept(world) == []
    assert world.post(DescribeGroup(GROUP)).value.state == "Stable"


@pytest.mark.parametrize("protocol_type", ["connect", "consumer"])
def test_nothing_goes_where_nobody_knows_what_is_subscribed_to(world: World, protocol_type: str) -> None:
    """Members that are no consumers, and consumers whose subscription makes no sense."""
    nonsense = (Protocol("range", b"nonsense"),)
    joining = world.post(join(protocol_type=protocol_type, protocols=nonsense, session_ms=FOR_EVER_MS))
    world.advance(3000)
    member = joining.value
    world.post(sync(member.member_id, 1, {member.member_id: b"all"}, protocol_type=protocol_type))
    world.post(commit(1, member_id=member.member_id, generation_id=1))
    assert world.post(DescribeGroup(GROUP)).value.state == "Stable"
    world.advance(2 * RETENTION_MS)
    assert kept(world) == [("t", 0)]


def test_nothing_goes_while_the_group_rebalances(world: World) -> None:
    """Not even what has a time of its own."""
    member = stable(world, "t")
    own_time = commit(1, topic="u", member_id=member, generation_id=1)._replace(retention_ms=1000)
    world.post(own_time)
    joining = world.post(join(protocols=consumers_of("t"), session_ms=FOR_EVER_MS))
    assert joining.is_waiting
    sweep_at(world, world.clock.wall_ms() + 2000)
    assert kept(world) == [("u", 0)]
    world.advance(60_000)
    assert world.post(DescribeGroup(GROUP)).value.state == "CompletingRebalance"
    sweep_at(world, world.clock.wall_ms())
    assert kept(world) == [("u", 0)]


@pytest.mark.parametrize("retention_ms", [1000, 2 * RETENTION_MS])
def test_an_offset_with_a_time_of_its_own_goes_then(world: World, retention_ms: int) -> None:
    """OffsetCommit v2 to v4: earlier or later than the others, to the millisecond, also in a group that sleeps."""
    world.post(commit(1)._replace(retention_ms=retention_ms))
    due_ms = world.clock.wall_ms() + retention_ms
    sweep_at(world, due_ms - 1)
    assert kept(world) == [("t", 0)]
    sweep_at(world, due_ms)
    assert kept(world) == []


def test_a_commit_makes_an_offset_young_again(world: World) -> None:
    world.post(commit(1))
    world.advance(RETENTION_MS - CHECK_MS)
    world.post(commit(2))
    at_ms = world.clock.wall_ms()
    sweep_at(world, at_ms + RETENTION_MS - 1)
    assert kept(world) == [("t", 0)]
    sweep_at(world, at_ms + RETENTION_MS)
    assert kept(world) == []


def test_an_empty_group_without_offsets_goes_with_the_next_sweep(world: World) -> None:
    """However young: also one that was made for an id that nobody came back with."""
    world.post(join(version=4, group_id="pending"))
    member = stable(world, "t")
    world.post(leave(member))
    assert is_listed(world)
    world.advance(CHECK_MS)
    assert world.ask(ListGroups()).value == ()
    assert {record for _, record in world.log.durable} >= {GroupRecord(GROUP, None), GroupRecord("pending", None)}


def test_an_old_record_does_not_say_since_when_the_group_is_empty() -> None:
    """Then the commits count."""
    data = GroupData()
    data.replay(GroupRecord(GROUP, GroupValue("consumer", 3, None, None, -1, ())))
    data.replay(OffsetRecord(GROUP, "t", 0, OffsetValue(1, commit_timestamp_ms=WALL_MS)))
    world = World({GROUP: data})
    sweep_at(world, WALL_MS + RETENTION_MS - 1)
    assert is_listed(world)
    sweep_at(world, WALL_MS + RETENTION_MS)
    assert not is_listed(world)


def test_the_retention_may_change_while_the_system_runs(world: World) -> None:
    """What sleeps is packed with the times of its commits, not with that of its end."""
    world.post(commit(1))
    world.advance(300_000)
    assert list(world.directory.passivated) == [GROUP]
    world.rules.offsets_retention_minutes = 10
    world.rules.offsets_retention_check_interval_ms = 1000
    world.advance(CHECK_MS)
    assert kept(world) == []


def test_an_open_transaction_keeps_its_offset_and_its_group(world: World) -> None:
    """What it is about to replace stays, however old; what it has nothing to do with goes."""
    for topic in ("t", "u"):
        world.post(commit(1, topic=topic))
    pending = PendingOffsetRecord(GROUP, "t", 0, OffsetValue(5, commit_timestamp_ms=WALL_MS), 7, 0)
    world.group().data.replay(pending)
    sweep_at(world, world.clock.wall_ms() + RETENTION_MS)
    assert kept(world) == [("t", 0)]
    world.tell(GROUP, MarkerRecord(7, 0, False))
    ring(world)
    assert kept(world) == []
    assert not is_listed(world)


def test_an_open_transaction_keeps_a_group_without_offsets(world: World) -> None:
    world.post(join(version=4))
    world.group().data.replay(PendingOffsetRecord(GROUP, "t", 0, OffsetValue(5), 7, 0))
    ring(world)
    assert is_listed(world)


# With others ---------------------------------------------------------------------------------------------------------


def test_a_commit_on_its_way_saves_its_offset() -> None:
    """It was there before the tombstone would be written; and who comes meanwhile waits, then meets what is left."""
    world = World(holds_back=True)
    world.post(commit(1, topic="old"))
    world.keep_all()
    world.post(commit(1, topic="t"))
    world.keep_all()
    world.advance(RETENTION_MS - 1)
    saving = world.post(commit(2))
    world.clock.now_ms += 1
    ring(world)
    late = world.post(commit(7, topic="old"))
    assert saving.is_waiting and late.is_waiting
    world.keep_all()
    assert saving.value.errors == late.value.errors == (ErrorCode.NONE,)
    assert kept(world) == [("t", 0), ("old", 0)]
    offsets = {topic: value.offset for topic, _, value in world.group().data.offsets}
    assert offsets == {"t": 2, "old": 7}


def test_all_that_was_old_is_saved_on_its_way() -> None:
    world = World(holds_back=True)
    world.post(commit(1))
    world.keep_all()
    world.advance(RETENTION_MS - 1)
    saving = world.post(commit(2))
    world.clock.now_ms += 1
    ring(world)
    joining = world.post(join())
    world.keep_all()
    assert saving.value.errors == (ErrorCode.NONE,)
    assert kept(world) == [("t", 0)]
    world.advance(3000)
    assert joining.error is ErrorCode.NONE
    assert world.group()._in_flight.is_idle


def test_tombstones_that_cannot_be_kept_are_tried_again() -> None:
    world = World(holds_back=True)
    world.post(commit(1))
    world.keep_all()
    world.advance(RETENTION_MS + CHECK_MS)
    waiting = world.post(commit(1, topic="u"))
    world.fail()
    world.keep_all()
    assert waiting.value.errors == (ErrorCode.NONE,)
    assert kept(world) == [("t", 0), ("u", 0)]
    world.advance(CHECK_MS)
    world.keep_all()
    assert kept(world) == [("u", 0)]


def test_a_restart_forgets_nothing_and_revives_nothing(world: World) -> None:
    world.post(commit(1))
    world.post(commit(1, group_id="other"))
    half_ms = world.clock.now_ms + RETENTION_MS // 2
    again = World(world.log.groups(), log=world.log)
    again.clock.now_ms = half_ms
    assert again.post(fetch()).value.topics[0][1][0].offset == 1
    again.advance(RETENTION_MS)
    assert kept(again) == kept(again, "other") == []
    assert World(again.log.groups()).ask(ListGroups()).value == ()


def test_more_than_fits_one_batch_goes_in_several() -> None:
    """And the group goes with the last of them; one that is saved in between lives on."""
    count = 2 * expiry.BATCH + 1
    data = GroupData()
    for partition in range(count):
        data.replay(OffsetRecord(GROUP, "t", partition, OffsetValue(1, commit_timestamp_ms=WALL_MS)))
    world = World({GROUP: data})
    sweep_at(world, WALL_MS + RETENTION_MS)
    sizes = [len(entry.records) for entries in world.log.rounds for entry in entries]
    assert sizes == [expiry.BATCH, expiry.BATCH, 2]
    assert not is_listed(world)


# Many, and asleep ----------------------------------------------------------------------------------------------------


def test_groups_that_sleep_are_not_woken_for_nothing(world: World) -> None:
    for number in range(20):
        world.post(commit(1, group_id=f"g{number}"))
    world.advance(300_000)
    assert len(world.directory.passivated) == 20
    world.advance(RETENTION_MS - 300_000 - CHECK_MS)
    assert len(world.directory.passivated) == 20
    made = world.directory.groups
    assert made == {}


def test_thousands_grow_old_together_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more are awake than are asked at once, and each slice waits until the one before is durable."""
    monkeypatch.setattr(scan, "GROUPS_PER_TURN", 40)
    monkeypatch.setattr(scan, "MAX_PENDING_GROUPS", 10)
    groups = {}
    for number in range(1000):
        data = groups[f"g{number}"] = GroupData()
        committed_ms = WALL_MS if number % 2 else WALL_MS + RETENTION_MS
        data.replay(OffsetRecord(f"g{number}", "t", 0, OffsetValue(1, commit_timestamp_ms=committed_ms)))
    world = World(groups, holds_back=True)
    advance_to(world, WALL_MS + RETENTION_MS)
    world.advance(CHECK_MS)
    rounds = 0
    while world.log.in_flight:
        rounds += 1
        assert len(world.log.in_flight) <= 10
        assert len(world.directory.groups) <= 10
        world.keep()
    assert rounds >= 50
    assert sorted(world.directory.passivated) == sorted(name for name in groups if int(name[1:]) % 2 == 0)
    assert world.directory.groups == {}


def test_a_sweep_that_takes_longer_than_its_interval_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MAX_PENDING_GROUPS", 1)
    world = World(holds_back=True)
    for number in range(3):
        world.send(commit(1, group_id=f"g{number}"))
    world.run()
    world.keep_all()
    world.advance(RETENTION_MS)
    world.advance(3 * CHECK_MS)
    world.keep_all()
    assert world.ask(ListGroups()).value == ()
    world.post(commit(1))
    world.keep_all()
    world.advance(RETENTION_MS + CHECK_MS)
    world.keep_all()
    assert world.ask(ListGroups()).value == (), "the next sweeps come"


@pytest.mark.parametrize("seed", range(20))
def test_members_and_commits_meanwhile(seed: int) -> None:
    """Whatever the order: what was acknowledged after the sweep began is there."""
    world = World(seed=seed)
    world.post(commit(1))
    world.clock.now_ms += RETENTION_MS
    world.coordinator.tell(Expired((sweep.RETENTION_SCAN,)))
    late = [world.send(commit(number)) for number in range(2, 5)]
    joining = world.send(join(version=4))
    world.run()
    assert all(place.value.errors == (ErrorCode.NONE,) for place in late)
    assert joining.error is ErrorCode.MEMBER_ID_REQUIRED
    assert world.post(fetch()).value.topics[0][1][0].offset == 4


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
def test_what_is_packed_says_when_to_wake_it(
    value: GroupValue | None, offsets: list[OffsetValue], now_ms: int, retention_ms: int
) -> None:
    """Exactly when ``find_expired`` finds something."""
    world = World()
    data = GroupData()
    data.value = value
    for partition, offset in enumerate(offsets):
        data.replay(OffsetRecord(GROUP, "t", partition, offset))
    group = world.coordinator.actor_inbox.actor._spawn_group(GROUP, GroupData.unpack(data.pack()))
    world.run()
    found = expiry.find_expired(group.actor_inbox.actor._group, data, now_ms, retention_ms)
    assert bool(found.records) is packed_may_have_expired(data.pack(), now_ms, retention_ms)
