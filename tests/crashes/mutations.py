"""Mutants of the log, each with one error that the crash tests must detect.

Most of them skip one operation of the disk, for some paths, if a certain function calls it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callboard.runtime.disk.crc import crc32c
from callboard.runtime.log import checkpoint, journal, journal_frames, partition, writer
from callboard.runtime.log.compaction import garbage, publish
from callboard.runtime.log.journal import Journal
from callboard.runtime.log.journal_frames import TaggedFrames
from callboard.runtime.log.partition import Partition
from callboard.runtime.log.partitions import Partitions
from callboard.runtime.log.recovery import journal_file, recovery
from callboard.runtime.log.recovery.recovery import Recovery
from callboard.runtime.log.recovery.tail import Tail
from callboard.runtime.testing.disk.faulty import FaultyDisk

PlantMistake = Callable[[pytest.MonkeyPatch], None]


def skip_call(operation: str, inside: str, path: str = "") -> PlantMistake:
    """Skip a disk operation for paths that contain ``path`` when it is called from within the function ``inside``."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        original = getattr(FaultyDisk, operation)

        def call(disk: FaultyDisk, target: Any, *rest: Any) -> Any:
            name = disk.open_files[target].path if isinstance(target, int) else str(target)
            if path in name and called_from(inside):
                return None
            return original(disk, target, *rest)

        patch.setattr(FaultyDisk, operation, call)

    return plant


