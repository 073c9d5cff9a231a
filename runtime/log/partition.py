"""One partition on disk: a folder of segments, ``__consumer_offsets-N/%020d.log``, appended to and rolled.

Appends are not synced: the journal has all unsynced batches. The folder is created for the first batch, so an empty log
starts without fifty folders. A write that a full disk accepts only in part is undone. A roll syncs and closes the old
segment before it creates the next one. Compaction relies on this: if there is a segment with a higher base offset, the
ones before it are complete. ``manifest.log_files`` lists the closed segments, compacted or not; this class writes only
the last segment, which is open.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from ...actors.records import Record
from ..common.errors import StartError
from ..common.logs import get_logger
from ..disk.disk import Disk, NoSpace, is_full, is_out_of_descriptors, no_space_reason, read_at, write_all
from .format.batch import HEADER_BYTES, Batch, offsets_of, timestamp_of
from .format.errors import Damage
from .format.transaction_records import decode_batch, decode_transactions
from .manifest import LogFile, log_files
from .partition_counts import PartitionCounts
from .reading.damage_scan import scan_past_damage
from .reading.segment import segment_name
from .recovery.clean_stop import CleanEnd
from .recovery.missing import missing_files
from .recovery.quarantine import DamageRegistry, quarantine_bytes
from .recovery.tail import Tail, read_tail
from .stats import PartitionStats

TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"

SalvageCallback = Callable[[int, Tail, Iterator[tuple[int, bytes]]], None]
"""Receives a partition's number, its ``Tail``, and the valid batches in the bytes to be cut, with their positions."""

Decode = Callable[[Batch], Iterator[tuple[int, int, Record]]]

DECODERS: Mapping[str, Decode] = {TOPIC: decode_batch, TRANSACTIONS_TOPIC: decode_transactions}

PARTITION_FOLDER = re.compile(rf"({TOPIC}|{TRANSACTIONS_TOPIC})-([0-9]{{1,9}})")
"""The name of a partition's folder: its topic, and its number in the topic."""

log = get_logger("callboard.log")


def folder_name(number: int, topic: str = TOPIC) -> str:
    return f"{topic}-{number}"


def partition_name(partition: int, counts: PartitionCounts) -> str:
    """The folder name of a partition by its number among all, of which those of offsets come first."""
    if partition < counts.offsets:
        return folder_name(partition)
    return folder_name(partition - counts.offsets, TRANSACTIONS_TOPIC)


SEGMENT_MS = 604_800_000  # Kafka's log.roll.ms: a week
WRITE_BYTES = 1024 * 1024
"""The size of a write. A write without room is undone, so a disk fills up to about so many bytes."""


class SegmentLimits(NamedTuple):
    """A batch that exceeds one of these starts a new segment. ``age_ms``: since the segment's first batch."""

    size_bytes: int
    age_ms: int


class SyncJob(NamedTuple):
    """The file, then the folders, to sync so that a partition is durable as it is now.

    ``fd`` belongs to the partition, which does not close it while a job runs.
    """

    partition: int
    fd: int
    path: Path
    folders: tuple[Path, ...]

    def run(self, disk: Disk) -> None:
        """Sync the file. Raises OSError, also when the file was removed or moved."""
        disk.sync(self.fd)
        if not disk.is_named(self.fd, self.path):
            raise OSError(errno.ENOENT, "it was removed or moved while the log was open", str(self.path))


