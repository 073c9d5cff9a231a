"""Mistakes that a log can make, planted one at a time: the crash tests must find each of them.

Most of them are a call that was forgotten: the disk does not do it, for some paths, from within some function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callboard.runtime.disk.crc import crc32c
from callboard.runtime.disk.faulty import FaultyDisk
from callboard.runtime.log import checkpoint, journal, journal_frames, partition, writer
from callboard.runtime.log.compaction import garbage, publish
from callboard.runtime.log.journal import Journal
from callboard.runtime.log.journal_frames import TaggedFrames
from callboard.runtime.log.partition import Partition
from callboard.runtime.log.partitions import Partitions
from callboard.runtime.log.recovery import recovery
from callboard.runtime.log.recovery.recovery import Recovery
from callboard.runtime.log.recovery.tail import Tail

PlantMistake = Callable[[pytest.MonkeyPatch], None]


def skip_call(operation: str, inside: str, path: str = "") -> PlantMistake:
    """A method of the disk does nothing for paths that hold ``path`` when it is called from within a function."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        original = getattr(FaultyDisk, operation)

        def call(disk: FaultyDisk, target: Any, *rest: Any) -> Any:
            name = disk.path_of(target) if isinstance(target, int) else str(target)
            if path in name and called_from(inside):
                return None
            return original(disk, target, *rest)

        patch.setattr(FaultyDisk, operation, call)

    return plant


