"""Recovery when a log is opened: cuts torn tails, replays the journal, syncs everything.

Recovery may be interrupted and repeated: a batch in the journal has its partition and base offset, so batches that are
already in a partition are skipped. Journal files are removed only after the sync of their batches.

Damage never prevents a start, and only the records in it are lost. A damaged journal file is replayed as far as its
rounds are valid. If the offsets of a partition then have a gap, the gap is reported and the log goes on after it. Such
a file is renamed instead of removed. A start is refused only if a person can repair the loss and a start would make it
permanent: if all files of a partition are missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path

from ...common.errors import StartError
from ...common.logs import get_logger
from ...disk.disk import Disk, is_full
from ...disk.threads import Threads
from ..checkpoint import remove_journals, sync_partitions
from ..format.batch import CRC_FROM
from ..format.errors import UNKNOWN_OFFSET, Damage
from ..journal import (
    FOLDER,
    FileHeader,
    Journal,
    JournalScan,
    journal_names,
    journal_number,
    lacks_salt,
    random_salt,
)
from ..journal_frames import encode_frame
from ..manifest import log_files
from ..partition import Partition, no_room_to_start
from ..partition_counts import refuse_different_counts, repair_command
from ..partitions import Partitions
from ..reading.segment import segment_name
from .clean_stop import NOTE_NAME, write_note
from .journal_file import JournalBatch, JournalFile, OutOfOrderBatches, group_by_partition, journal_batches, spans_of
from .quarantine import DAMAGED, free_name, quarantine_bytes
from .tail import Tail
from .unrecognized import audit_folders

CRC_BYTES = 4

CACHED_BYTES_MAX = 144 * 1024 * 1024
"""Up to this size the journal's content stays in memory during recovery: the two files of a checkpoint.

