"""Passivation of idle groups, which clients cannot observe."""

from __future__ import annotations

import pytest
from actor_system.requests import GROUP, commit, fetch, join, leave
from actor_system.simulation import CoordinatorSimulation
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.errors import ErrorCode
from callboard.actors.group.active_group import IDLE_MS
from callboard.actors.group.offsets import GroupData, count_packed_types, packed_types
from callboard.actors.messages import Committed
from callboard.actors.records import CLASSIC, GroupValue, OffsetRecord, OffsetValue
from callboard.actors.timer.messages import Wake


@pytest.fixture
def simulation() -> CoordinatorSimulation:
    return CoordinatorSimulation()


def test_idle_group_is_passivated_and_activated_by_request(simulation: CoordinatorSimulation) -> None:
    """Offsets and generation are packed and restored."""
    [leader] = simulation.form_group({})
    for partition in (0, 3):
        simulation.post(commit(7, member_id=leader.member_id, generation_id=1, partition=partition, metadata="é"))
    simulation.post(leave(leader.member_id))
    listed_groups = simulation.listed()
    simulation.advance(2 * IDLE_MS)
    assert list(simulation.directory.passivated) == [GROUP]
    assert simulation.directory.groups == {}
    assert len(simulation.system.actors()) == 3, "coordinator, timer and writer"
    assert simulation.deadlines == 0, "all deadlines are cancelled"
    assert simulation.listed() == listed_groups
    assert simulation.listed(states=frozenset({"empty"})) == listed_groups
    assert simulation.listed(states=frozenset({"stable"})) == ()
    offsets = [fetched.offset for fetched in simulation.post(fetch(partitions=(0, 1, 3))).value.topics[0][1]]
    assert offsets == [7, -1, 7]
    assert simulation.directory.passivated == {}
    join_reply = simulation.post(join())
    simulation.advance(3000)
    assert join_reply.value.generation_id == 3, "generation 2 began when the last member left"


def test_used_group_is_not_passivated(simulation: CoordinatorSimulation) -> None:
    """Members, pending member ids and occasional commits keep it active."""
    simulation.form_group({"session_ms": 1_800_000})
    simulation.post(commit(1, group_id="simple"))
    for number in range(10):
        simulation.advance(IDLE_MS - 1)
        simulation.post(commit(number, group_id="simple"))
    assert sorted(simulation.directory.groups) == [GROUP, "simple"]
    simulation.advance(2 * IDLE_MS)
    assert list(simulation.directory.groups) == [GROUP]


def test_request_during_passivation_keeps_group_active(simulation: CoordinatorSimulation) -> None:
    """The request arrives at each possible time between the end of the turn and packing."""
    for turns in range(8):
        group_id = f"g{turns}"
        simulation.post(commit(5, group_id=group_id))
        simulation.clock.now_ms += IDLE_MS
        simulation.timer.tell(Wake(simulation.clock.now_ms))
        for _ in range(turns):
            simulation.dispatcher.step()
        commit_reply = simulation.send(commit(6, group_id=group_id))
        fetch_reply = simulation.send(fetch(group_id=group_id))
        simulation.run()
        assert commit_reply.value == Committed((ErrorCode.NONE,))
        assert not fetch_reply.is_waiting
        assert simulation.post(fetch(group_id=group_id)).value.topics[0][1][0].offset == 6


def test_loaded_groups_without_members_are_passivated(simulation: CoordinatorSimulation) -> None:
    simulation.form_group({})
    simulation.post(commit(3, group_id="simple"))
    restarted = CoordinatorSimulation(simulation.log.groups())
    assert (list(restarted.directory.groups), list(restarted.directory.passivated)) == ([GROUP], ["simple"])
    assert restarted.post(fetch(group_id="simple")).value.topics[0][1][0].offset == 3


LONGS = st.integers(-(2**63), 2**63 - 1)
EMPTY_GROUPS = st.builds(GroupValue, st.text(), st.integers(0), st.none(), st.none(), LONGS, st.just(()))
OFFSETS = st.builds(OffsetValue, LONGS, LONGS, st.just("") | st.text(), LONGS, st.just(-1) | LONGS)


@given(
    value=st.none() | EMPTY_GROUPS,
    commits=st.lists(st.tuples(st.text(max_size=3), st.integers(0, 9), OFFSETS)),
)
def test_unpacked_group_equals_packed_group(
    value: GroupValue | None, commits: list[tuple[str, int, OffsetValue]]
) -> None:
    data = GroupData()
    data.value = value
    for topic, partition, offset in commits:
        data.replay(OffsetRecord("g", topic, partition, offset))
    packed = data.pack()
    unpacked = GroupData.unpack(packed)
    assert (unpacked.value, list(unpacked.offsets)) == (data.value, list(data.offsets))
    assert packed_types(packed) == (CLASSIC, value.protocol_type if value else "")
    assert count_packed_types([packed, packed]) == {CLASSIC: 2}


def test_group_with_one_plain_offset_needs_little_memory() -> None:
    """There may be a million of them."""
    data = GroupData()
    data.replay(OffsetRecord("g", "orders", 3, OffsetValue(7, 2, "", 5, -1)))
    packed = data.pack()
    assert len(packed) < 65
    assert list(GroupData.unpack(packed).offsets) == list(data.offsets)
