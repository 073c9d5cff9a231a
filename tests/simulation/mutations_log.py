"""More planted bugs: log maintenance, expiry, passivated groups, and answers that are sent too early."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from callboard.actors.coordinator.ownership import PartitionOwnership
from callboard.actors.coordinator.partitions import GroupPartition
from callboard.actors.coordinator.retention import RetentionScan
from callboard.actors.errors import ErrorCode
from callboard.actors.group import deletion as group_deletion
from callboard.actors.group import restart
from callboard.actors.group.active_group import ActiveGroup
from callboard.actors.group.contexts import DeleteContext
from callboard.actors.group.in_flight import Deletion
from callboard.actors.group.offsets import GroupData
from callboard.runtime.log import checkpoint
from callboard.runtime.log.compaction import garbage, swap
from callboard.runtime.log.journal_guard import JournalGuard
from callboard.runtime.log.partitions import Partitions
from callboard.runtime.log.rounds import Round
from callboard.runtime.log.writer import RoundWriter
from callboard.runtime.node.loading import LogLoading
from callboard.runtime.settings.dynamic import DynamicSettings
from callboard.runtime.testing.disk.faulty import FaultyDisk

Plant = Callable[[pytest.MonkeyPatch], None]


def a_checkpoint_does_not_sync(patch: pytest.MonkeyPatch) -> None:
    """It drops the journal although the partition files may not be synced."""
    patch.setattr(checkpoint, "sync_partitions", lambda *arguments: [])
    patch.setattr(
        Partitions, "unsynced_partitions", lambda self: {partition.number for partition in self if partition.failure}
    )


def a_checkpoint_drops_too_much(patch: pytest.MonkeyPatch) -> None:
    """It drops the active journal file together with a finished one."""
    remove = checkpoint.remove_journals

    def remove_all(disk: FaultyDisk, paths: Any) -> None:
        folder = paths[0].parent if paths else Path()
        remove(disk, [folder / name for name in disk.names(folder)] if paths else [])

    patch.setattr(checkpoint, "remove_journals", remove_all)


def the_interval_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """With ``sync="interval"`` no write is ever synced."""
    patch.setattr(JournalGuard, "sync", lambda self: None)


def answered_before_the_write(patch: pytest.MonkeyPatch) -> None:
    """A round is answered at once, and written at the next call."""
    write = RoundWriter._write

    def later(self: RoundWriter, item: Round) -> None:
        item.done(item.outcomes)
        self._threads.put(partial(write, self, item._replace(done=lambda outcomes: None)))

    patch.setattr(RoundWriter, "_write", later)


def deletions_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    """Old offsets are deleted without regard to pending commits."""

    def at_once(active: ActiveGroup, deletion: Deletion) -> None:
        if not deletion.is_sent:
            batch = group_deletion.next_batch(active, deletion)
            context = DeleteContext(deletion.reply, False, batch.is_last, len(batch.records))
            if batch.records:
                active.append(batch.records, context)
                deletion.is_sent = True
            else:
                group_deletion.handle_tombstones_written(active, context, ErrorCode.NONE)

    for module in (group_deletion, restart):
        patch.setattr(module, "append_tombstones_when_idle", at_once)


def deleted_groups_are_answered_early(patch: pytest.MonkeyPatch) -> None:
    """DeleteGroups is answered before its tombstones are durable."""
    append = ActiveGroup.append

    def answer_and_append(self: ActiveGroup, records: Any, context: Any) -> None:
        append(self, records, context)
        if isinstance(context, DeleteContext) and self.in_flight.deletion is not None:
            self.in_flight.deletion.answer(ErrorCode.NONE)

    patch.setattr(ActiveGroup, "append", answer_and_append)


def sleepers_forget(patch: pytest.MonkeyPatch) -> None:
    """The stored state of a passivated group lacks one of its offsets."""
    unpack = GroupData.unpack

    def unpack_less(packed: bytes) -> GroupData:
        data = unpack(packed)
        for topic, partition, _ in list(data.offsets)[-1:]:
            data.offsets._topics[topic].pop(partition)
        return data

    patch.setattr(GroupData, "unpack", staticmethod(unpack_less))


def sleepers_are_not_swept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RetentionScan, "may_have_expired", lambda self, packed: False)


def minutes_are_seconds(patch: pytest.MonkeyPatch) -> None:
    """Offsets expire too early."""
    patch.setattr(group_deletion, "MINUTE_MS", 1000)


def served_while_it_loads(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupPartition, "error_reply_for", lambda self, request: None)


def settings_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DynamicSettings, "write", lambda self, draft: None)


def not_synced(part: str) -> Plant:
    """Files and names of compaction are used before they are durable."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        sync, sync_folder = FaultyDisk.sync, FaultyDisk.sync_folder

        def sync_others(self: FaultyDisk, fd: int) -> None:
            if part not in self.open_files[fd].path:
                sync(self, fd)

        def sync_other_folders(self: FaultyDisk, path: Path) -> None:
            if part not in str(path):
                sync_folder(self, path)

        patch.setattr(FaultyDisk, "sync", sync_others)
        patch.setattr(FaultyDisk, "sync_folder", sync_other_folders)

    return plant


def compactors_do_not_lock(patch: pytest.MonkeyPatch) -> None:
    """Two compactors publish, collect and swap concurrently, and the second one uses the number of the first."""

    @contextmanager
    def unlocked(disk: Any, folder: Path) -> Iterator[bool]:
        yield True

    patch.setattr(swap, "try_lock", unlocked)
    patch.setattr(garbage, "try_lock", unlocked)


def gained_again_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """A partition that was lost unnoticed and comes back is not loaded again."""

    def gained(self: LogLoading, epochs: Mapping[int, int]) -> None:
        new = {partition: epoch for partition, epoch in epochs.items() if partition not in self._owned}
        gain(self, new)

    gain = LogLoading.gained
    patch.setattr(LogLoading, "gained", gained)


def lost_groups_are_kept(patch: pytest.MonkeyPatch) -> None:
    """The groups of a lost partition keep their state until it comes back."""
    patch.setattr(PartitionOwnership, "_stop_groups", lambda self, number: None)


HOUSEKEEPING: dict[str, tuple[Plant, str]] = {
    "a checkpoint does not sync": (a_checkpoint_does_not_sync, "crashes"),
    "a checkpoint drops too much": (a_checkpoint_drops_too_much, "crashes"),
    "interval: never synced": (the_interval_is_forgotten, "unsynced_commits"),
    "interval: answered before the write": (answered_before_the_write, "unsynced_commits"),
    "deletions do not wait for commits": (deletions_do_not_wait, "passivated_groups"),
    "a deleted group is answered early": (deleted_groups_are_answered_early, "deletions"),
    "sleepers forget an offset": (sleepers_forget, "passivated_groups"),
    "sleepers are not swept": (sleepers_are_not_swept, "passivated_groups"),
    "offsets expire too early": (minutes_are_seconds, "passivated_groups"),
    "groups are served while they load": (served_while_it_loads, "commits"),
    "settings are not kept": (settings_are_not_kept, "shared_partition"),
    "compaction's files are not synced": (not_synced(".compaction/segments"), "crashes"),
    "compaction's manifest is not synced": (not_synced(".compaction"), "crashes"),
    "compactors do not lock": (compactors_do_not_lock, "crashes"),
    "a partition gained again is not loaded": (gained_again_is_ignored, "moving_partitions"),
    "the groups of a lost partition are kept": (lost_groups_are_kept, "moving_partitions"),
}