There are more files if a partition has failed for long. Then each step reads them again, one after the other.
"""

log = get_logger("callboard.log")


class Recovery:
    """Opens the partitions of a log and recovers the writes of the previous run."""

    def __init__(
        self,
        disk: Disk,
        root: Path,
        partitions: Partitions,
        threads: Threads,
        new_salt: Callable[[], bytes] = random_salt,
    ) -> None:
        self._disk = disk
        self._new_salt = new_salt
        self._threads = threads
        self._folder = root / FOLDER
        self._partitions = partitions
        self._files: list[JournalFile] = []
        self._journal_start: dict[int, int] = {}
        self._next_number = 0
        self._salvage_journal: Journal | None = None
        self._replayed = 0
        self._skipped = 0
        self._unsynced_batches = 0

    def run(self) -> int:
        """Open everything; returns the next journal file's number. Raises StartError for an inconsistent folder."""
        names = journal_names(self._disk.names(self._folder))
        self._next_number = 1 + (journal_number(names[-1]) or 0) if names else 0
        for name in names:
            _sync_journal_file(self._disk, self._folder / name)
            self._add_file(self._folder / name, name == names[-1])
        self._refuse_other_counts()
        audit_folders(self._disk, self._folder, self._partitions, any(file.scan.is_used for file in self._files))
        self._journal_start = self._find_journal_start()
        self._partitions.open(self._journal_start, self._salvage)
        self._add_salvage_journal()
        self._refuse_lost_partitions()
        if self._files:
            self._report_damaged_ranges()
            self._replay()
            self._make_durable()
        self._partitions.check()
        return self._next_number

    def _refuse_other_counts(self) -> None:
        """Raise StartError if a journal file has other numbers of partitions: with wrong numbers, a server would look
        for groups in the wrong partitions, and write their commits there."""
        for file in self._files:
            self._refuse_lacking_salt(file)
            counts = file.scan.counts
            if counts is not None:
                refuse_different_counts(self._folder.parent, self._partitions.counts, file.path, counts)

    def _refuse_lacking_salt(self, file: JournalFile) -> None:
        if lacks_salt(file.beginning, file.path.name):
            raise StartError(
                f"{file.path}: found a journal file without the salt in its name, expected"
                f" {file.path.stem}-<16 hex digits>.journal; without it the file cannot be read: restore its"
                " original name"
            )

    def _add_file(self, path: Path, is_newest: bool = False) -> None:
        self._files.append(JournalFile(self._disk, path, is_newest))
        if not self._is_cached:
            for file in self._files:
                file.cached = None

    @property
    def _is_cached(self) -> bool:
        """Whether the content of all files may stay in memory."""
        return sum(file.size for file in self._files) <= CACHED_BYTES_MAX

    def _find_journal_start(self) -> dict[int, int]:
        """The offset from which on the oldest journal file has all batches, by partition, where it is known."""
        oldest = next((file for file in self._files if file.scan.is_used), None)
        if oldest is None:
            return {}
        if oldest.scan.start_offsets is not None:
            return {
                partition.number: oldest.scan.start_offsets.get(partition.number, 0) for partition in self._partitions
            }
        first_offsets: dict[int, int] = {}
        for number, batch in journal_batches(oldest):
            first_offsets[number] = min(batch.first, first_offsets.get(number, batch.first))
        return first_offsets

    # Valid batches in the part of a partition file that is cut -------------------------------------------------------

    def _salvage(self, number: int, tail: Tail, batches: Iterator[tuple[int, bytes]]) -> None:
        """Write the batches that the journal lacks to a new journal file, durably.

        In the part of the file whose content the journal has, nothing is salvaged: another valid batch there is part of
        a record's value, written by a client, and appears only because the page with the outer batch's head is missing.

        If the newest journal file may be unsynced, nothing is salvaged: no batch may survive that follows a lost one.
        """
        pairs = (pair for file in self._files for pair in journal_batches(file))
        in_journal = [batch for partition, batch in pairs if partition == number]
        journaled = {_identity(batch.data) for batch in in_journal}
        journaled_bytes = _journaled_bytes(tail, in_journal)
        lost = [data for at, data in batches if at >= journaled_bytes and _identity(memoryview(data)) not in journaled]
        if not lost:
            return
        if self._files and self._files[-1].scan.unsynced_policy:
            self._unsynced_batches += len(lost)
            return
        if self._salvage_journal is None:
            header = FileHeader(self._journal_start, "always", self._partitions.counts)
            self._salvage_journal = Journal(self._disk, self._folder, self._next_number, header, self._new_salt())
            self._next_number += 1
        for data in lost:
            self._salvage_journal.write(encode_frame([(number, data)]))
        self._salvage_journal.sync()

    def _add_salvage_journal(self) -> None:
        if self._salvage_journal is not None:
            self._salvage_journal.close()
            self._add_file(self._salvage_journal.path)

    # The journal -----------------------------------------------------------------------------------------------------

    def _refuse_lost_partitions(self) -> None:
        """Raise StartError if a partition ends before the journal: everything up to there was synced."""
        for partition in self._partitions:
            start = self._journal_start.get(partition.number, 0)
            if partition.end_offset < start:
                raise _lost_files_error(partition, partition.end_offset, start, self._files[0].path)

    def _report_damaged_ranges(self) -> None:
        """Report damage inside journal files.

        A torn end is not damage, not even in an older file, where it may be a round that a full disk refused. If
        something is missing there, the offsets of the next file show it.
        """
        for file in self._files:
            for position, size, reason in file.scan.damaged:
                self._report_damage(Damage(file.path, position, size, reason, UNKNOWN_OFFSET, None))

    def _replay(self) -> None:
        """Replay file by file, unless all are in memory."""
        out_of_order = OutOfOrderBatches()
        if self._is_cached:
            self._replay_batches(group_by_partition(self._files))
        else:
            for file in self._in_order(out_of_order):
                by_partition = group_by_partition([file])
                for number, batches in by_partition.items():
                    batches += out_of_order.pop_through(number, batches[-1].last)
                self._replay_batches(by_partition)
            self._replay_batches(out_of_order.by_partition)
        for file in self._files:
            for damage in file.too_large.values():
                self._report_damage(damage)
        for partition in self._partitions:
            self._report_lost_end(partition)

    def _in_order(self, out_of_order: OutOfOrderBatches) -> Iterator[JournalFile]:
        """The files whose batches are in order; the batches of the others, salvaged ones, go to ``out_of_order``."""
        ends: dict[int, int] = {}
        others = set()
        for file in self._files:
            spans = spans_of(file)
            if any(first < ends.get(number, 0) for number, (first, _) in spans.items()):
                others.add(file)
                out_of_order.add(file)
            else:
                ends |= {number: end for number, (_, end) in spans.items()}
        return (file for file in self._files if file not in others)

    def _replay_batches(self, by_partition: Mapping[int, list[JournalBatch]]) -> None:
        ends: dict[int, int] = {}
        for number, batches in by_partition.items():
            if not batches:
                continue
            batches.sort(key=lambda batch: batch.first)  # salvaged batches are between others
            missing = list(self._missing(self._partition(number, batches[0].file), batches))
            self._partitions.queue_batches((number, bytes(batch.data)) for batch in missing)
            if missing:
                ends[number] = missing[-1].last + 1
            self._replayed += len(missing)
            self._skipped += len(batches) - len(missing)
        no_room = self._partitions.flush()
        if no_room:
            self._trim_journal_files()
            no_room = self._partitions.flush()
        self._refuse_failure(no_room)
        for number, end in ends.items():
            assert self._partitions[number].end_offset == end, "the partition has every batch of the journal"

    def _trim_journal_files(self) -> None:
        """Free the zeros at the end of journal files. Files are removed only when the partitions have all batches."""
        for file in self._files:
            scan = file.scan
            if not scan.damaged and not scan.torn_bytes and scan.valid_bytes < file.size:
                fd = self._disk.open(file.path, os.O_RDWR)
                try:
                    self._disk.truncate(fd, scan.valid_bytes)
                finally:
                    self._disk.close(fd)

    def _partition(self, number: int, path: Path) -> Partition:
        if number >= len(self._partitions):
            raise StartError(
                f"{path}: found a batch of partition {number}, expected 0 to {len(self._partitions) - 1};"
                f" {repair_command(self._folder.parent)} checks the numbers and writes them"
            )
        return self._partitions[number]

    def _missing(self, partition: Partition, batches: list[JournalBatch]) -> Iterator[JournalBatch]:
        """The batches after the partition's end, in order."""
        end = partition.end_offset
        for batch in batches:
            if batch.last < end:
                continue
            if batch.first != end:
                self._report_gap(partition, batch, end)
            if batch.first >= end:
                yield batch
                end = batch.last + 1

    def _report_gap(self, partition: Partition, batch: JournalBatch, end: int) -> None:
        reason = f"{partition.folder.name} ends at offset {end}, the next offsets are {batch.first} to {batch.last}"
        after = max(batch.first, end)
        self._report_damage(Damage(batch.file, batch.position, 0, reason, end, after))

    def _report_lost_end(self, partition: Partition) -> None:
        """Report if a later journal file states a higher end offset for a partition than the files before reach."""
        for file in self._files:
            start = (file.scan.start_offsets or {}).get(partition.number, 0)
            if start > partition.end_offset:
                reason = f"it states that {partition.folder.name} went on to offset {start}"
                self._report_damage(Damage(file.path, 0, 0, reason, partition.end_offset, start))

    def _report_damage(self, damage: Damage) -> None:
        self._partitions.damage_registry.add(damage)

    # Completion ------------------------------------------------------------------------------------------------------

    def _make_durable(self) -> None:
        """Sync every partition, even an unchanged one: the previous run may have died before its sync."""
        for partition in self._partitions:
            partition.mark_unsynced()
        self._refuse_failure(sync_partitions(self._disk, self._threads, self._partitions))
        note = self._partitions.clean_stop_note()
        is_note_written = write_note(self._disk, self._folder.parent, note)
        for file in self._files:
            self._keep_damaged_bytes(file)
        remove_journals(self._disk, [file.path for file in self._files if not file.is_damaged])
        if not is_note_written:
            write_note(self._disk, self._folder.parent, note)  # the removed journal files have made room
        self._report()

    def _keep_damaged_bytes(self, file: JournalFile) -> None:
        """Keep the bytes of a journal file that are not in the partitions: all of a damaged file, or its torn end."""
        scan = file.scan
        if file.is_damaged:
            self._disk.rename(file.path, free_name(self._disk, file.path, DAMAGED))
            self._disk.sync_folder(self._folder)
        elif scan.torn_bytes:
            start = scan.valid_bytes
            try:
                quarantine_bytes(self._disk, file.path, start, start + scan.torn_bytes, start)
            except OSError as error:
                if is_full(error):
                    purpose = "to keep its torn end in a file beside it"
                    raise no_room_to_start(file.path, scan.torn_bytes, purpose, error) from error
                raise

    def _refuse_failure(self, no_room: str) -> None:
        failures = [partition.failure for partition in self._partitions if partition.failure]
        if failures:
            raise StartError(
                f"{self._folder.parent}: {failures[0]} while the journal is replayed; nothing is lost: check the disk,"
                " and start again"
            )
        if no_room:
            missing = self._partitions.missing_bytes()
            raise StartError(
                f"{self._folder.parent}: found no room to replay the journal ({no_room}); "
                + (f"{missing} bytes are missing: " if missing else "")
                + "make room and start again, nothing is lost"
            )

    def _report(self) -> None:
        torn = sum(file.scan.torn_bytes for file in self._files)
        if torn or self._replayed or self._skipped:
            (log.warning if torn else log.info)(
                "journal replayed", batches=self._replayed, skipped=self._skipped, torn_bytes=torn,
                files=len(self._files),
            )  # fmt: skip
        for file in self._files:
            if file.scan.unsynced_policy and (file.scan.unsynced_rounds or self._unsynced_batches):
                self._report_unsynced(file.scan)

    def _report_unsynced(self, scan: JournalScan) -> None:
        log.warning(
            "last rounds lost, because they were not synced before a power failure",
            sync=scan.unsynced_policy,
            rounds=scan.unsynced_rounds,
            batches=self._unsynced_batches,
            consequence="each partition ends before the first lost round; with this sync policy that is not damage",
            kept="in files with .torn- in their names",
        )