def called_from(function: str) -> bool:
    """Whether a function of that name, as ``Class.method`` or ``function``, is being run further up."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_qualname == function:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def answered_before_the_sync(patch: pytest.MonkeyPatch) -> None:
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
    patch.setattr(Partitions, "not_on_disk", lambda self: {each.number for each in self if each.failure})


def a_good_batch_is_cut(patch: pytest.MonkeyPatch) -> None:
    """What is torn is cut a byte too early, and so the batch before it is torn and cut as well."""
    open_partition, cut = Partition.open, Partition._cut
    has_cut: set[int] = set()

    def cut_more(self: Partition, path: Path, tail: Tail, *rest: Any) -> None:
        again = self.number in has_cut
        has_cut.add(self.number)
        cut(self, path, tail if again else tail._replace(good_bytes=max(0, tail.good_bytes - 1)), *rest)

    def open_twice(self: Partition, *arguments: Any) -> None:
        has_cut.clear()
        open_partition(self, *arguments)
        if has_cut:
            self.close()
            open_partition(self, *arguments)

    patch.setattr(Partition, "_cut", cut_more)
    patch.setattr(Partition, "open", open_twice)


def torn_tails_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "_cut", lambda self, *arguments: None)


def a_torn_frame_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(journal_frames, "crc32c", lambda data: crc32c(data[:4]))


def frames_have_no_tag(patch: pytest.MonkeyPatch) -> None:
    """As in format 2: the checksum of a frame covers its content alone."""
    patch.setattr(TaggedFrames, "_tag", lambda self, position, length, crc: bytes(8))


def the_tag_leaves_out_the_position(patch: pytest.MonkeyPatch) -> None:
    tag = TaggedFrames._tag
    patch.setattr(TaggedFrames, "_tag", lambda self, position, length, crc: tag(self, 0, length, crc))


def what_lies_in_a_record_is_salvaged(patch: pytest.MonkeyPatch) -> None:
    """A good batch behind a flaw in a segment counts, whatever the journal says of the bytes there."""
    patch.setattr(recovery, "_known_bytes", lambda tail, pieces: 0)


def what_was_not_synced_may_have_holes(patch: pytest.MonkeyPatch) -> None:
    """A policy that syncs later than it answers is recovered as if it were damage that good rounds lie behind."""
    patch.setattr(recovery, "measure", lambda data, salt, is_newest: journal.measure(data, salt))


def the_start_trusts_what_it_finds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "distrust", lambda self: None)


def short_writes_count_as_whole(patch: pytest.MonkeyPatch) -> None:
    for module in (journal, partition):
        patch.setattr(module, "write_all", lambda disk, fd, data, position: disk.write(fd, data, position))


def laid_in_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "_missing", lambda self, partition, pieces: iter(pieces))


def not_laid_in_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """A stop that drops the journal and forgets what waits in memory."""
    original = writer.RoundWork._finish

    def finish(self: writer.RoundWork) -> None:
        self._waiting.clear()
        original(self)

    patch.setattr(writer.RoundWork, "_finish", finish)


def old_files_go_first(patch: pytest.MonkeyPatch) -> None:
    """The plain names are removed before the compacted files have taken their place."""
    remove = publish._remove_covered
    publish_all = publish.publish

    def removed_first(disk: FaultyDisk, folder: Path, now_ms: int, grace_ms: int, *rest: Any) -> int:
        manifest = publish._oldest_in_use(disk, folder, now_ms - grace_ms)
        if manifest is not None:
            remove(disk, folder, manifest)
        return publish_all(disk, folder, now_ms, grace_ms, *rest)

    patch.setattr(garbage, "publish", removed_first)


def the_manifest_comes_before_the_files(patch: pytest.MonkeyPatch) -> None:
    """The files that it names are written, but neither they nor their names are synced."""
    skip_call("sync", "SegmentJoiner.write")(patch)


def the_manifest_can_be_lost_after_the_old_files(patch: pytest.MonkeyPatch) -> None:
    skip_call("sync_folder", "put_if_absent")(patch)
    skip_call("sync_folder", "publish", "manifest")(patch)


MUTATIONS: dict[str, PlantMistake] = {
    "the journal is not synced": answered_before_the_sync,
    "the answer comes before the sync": skip_call("sync", "RoundWork._write_journal"),
    "a new journal's name is not synced": skip_call("sync_folder", "Journal.__init__"),
    "a checkpoint forgets the old journal's sync": skip_call("sync", "RoundWork._checkpoint", ".journal"),
    "the journal is removed before the partition files are synced": journal_removed_before_the_sync,
    "a checkpoint forgets the partition files": skip_call("sync", "FileJob._checkpoint"),
    "a checkpoint forgets the folders of new partitions": skip_call("sync_folder", "FileJob._checkpoint", "__"),
    "a checkpoint forgets the folder above them": skip_call("sync_folder", "sync_partitions"),
    "a roll forgets the old segment": skip_call("sync", "Partition._next_segment"),
    "a roll forgets the folder": skip_call("sync_folder", "Partition._next_segment"),
    "a start forgets to sync what it laid in": skip_call("sync", "Recovery.run"),
    "a start trusts what it finds": the_start_trusts_what_it_finds,
    "the flush of an interval is forgotten": skip_call("sync", "RoundWork._catch_up", ".journal"),
    "a cut takes a good batch": a_good_batch_is_cut,
    "torn tails are not cut": torn_tails_stay,
    "a torn frame is believed": a_torn_frame_is_believed,
    "what was not synced may have holes": what_was_not_synced_may_have_holes,
    "short writes count as whole": short_writes_count_as_whole,
    "the journal is laid in twice": laid_in_twice,
    "a stop forgets what waits": not_laid_in_at_the_end,
    "a compacted file is not synced": the_manifest_comes_before_the_files,
    "the names of compacted files are not synced": skip_call("sync_folder", "commit_draft", "segments"),
    "a manifest is not synced": skip_call("sync", "put_if_absent"),
    "a manifest's name is not synced before the old files go": the_manifest_can_be_lost_after_the_old_files,
    "published names are not synced before the old files go": skip_call("sync_folder", "publish"),
    "old files go before the new ones are there": old_files_go_first,
}

MUTATIONS_WITH_HOSTILE_BYTES: dict[str, PlantMistake] = {
    "frames have no tag": frames_have_no_tag,
    "the tag leaves out the position": the_tag_leaves_out_the_position,
    "what lies in a record is salvaged": what_lies_in_a_record_is_salvaged,
}
"""What only shows where bytes of a client look like the log's own, see ``test_hostile``."""
