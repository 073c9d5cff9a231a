"""Groups that nobody uses leave memory, and nobody can tell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage.requests import GROUP, commit, fetch, join, leave
from stage.world import World

from callboard.actors.errors import ErrorCode
from callboard.actors.group.actor import IDLE_MS
from callboard.actors.group.offsets import GroupData, packed_protocol_type
from callboard.actors.messages import Committed, ListGroups
from callboard.actors.records import GroupValue, OffsetRecord, OffsetValue
from callboard.actors.timer.messages import Wake


@pytest.fixture
def world() -> World:
    return World()


def test_a_group_that_nobody_uses_leaves_memory_and_comes_back(world: World) -> None:
    """Its offsets and its generation are packed; the next request finds all of it."""
    [leader] = world.form({})
    for partition in (0, 3):
        world.post(commit(7, member_id=leader.member_id, generation_id=1, partition=partition, metadata="é"))
    world.post(leave(leader.member_id))
    before = world.ask(ListGroups()).value
    world.advance(2 * IDLE_MS)
    assert list(world.directory.passivated) == [GROUP]
    assert world.directory.groups == {}
    assert len(world.system.actors()) == 3, "coordinator, timer and writer"
    assert world.deadlines == 0, "nobody waits for anything"
    assert world.ask(ListGroups()).value == before
    assert world.ask(ListGroups(states=frozenset({"empty"}))).value == before
    assert world.ask(ListGroups(states=frozenset({"stable"}))).value == ()
    offsets = [one.offset for one in world.post(fetch(partitions=(0, 1, 3))).value.topics[0][1]]
    assert offsets == [7, -1, 7]
    assert world.directory.passivated == {}
    joining = world.post(join())
    world.advance(3000)
    assert joining.value.generation_id == 3, "after the generation that ended with the last member"


def test_a_group_in_use_stays_awake(world: World) -> None:
    """Members, ids that were given away and commits now and then keep it."""
    world.form({"session_ms": 1_800_000})
    world.post(commit(1, group_id="simple"))
    for number in range(10):
        world.advance(IDLE_MS - 1)
        world.post(commit(number, group_id="simple"))
    assert sorted(world.directory.groups) == [GROUP, "simple"]
    world.advance(2 * IDLE_MS)
    assert list(world.directory.groups) == [GROUP]


def test_a_request_that_meets_a_group_on_its_way_out_keeps_it(world: World) -> None:
    """Whatever the moment between falling asleep and being packed at which it comes."""
    for steps in range(8):
        group_id = f"g{steps}"
        world.post(commit(5, group_id=group_id))
        world.clock.now_ms += IDLE_MS
        world.timer.tell(Wake())
        for _ in range(steps):
            world.dispatcher.step()
        late = world.send(commit(6, group_id=group_id))
        seen = world.send(fetch(group_id=group_id))
        world.run()
        assert late.value == Committed((ErrorCode.NONE,))
        assert not seen.is_waiting
        assert world.post(fetch(group_id=group_id)).value.topics[0][1][0].offset == 6


def test_groups_without_members_sleep_from_the_start(world: World) -> None:
    world.form({})
    world.post(commit(3, group_id="simple"))
    again = World(world.log.groups())
    assert (list(again.directory.groups), list(again.directory.passivated)) == ([GROUP], ["simple"])
    assert again.post(fetch(group_id="simple")).value.topics[0][1][0].offset == 3


LONGS = st.integers(-(2**63), 2**63 - 1)
EMPTY_GROUPS = st.builds(GroupValue, st.text(), st.integers(0), st.none(), st.none(), LONGS, st.just(()))
OFFSETS = st.builds(OffsetValue, LONGS, LONGS, st.text(), LONGS, LONGS)


@given(
    value=st.none() | EMPTY_GROUPS,
    commits=st.lists(st.tuples(st.text(max_size=3), st.integers(0, 9), OFFSETS)),
)
def test_packing_loses_nothing(value: GroupValue | None, commits: list[tuple[str, int, OffsetValue]]) -> None:
    data = GroupData()
    data.value = value
    for topic, partition, offset in commits:
        data.replay(OffsetRecord("g", topic, partition, offset))
    packed = data.pack()
    back = GroupData.unpack(packed)
    assert (back.value, list(back.offsets)) == (data.value, list(data.offsets))
    assert packed_protocol_type(packed) == (value.protocol_type if value else "")