def called_from(function: str) -> bool:
    """Whether the function, as ``Class.method`` or ``function``, is on the call stack."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_qualname == function:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def rounds_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "sync_by", lambda self, threads, then: then(None))


def journal_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    rounds_are_not_synced(patch)
    patch.setattr(Journal, "sync", lambda self: None)


def journal_removed_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    sync, remove = checkpoint.sync_partitions, checkpoint.remove_journals
    waiting: list[tuple[Any, ...]] = []

    def later(*arguments: Any) -> str:
        waiting.append(arguments)
        return ""

    def removed_first(*arguments: Any) -> None:
        remove(*arguments)
        while waiting:
            sync(*waiting.pop())

    patch.setattr(checkpoint, "sync_partitions", later)
    patch.setattr(checkpoint, "remove_journals", removed_first)
    patch.setattr(
        Partitions, "unsynced_partitions", lambda self: {partition.number for partition in self if partition.failure}
    )


def valid_batch_is_cut(patch: pytest.MonkeyPatch) -> None:
    """A torn tail is cut a byte too early, so the batch before it becomes torn and is cut as well."""
    open_partition, cut = Partition.open, Partition._cut_torn_tail
    has_cut: set[int] = set()

    def cut_more(self: Partition, path: Path, tail: Tail, *rest: Any) -> None:
        again = self.number in has_cut
        has_cut.add(self.number)
        cut(self, path, tail if again else tail._replace(valid_bytes=max(0, tail.valid_bytes - 1)), *rest)

    def open_twice(self: Partition, *arguments: Any) -> None:
        has_cut.clear()
        open_partition(self, *arguments)
        if has_cut:
            self.close()
            open_partition(self, *arguments)

    patch.setattr(Partition, "_cut_torn_tail", cut_more)
    patch.setattr(Partition, "open", open_twice)


def torn_tails_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "_cut_torn_tail", lambda self, *arguments: None)


def torn_frame_is_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(journal_frames, "crc32c", lambda data: crc32c(data[:4]))


def frames_have_no_tag(patch: pytest.MonkeyPatch) -> None:
    """As in format 2: the checksum of a frame covers its content alone."""
    patch.setattr(TaggedFrames, "_tag", lambda self, position, length, crc: bytes(8))


def tag_ignores_position(patch: pytest.MonkeyPatch) -> None:
    tag = TaggedFrames._tag
    patch.setattr(TaggedFrames, "_tag", lambda self, position, length, crc: tag(self, 0, length, crc))


def batch_in_record_is_salvaged(patch: pytest.MonkeyPatch) -> None:
    """A valid batch after damage in a segment is accepted, even if the journal has other bytes there."""
    patch.setattr(recovery, "_journaled_bytes", lambda tail, pieces: 0)


def unsynced_holes_are_damage(patch: pytest.MonkeyPatch) -> None:
    """With a policy that syncs after acknowledging, a hole before valid rounds is recovered as damage."""
    patch.setattr(journal_file, "scan_journal", lambda data, salt, is_newest: journal.scan_journal(data, salt))


def start_takes_files_for_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "mark_unsynced", lambda self: None)


def short_writes_count_as_complete(patch: pytest.MonkeyPatch) -> None:
    for module in (journal, partition):
        patch.setattr(module, "write_all", lambda disk, fd, data, position: disk.write(fd, data, position))


def journal_is_replayed_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "_missing", lambda self, partition, pieces: iter(pieces))


def stop_drops_batches_in_memory(patch: pytest.MonkeyPatch) -> None:
    """A stop drops the journal without flushing the batches in memory."""
    original = writer.RoundWriter._close

    def close(self: writer.RoundWriter) -> None:
        self._jobs.rounds.clear()
        original(self)

    patch.setattr(writer.RoundWriter, "_close", close)


def old_files_are_removed_first(patch: pytest.MonkeyPatch) -> None:
    """The plain names are removed before the compacted files replace them."""
    remove = publish._remove_covered
    publish_all = publish.publish

    def removed_first(disk: FaultyDisk, folder: Path, now_ms: int, grace_ms: int, *rest: Any) -> int:
        manifest = publish._oldest_in_use(disk, folder, now_ms - grace_ms)
        if manifest is not None:
            remove(disk, folder, manifest)
        return publish_all(disk, folder, now_ms, grace_ms, *rest)

    patch.setattr(garbage, "publish", removed_first)


def compacted_files_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """The files of a manifest are written but not synced."""
    skip_call("sync", "SegmentJoiner.write")(patch)


def manifest_name_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    skip_call("sync_folder", "put_if_absent")(patch)
    skip_call("sync_folder", "publish", "manifest")(patch)


replay_of_unsynced_journal = skip_call("sync", "_sync_journal_file")
"""Few seeds show it, see ``test_seeds``."""

MUTATIONS: dict[str, PlantMistake] = {
    "the journal is not synced": journal_is_not_synced,
    "entries are acknowledged before the sync": rounds_are_not_synced,
    "a new journal's name is not synced": skip_call("sync_folder", "Journal.__init__"),
    "a checkpoint does not sync the old journal": skip_call("sync", "RoundWriter._checkpoint", ".journal"),
    "the journal is removed before the partition files are synced": journal_removed_before_the_sync,
    "a checkpoint does not sync the partition files": skip_call("sync", "FileJob._checkpoint"),
    "a checkpoint does not sync the folders of new partitions": skip_call("sync_folder", "FileJob._checkpoint", "__"),
    "a checkpoint does not sync the data folder": skip_call("sync_folder", "sync_partitions"),
    "a roll does not sync the old segment": skip_call("sync", "Partition._next_segment"),
    "a roll does not sync the folder": skip_call("sync_folder", "Partition._next_segment"),
    "a start does not sync replayed records": skip_call("sync", "Recovery.run", "__"),
    "a start takes unsynced files for synced": start_takes_files_for_synced,
    "the sync of an interval is skipped": skip_call("sync", "RoundWriter._run_due_work", ".journal"),
    "a cut removes a valid batch": valid_batch_is_cut,
    "torn tails are not cut": torn_tails_stay,
    "a torn frame is believed": torn_frame_is_accepted,
    "holes in unsynced journals are taken for damage": unsynced_holes_are_damage,
    "short writes count as complete": short_writes_count_as_complete,
    "the journal is replayed twice": journal_is_replayed_twice,
    "a stop drops batches in memory": stop_drops_batches_in_memory,
    "a compacted file is not synced": compacted_files_are_not_synced,
    "the names of compacted files are not synced": skip_call("sync_folder", "commit_draft", "segments"),
    "a manifest is not synced": skip_call("sync", "put_if_absent"),
    "a manifest's name is not synced before the old files go": manifest_name_is_not_synced,
    "published names are not synced before the old files go": skip_call("sync_folder", "publish"),
    "old files go before the new ones are there": old_files_are_removed_first,
}

MUTATIONS_WITH_HOSTILE_BYTES: dict[str, PlantMistake] = {
    "frames have no tag": frames_have_no_tag,
    "the tag leaves out the position": tag_ignores_position,
    "a batch within a record is salvaged": batch_in_record_is_salvaged,
}
"""Mistakes that only show with hostile record contents, see ``hostile_run``."""