class Partition:
    """One partition. Used by one thread at a time; only the iterator of ``read`` may be consumed in another thread."""

    def __init__(
        self,
        disk: Disk,
        root: Path,
        number: int,
        segment_bytes: int,
        topic: str = TOPIC,
        first: int = 0,
        *,
        segment_ms: int = SEGMENT_MS,
    ) -> None:
        """``number`` counts across all topics of the log; in its topic, the partition has ``number - first``."""
        self.number = number
        self.folder = root / folder_name(number - first, topic)
        self._decode = DECODERS[topic]
        self.end_offset = 0
        self.failure = ""
        self.damage_registry = DamageRegistry()  # the log replaces it by its own
        self.clean_end: CleanEnd | None = None  # from the clean-stop note; set before ``open``
        self._disk = disk
        self._limits = SegmentLimits(segment_bytes, segment_ms)
        self._first_timestamp_ms: int | None = None  # of the open segment, if known
        self._base: int | None = None  # of the open segment
        self._fd = -1
        self._size = 0
        self._unsynced = False
        self._unsynced_folders: set[Path] = set()

    def open(self, journal_from: int | None, salvage: SalvageCallback | None = None) -> None:
        """Find the segments, check the open one, cut its torn tail; ``journal_from`` as in ``read_tail``.

        Before the cut, ``salvage`` gets the valid batches in the bytes to be cut. It makes them durable elsewhere if
        they exist nowhere else.
        """
        (manifest, files), missing = missing_files(self._disk, self.folder)
        for damage in missing:
            self.damage_registry.add(damage)
        self.end_offset = manifest.clean_end
        removed = lost_beginning(files)
        if removed is not None:
            self.damage_registry.add(removed)
        if not files or files[-1].is_closed:
            return
        path, self._base, _, _ = files[-1]
        if journal_from is not None:
            self._disk.drop_cached(self._open_fd())  # a batch in the page cache only would not be replayed
        elif self.clean_end is not None and self.clean_end[:2] == (self._base, self._disk.size(self._open_fd())):
            _, self._size, self.end_offset = self.clean_end
            return
        tail = read_tail(self._disk, path, self._base, journal_from)
        if self.clean_end is not None and tail.end_offset < self.clean_end.end_offset:
            tail = read_tail(
                self._disk, path, self._base, self.clean_end.end_offset
            )  # everything up to there was durable
        self.end_offset, self._size = tail.end_offset, tail.valid_bytes
        for damage in tail.damages:
            self.damage_registry.add(damage)
        if tail.torn_reason:
            self._cut_torn_tail(path, tail, salvage)
        if tail.new_segment_base is not None:
            self._next_segment(tail.new_segment_base)
            if self._base != tail.new_segment_base:  # readers might never find appends to the old one
                raise NoSpace(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path(tail.new_segment_base)))

    def mark_unsynced(self) -> None:
        """Have the next sync include the whole partition, because its last writer may not have synced it."""
        if self._base is not None:
            self._unsynced = True
            self._unsynced_folders |= {self.folder, self.folder.parent}

    def append(self, batches: Sequence[bytes]) -> None:
        """Write batches, in order and without a sync. ``end_offset`` tells how many of them have been written.

        A segment has at least one batch, however large. Raises NoSpace when the disk is full; the remaining batches may
        be retried. After any other OSError the partition is unusable until it is opened again.
        """
        if self._fits_open_segment(batches):
            self._write(batches)
        else:
            self._append_each(batches)

    def _fits_open_segment(self, batches: Sequence[bytes]) -> bool:
        """Whether all fit the open segment in one write, as nearly always: checking each doubles a job's time."""
        if self._size == 0 or self._first_timestamp_ms is None or not batches:
            return False
        size = sum(map(len, batches))
        fits = size <= WRITE_BYTES and self._size + size <= self._limits.size_bytes
        return fits and timestamp_of(batches[-1]) - self._first_timestamp_ms <= self._limits.age_ms

    def _append_each(self, batches: Sequence[bytes]) -> None:
        pending: list[bytes] = []
        size = self._size
        for batch in batches:
            if self._base is None or (size > 0 and self._must_roll(size, batch)):
                self._write(pending)
                self._next_segment(offsets_of(batch)[0])
                pending, size = [], self._size
            elif size - self._size >= WRITE_BYTES:
                self._write(pending)
                pending = []
            if size == 0:
                self._first_timestamp_ms = timestamp_of(batch)
            pending.append(batch)
            size += len(batch)
        self._write(pending)

    def _must_roll(self, size: int, batch: bytes) -> bool:
        """Whether the batch starts a new segment, as in Kafka: the open one is too large or too old."""
        if size + len(batch) > self._limits.size_bytes:
            return True
        if self._first_timestamp_ms is None:  # it existed when the log was opened
            header = read_at(self._disk, self._open_fd(), HEADER_BYTES, 0)
            if len(header) < HEADER_BYTES:
                raise OSError(errno.EIO, "it was truncated while the log was open", str(self.folder))
            self._first_timestamp_ms = timestamp_of(header)
        return timestamp_of(batch) - self._first_timestamp_ms > self._limits.age_ms

    def segment_end(self) -> CleanEnd | None:
        """The end of the open segment; None when there is none, or when the partition has failed."""
        if self._base is None or self.failure:
            return None
        return CleanEnd(self._base, self._size, self.end_offset)

    def fail(self, error: Exception) -> None:
        """Mark the partition as failed: it is not written or synced any more until it is opened again.

        After a failed sync the operating system drops the unwritten pages, so a later sync that succeeds proves
        nothing. The journal keeps the partition's batches.
        """
        if not self.failure:
            self.failure = str(error) or repr(error)
            self.close()
            log.error(
                "a partition of the log has failed",
                partition=self.folder.name,
                reason=self.failure,
                consequence="its commits are kept only in the journal, which grows until the next start",
            )

    def sync_job(self) -> SyncJob | None:
        """The sync that is needed; it may run in another thread. None when there is nothing to sync. OSError."""
        if not self.needs_sync:
            return None
        assert self._base is not None
        job = SyncJob(self.number, self._open_fd(), self._path(self._base), tuple(sorted(self._unsynced_folders)))
        self._unsynced = False
        self._unsynced_folders = set()
        return job

    @property
    def needs_sync(self) -> bool:
        """Whether there are writes for which no sync job was made yet, and the partition has not failed."""
        is_open = self._base is not None and not self.failure  # the folder may exist without a segment
        return is_open and bool(self._unsynced or self._unsynced_folders)

    def mark_job_unsynced(self, job: SyncJob) -> None:
        """Have the next sync repeat a job that could not run."""
        self._unsynced = True
        self._unsynced_folders |= set(job.folders)

    def read(self) -> Iterator[tuple[int, int, Record]]:
        """Offset, timestamp in ms and record of everything appended before this call, in order.

        Damage is skipped and added to ``damage_registry``. DamagedBatch, DamagedRecord or UnsupportedCompression, for
        malformed content of a batch with a correct checksum, end the iteration.
        """
        return self._read(self._base, self._size)

    def check(self) -> None:
        """Assert what holds between two calls. Does not touch the files."""
        if self._base is None:
            assert self._fd == -1 and self._size == 0, "without a segment nothing is open"
        else:
            assert 0 <= self._base <= self.end_offset, (self._base, self.end_offset)
            assert (self._size == 0) <= (self._base == self.end_offset), "an empty segment begins at the end"
        if self.failure:
            assert self._fd == -1 and not self.needs_sync, "a failed partition is neither written nor synced"

    def stats(self) -> PartitionStats:
        return PartitionStats(self.folder.name, self.end_offset, self._size, self.failure)

    def close(self) -> None:
        """Close without a sync."""
        if self._fd != -1:
            self._disk.close(self._fd)
            self._fd = -1

    def _read(self, open_base: int | None, open_size: int) -> Iterator[tuple[int, int, Record]]:
        files = log_files(self._disk, self.folder).files
        for file, next_file in zip_longest(files, files[1:]):
            if not file.is_compacted and (open_base is None or file.base > open_base):
                return  # created after the call
            is_open = file.base == open_base and not file.is_compacted
            next_base = None if is_open or file.is_compacted or next_file is None else next_file.base
            size = open_size if is_open else None
            for piece in scan_past_damage(self._disk, file.path, file.base, next_base, size=size):
                if isinstance(piece, Damage):
                    self.damage_registry.add(piece)
                else:
                    yield from self._decode(piece)

    def _next_segment(self, base_offset: int) -> None:
        if self._base is None:
            self._create_first(base_offset)
            return
        old = self._open_fd()
        self._disk.sync(old)
        try:
            self._disk.sync_folder(
                self.folder
            )  # the old name first: after a crash, a log with only the new name would have a gap
            self._create(base_offset)
        except OSError as error:
            if is_full(error):
                return  # keep appending to the old one, although it is large enough
            raise
        self._disk.close(old)
        try:
            self._disk.sync_folder(self.folder)
        except OSError as error:
            if not is_out_of_descriptors(error):
                raise
            self._unsynced_folders.add(self.folder)  # the next checkpoint syncs the name, as for the first segment

    def _create_first(self, base_offset: int) -> None:
        try:
            self._disk.make_folder(self.folder)
            self._unsynced_folders |= {self.folder, self.folder.parent}
            self._create(base_offset)
        except OSError as error:
            if is_full(error):
                raise NoSpace(error.errno, error.strerror, str(self.folder)) from error
            raise

    def _create(self, base_offset: int) -> None:
        assert self._base is None or base_offset > self._base, "the base offsets of segments ascend"
        self._fd = self._disk.open(self._path(base_offset), os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._base = base_offset
        self._size = 0
        self._first_timestamp_ms = None

    def _write(self, batches: Sequence[bytes]) -> None:
        if batches:
            first = offsets_of(batches[0])[0]
            assert first >= self.end_offset, (
                f"{self.folder.name} ends at {self.end_offset}, and gets offset {first} again"
            )
            data = b"".join(batches)
            fd = self._open_fd()
            try:
                write_all(self._disk, fd, data, self._size)
            except OSError as error:
                if not is_full(error):
                    raise
                self._disk.truncate(fd, self._size)
                raise NoSpace(error.errno, error.strerror, str(self.folder)) from error
            self._size += len(data)
            self._unsynced = True
            self.end_offset = offsets_of(batches[-1])[1] + 1

    def _cut_torn_tail(self, path: Path, tail: Tail, salvage: SalvageCallback | None) -> None:
        """Cut the torn end. Its bytes are copied to a file beside it, and its valid batches go to ``salvage``."""
        fd, size = self._open_fd(), tail.valid_bytes
        if salvage is not None and tail.salvageable:
            salvage(self.number, tail, ((at, read_at(self._disk, fd, length, at)) for at, length in tail.salvageable))
        end = self._disk.size(fd)
        try:
            copy = quarantine_bytes(self._disk, path, size, end, tail.end_offset)
        except OSError as error:
            if is_full(error):
                raise no_room_to_start(path, end - size, "to keep its torn end in a file beside it", error) from error
            raise
        self._disk.truncate(fd, size)
        self._disk.sync(fd)
        copied_to = str(copy) if copy is not None else "no, all zeros"
        log.warning(
            "torn tail cut", file=str(path), byte=size, bytes=end - size, reason=tail.torn_reason, kept=copied_to
        )

    def _open_fd(self) -> int:
        if self._fd == -1:
            assert self._base is not None
            path = self._path(self._base)
            try:
                self._fd = self._disk.open(path, os.O_RDWR)
            except OSError as error:
                if is_out_of_descriptors(error):
                    raise NoSpace(error.errno, error.strerror, str(path)) from error
                raise
        return self._fd

    def _path(self, base_offset: int) -> Path:
        return self.folder / segment_name(base_offset)


def no_room_to_start(path: Path, missing_bytes: int, purpose: str, error: OSError) -> StartError:
    return StartError(
        f"{path}: found no room {purpose} ({no_space_reason(error)}); {missing_bytes} bytes are missing: make room for"
        " them and start again, nothing is lost"
    )


def lost_beginning(files: Sequence[LogFile]) -> Damage | None:
    """The loss of a log's beginning, if any: a log begins at offset 0, however often it was compacted."""
    if not files or files[0].base == 0:
        return None
    reason = f"the log begins at offset {files[0].base}: everything before it was removed"
    return Damage(files[0].path, 0, 0, reason, 0, files[0].base)
