"""A group with many offsets is unpacked in steps, and stays active afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from actor_system.instances import instance
from actor_system.manual_log import COMMITTED, fetch_offset
from actor_system.requests import GROUP, commit
from actor_system.simulation import CoordinatorSimulation

from callboard.actors.group.active_group import IDLE_MS
from callboard.actors.group.offsets import CHUNK_OFFSETS, STAYS_ACTIVE_BYTES, GroupData
from callboard.actors.memory import OFFSET_BYTES
from callboard.actors.messages import OffsetFetch
from callboard.actors.records import OffsetRecord, OffsetValue

OFFSETS = 10 * CHUNK_OFFSETS
ALL = OffsetFetch(GROUP, None)


def data_of(*topics: tuple[str, int]) -> GroupData:
    data = GroupData()
    for topic, count in topics:
        for partition in range(count):
            data.replay(OffsetRecord(GROUP, topic, partition, OffsetValue(partition + 7, -1, "m", 1, -1)))
    return data


def content(data: GroupData) -> Any:
    return [(topic, list(partitions.items())) for topic, partitions in data.offsets.topics()]


@pytest.mark.parametrize(
    "topics",
    [
        [("t", CHUNK_OFFSETS)],
        [("t", CHUNK_OFFSETS + 1)],
        [("a", 3), ("b", 2 * CHUNK_OFFSETS), ("c", 1)],
        [(f"t{number}", 5) for number in range(CHUNK_OFFSETS)],
    ],
    ids=["one chunk", "one more", "three topics", "many topics"],
)
def test_unpacked_data_equal_packed_data(topics: list[tuple[str, int]]) -> None:
    data = data_of(*topics)
    unpacked = GroupData.unpack(data.pack())
    assert content(unpacked) == content(data)
    assert unpacked.offsets.size_bytes == data.offsets.size_bytes
    assert len(unpacked.offsets) == len(data.offsets) == sum(count for _, count in topics)


def test_passivated_group_is_unpacked_in_steps_before_its_first_request() -> None:
    simulation = CoordinatorSimulation({GROUP: data_of(("t", OFFSETS)), "other": data_of(("t", 1))})
    assert GROUP in simulation.directory.passivated
    fetched = simulation.send(ALL)
    turns = 0
    while not fetched.answers:
        simulation.dispatcher.step()
        turns += 1
        if turns == OFFSETS // CHUNK_OFFSETS // 2:
            assert simulation.send(commit(group_id="other")).answers == []
            assert len(instance(simulation.directory.groups[GROUP]).data.packed_chunks) > 0
    assert turns > OFFSETS // CHUNK_OFFSETS
    [(_, offsets)] = fetched.value.topics
    assert [offset.offset for offset in offsets] == list(range(7, OFFSETS + 7))
    simulation.run()
    assert simulation.group().data.offsets.size_bytes == simulation.group().active.counted_offset_bytes


def test_bug_while_a_group_is_unpacked_loses_no_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = CoordinatorSimulation({GROUP: data_of(("t", OFFSETS))})
    restore, calls = GroupData._restore, []

    def broken(data: GroupData, topics: Any) -> None:
        calls.append(data)
        if len(calls) == 4:
            raise RuntimeError("a bug")
        restore(data, topics)

    monkeypatch.setattr(GroupData, "_restore", broken)
    fetched = simulation.post(ALL)
    [(_, offsets)] = fetched.value.topics
    assert [offset.offset for offset in offsets] == list(range(7, OFFSETS + 7))


def test_group_with_many_offsets_stays_active() -> None:
    count = STAYS_ACTIVE_BYTES // OFFSET_BYTES + 1
    simulation = CoordinatorSimulation({"few": data_of(("t", 1))})
    assert simulation.post(commit(5, group_id="few")).value == COMMITTED
    simulation.post(commit(5))
    simulation.group().data.offsets.restore("many", {number: OffsetValue(1) for number in range(count)})
    simulation.post(commit(6))
    simulation.advance(3 * IDLE_MS)
    assert "few" in simulation.directory.passivated
    assert GROUP in simulation.directory.groups
    assert fetch_offset(simulation) == 6
