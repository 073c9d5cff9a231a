"""Deletion and expiry of groups whose tombstones do not fit into one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from actor_system.ports import ManualLog
from actor_system.requests import GROUP, commit
from actor_system.simulation import CoordinatorSimulation

from callboard.actors.errors import ErrorCode
from callboard.actors.group.expiry import BATCH
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import Committed, DeleteGroup
from callboard.actors.ports import NO_EPOCHS, Appended, Entry
from callboard.actors.records import OffsetRecord, OffsetValue

RETENTION_MS = 7 * 24 * 3_600_000


class SmallLog(ManualLog):
    """A log that limits the number of records of an entry. The real log limits bytes."""

    def __init__(self, records_max: int) -> None:
        super().__init__()
        self.most = records_max

    def append(
        self,
        entries: Sequence[Entry],
        timestamp_ms: int,
        done: Callable[[Sequence[Appended]], None],
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> None:
        super().append(entries, timestamp_ms, done, epochs)
        too_large, none = ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE
        self.settle([too_large if len(entry.records) > self.most else none for entry in entries])


def group_with_offsets(offsets: int) -> GroupData:
    data = GroupData()
    for partition in range(offsets):
        data.replay(OffsetRecord(GROUP, "t", partition, OffsetValue(1, commit_timestamp_ms=0)))
    return data


def simulation_with_offsets(offsets: int, records_max: int) -> tuple[CoordinatorSimulation, SmallLog]:
    log = SmallLog(records_max)
    return CoordinatorSimulation({GROUP: group_with_offsets(offsets)}, log=log), log


@pytest.mark.parametrize("offsets", [1, BATCH - 1, BATCH, BATCH + 1, 3 * BATCH + 7])
def test_large_group_is_deleted_in_batches(offsets: int) -> None:
    simulation, log = simulation_with_offsets(offsets, BATCH)
    assert simulation.ask(DeleteGroup(GROUP)).value is ErrorCode.NONE
    assert len(log.durable) == offsets + 1
    assert log.groups()[GROUP].is_empty()
    assert simulation.listed() == ()


@pytest.mark.parametrize("records_max", [1, 2, 7, 100])
def test_delete_halves_batch_that_is_too_large(records_max: int) -> None:
    """With long names, 500 tombstones may exceed 1 MiB."""
    simulation, log = simulation_with_offsets(650, records_max)
    assert simulation.ask(DeleteGroup(GROUP)).value is ErrorCode.NONE
    assert log.groups()[GROUP].is_empty()
    assert len(log.durable) == 651


def test_expiry_halves_batch_that_is_too_large() -> None:
    simulation, log = simulation_with_offsets(650, 7)
    simulation.advance(RETENTION_MS + 600_000)
    assert log.groups()[GROUP].is_empty()


def test_delete_with_too_large_record_returns_error() -> None:
    simulation, log = simulation_with_offsets(5, 0)
    assert simulation.ask(DeleteGroup(GROUP)).value is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not log.durable


def test_commits_during_delete_wait_for_last_batch() -> None:
    simulation = CoordinatorSimulation({GROUP: group_with_offsets(2 * BATCH)}, holds_appends=True)
    delete_reply = simulation.post(DeleteGroup(GROUP))
    commit_reply = simulation.post(commit(9, partition=3))
    for _ in range(2):
        simulation.log.complete_append()
        simulation.run()
        assert delete_reply.is_waiting and commit_reply.is_waiting
    simulation.complete_all_appends()
    assert delete_reply.value is ErrorCode.NONE
    assert commit_reply.value == Committed((ErrorCode.NONE,))
    assert len(simulation.log.groups()[GROUP].offsets) == 1


def test_delete_can_be_repeated_after_failed_batch() -> None:
    simulation = CoordinatorSimulation({GROUP: group_with_offsets(2 * BATCH)}, holds_appends=True)
    failed_reply = simulation.post(DeleteGroup(GROUP))
    simulation.log.complete_append()
    simulation.run()
    simulation.log.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    simulation.run()
    assert failed_reply.value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    second_reply = simulation.post(DeleteGroup(GROUP))
    simulation.complete_all_appends()
    assert second_reply.value is ErrorCode.NONE
    assert simulation.log.groups()[GROUP].is_empty()
