"""Groups that do not fit one batch of the log can be deleted all the same, and expire, whatever their names' length."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from stage.ports import HandLog
from stage.requests import GROUP, commit
from stage.world import World

from callboard.actors.errors import ErrorCode
from callboard.actors.group.expiry import BATCH
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import Committed, DeleteGroup, ListGroups
from callboard.actors.ports import Appended, Entry
from callboard.actors.records import OffsetRecord, OffsetValue

RETENTION_MS = 7 * 24 * 3_600_000


class SmallLog(HandLog):
    """A log that refuses an entry of more than so many records, as the real one does by bytes."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def append(self, entries: Sequence[Entry], timestamp_ms: int, done: Callable[[Sequence[Appended]], None]) -> None:
        super().append(entries, timestamp_ms, done)
        too_large, none = ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE
        self.settle([too_large if len(entry.records) > self.most else none for entry in entries])


def group_of(offsets: int) -> GroupData:
    data = GroupData()
    for partition in range(offsets):
        data.replay(OffsetRecord(GROUP, "t", partition, OffsetValue(1, commit_timestamp_ms=0)))
    return data


def world_with(offsets: int, most: int) -> tuple[World, SmallLog]:
    log = SmallLog(most)
    return World({GROUP: group_of(offsets)}, log=log), log


@pytest.mark.parametrize("offsets", [1, BATCH - 1, BATCH, BATCH + 1, 3 * BATCH + 7])
def test_a_group_is_deleted_in_several_batches(offsets: int) -> None:
    world, log = world_with(offsets, BATCH)
    assert world.ask(DeleteGroup(GROUP)).value is ErrorCode.NONE
    assert len(log.durable) == offsets + 1
    assert log.groups()[GROUP].is_empty()
    assert world.ask(ListGroups()).value == ()


@pytest.mark.parametrize("most", [1, 2, 7, 100])
def test_what_the_log_finds_too_large_is_halved(most: int) -> None:
    """Long names: five hundred tombstones may be more than a mebibyte."""
    world, log = world_with(650, most)
    assert world.ask(DeleteGroup(GROUP)).value is ErrorCode.NONE
    assert log.groups()[GROUP].is_empty()
    assert len(log.durable) == 651


def test_old_offsets_that_are_too_large_are_halved_too() -> None:
    world, log = world_with(650, 7)
    world.advance(RETENTION_MS + 600_000)
    assert log.groups()[GROUP].is_empty()


def test_a_record_that_never_fits_is_an_answer_and_no_endless_loop() -> None:
    world, log = world_with(5, 0)
    assert world.ask(DeleteGroup(GROUP)).value is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not log.durable


def test_commits_meanwhile_wait_for_the_last_batch() -> None:
    world = World({GROUP: group_of(2 * BATCH)}, holds_back=True)
    deleting = world.post(DeleteGroup(GROUP))
    waiting = world.post(commit(9, partition=3))
    for _ in range(2):
        world.log.keep()
        world.run()
        assert deleting.is_waiting and waiting.is_waiting
    world.keep_all()
    assert deleting.value is ErrorCode.NONE
    assert waiting.value == Committed((ErrorCode.NONE,))
    assert len(world.log.groups()[GROUP].offsets) == 1


def test_a_disk_that_fills_up_in_between_leaves_a_group_that_can_be_deleted_again() -> None:
    world = World({GROUP: group_of(2 * BATCH)}, holds_back=True)
    deleting = world.post(DeleteGroup(GROUP))
    world.log.keep()
    world.run()
    world.log.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    world.run()
    assert deleting.value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    again = world.post(DeleteGroup(GROUP))
    world.keep_all()
    assert again.value is ErrorCode.NONE
    assert world.log.groups()[GROUP].is_empty()