def _identity(batch: memoryview) -> bytes:
    """A hash of a batch's checksum and the bytes it covers, without the base offset, which may be damaged."""
    return blake2b(batch[CRC_FROM - CRC_BYTES :], digest_size=16).digest()


def _journaled_bytes(tail: Tail, batches: Iterable[JournalBatch]) -> int:
    """The position in a segment up to which the journal has the content after the cut, batch by batch."""
    if tail.new_segment_base is not None:
        return 0  # the position of the first one is unknown
    position, offset = tail.valid_bytes, tail.end_offset
    for batch in sorted(batches, key=lambda batch: batch.first):
        if batch.first > offset:
            break
        if batch.first == offset:
            position += len(batch.data)
            offset = batch.last + 1
    return position


def refuse_removed(disk: Disk, root: Path, partitions: Partitions) -> None:
    """Raise StartError for a partition that has fewer files than the clean-stop note states.

    That is a partition without files, or with compacted files alone. After a clean stop there is no journal to check.
    """
    for partition in partitions:
        end = partition.clean_end
        if end is None or end.end_offset == 0:
            continue
        manifest, files = log_files(disk, partition.folder)
        has_open_segment = bool(files) and not files[-1].is_closed
        if not has_open_segment and manifest.clean_end < end.end_offset:
            raise _lost_files_error(partition, manifest.clean_end, end.end_offset, root / NOTE_NAME)


def _lost_files_error(partition: Partition, end: int, expected: int, source: Path) -> StartError:
    return StartError(
        f"{partition.folder}: ends at offset {end}, expected {expected} or more by {source}; put back"
        " the partition's files as they were, or, to go on without the lost records, create the empty file"
        f" {partition.folder / segment_name(expected)}"
    )


def _sync_journal_file(disk: Disk, path: Path) -> None:
    """Make the content of a journal file durable before it is replayed. Raises OSError.

    A killed process may have left its last round in the page cache only. If that was replayed as it is, a power
    failure could lose the round here, and leave parts of its batches in a partition file.
    """
    fd = disk.open(path, os.O_RDWR)
    try:
        disk.sync(fd)
        disk.drop_cached(fd)  # pages of a failed sync count as written, so this sync does not write them
    finally:
        disk.close(fd)
