"""One partition on disk: a folder of segments, ``__consumer_offsets-N/%020d.log``, appended and rolled.

Appends are not synced: the journal holds what is not. The folder is made when the first batch arrives, so an empty
log starts without fifty folders. What a full disk lets in only in part is taken back. A roll syncs and closes the old
segment before the next one is created, so "there is a segment with a higher base" means "this one is complete", which
compaction relies on. What it has made of the closed segments says ``manifest.log_files``; only the last one, which is
open, is this class's own.
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
from ..disk.disk import Disk, NoRoom, is_full, lacks_descriptor, no_room_reason, read_at, write_all
from .format.batch import HEADER_BYTES, Batch, offsets_of, timestamp_of
from .format.errors import Damage
from .format.transaction_records import decode_batch, decode_transactions
from .manifest import LogFile, log_files
from .reading.damage_scan import scan_past_damage
from .reading.segment import segment_name
from .recovery.clean_stop import CleanEnd
from .recovery.missing import missing_files
from .recovery.quarantine import Quarantine, put_aside
from .recovery.tail import Tail, read_tail
from .stats import PartitionStats

TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"

Salvage = Callable[[int, Tail, Iterator[tuple[int, bytes]]], None]
"""Takes a partition's number, where its segment is cut, and the good batches behind that with their positions."""

Decode = Callable[[Batch], Iterator[tuple[int, int, Record]]]

DECODERS: Mapping[str, Decode] = {TOPIC: decode_batch, TRANSACTIONS_TOPIC: decode_transactions}

PARTITION_FOLDER = re.compile(rf"({TOPIC}|{TRANSACTIONS_TOPIC})-([0-9]{{1,9}})")
"""What the folder of a partition is called: its topic, and its number there."""

log = get_logger("callboard.log")


def folder_name(number: int, topic: str = TOPIC) -> str:
    return f"{topic}-{number}"


SEGMENT_MS = 604_800_000  # Kafka's log.roll.ms: a week
WRITE_BYTES = 1024 * 1024
"""What is written at once, or taken back when there is no room: the disk fills up to about so much."""


class SyncJob(NamedTuple):
    """What must be synced so that a partition is durable as it is now: a file, then folders.

    ``fd`` is the partition's own, which is not closed while a job runs.
    """

    partition: int
    fd: int
    path: Path
    folders: tuple[Path, ...]

    def run(self, disk: Disk) -> None:
        """Sync the file. OSError, also when nobody would find it any more."""
        disk.sync(self.fd)
        if not disk.is_named(self.fd, self.path):
            raise OSError(errno.ENOENT, "it was removed or moved while the log was open", str(self.path))


class Partition:
    """Used by one thread at a time; only the iterator that ``read`` gives may be consumed in another."""

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
        """``number`` counts through all topics of the log; the partition's own is ``number - first``."""
        self.number = number
        self.folder = root / folder_name(number - first, topic)
        self._decode = DECODERS[topic]
        self.end_offset = 0
        self.failure = ""
        self.quarantine = Quarantine()  # that of the log, when there is one
        self.clean_end: CleanEnd | None = None  # as a clean stop has left it, before ``open``
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._segment_ms = segment_ms
        self._born_ms: int | None = None  # the first timestamp in the open segment, when it is known
        self._base: int | None = None  # of the segment that is open
        self._fd = -1
        self._size = 0
        self._unsynced = False
        self._unsynced_folders: set[Path] = set()

    def open(self, journal_from: int | None, salvage: Salvage | None = None) -> None:
        """Find the segments, check the open one, cut its torn tail; ``journal_from`` as in ``read_tail``.

        ``salvage`` is given the batches that are cut though they are good, before that; it makes them durable elsewhere
        if nobody else has them.
        """
        (manifest, files), missing = missing_files(self._disk, self.folder)
        for damage in missing:
            self.quarantine.add(damage)
        self.end_offset = manifest.clean_end
        removed = lost_beginning(files)
        if removed is not None:
            self.quarantine.add(removed)
        if not files or files[-1].is_closed:
            return
        path, self._base, _, _ = files[-1]
        if journal_from is not None:
            self._disk.forget(self._open_fd())  # what only seems to be there would not be laid in again
        elif self.clean_end is not None and self.clean_end[:2] == (self._base, self._disk.size(self._open_fd())):
            _, self._size, self.end_offset = self.clean_end
            return
        tail = read_tail(self._disk, path, self._base, journal_from)
        if self.clean_end is not None and tail.end_offset < self.clean_end.end_offset:
            tail = read_tail(self._disk, path, self._base, self.clean_end.end_offset)  # all up to there was durable
        self.end_offset, self._size = tail.end_offset, tail.good_bytes
        for damage in tail.damages:
            self.quarantine.add(damage)
        if tail.torn:
            self._cut(path, tail, salvage)
        if tail.go_on_at is not None:
            self._next_segment(tail.go_on_at)
            if self._base != tail.go_on_at:  # in the old one nobody may ever find what is appended
                raise NoRoom(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path(tail.go_on_at)))

    def distrust(self) -> None:
        """Whoever wrote this partition may not have synced it: the next sync takes it all."""
        if self._base is not None:
            self._unsynced = True
            self._unsynced_folders |= {self.folder, self.folder.parent}

    def append(self, batches: Sequence[bytes]) -> None:
        """Write batches, in order and without sync. ``end_offset`` says how many of them have been written.

        A segment holds at least one batch, however large. NoRoom when the disk is full: the others may be tried again.
        Any other OSError leaves the partition unusable until it is opened anew.
        """
        if self._takes_all(batches):
            self._write(batches)
        else:
            self._append_each(batches)

    def _takes_all(self, batches: Sequence[bytes]) -> bool:
        """Whether all go to the open segment in one write. Nearly always; to look at each was half of a job's time."""
        if self._size == 0 or self._born_ms is None or not batches:
            return False
        size = sum(map(len, batches))
        fits = size <= WRITE_BYTES and self._size + size <= self._segment_bytes
        return fits and timestamp_of(batches[-1]) - self._born_ms <= self._segment_ms

    def _append_each(self, batches: Sequence[bytes]) -> None:
        together: list[bytes] = []
        size = self._size
        for batch in batches:
            if self._base is None or (size > 0 and self._is_due(size, batch)):
                self._write(together)
                self._next_segment(offsets_of(batch)[0])
                together, size = [], self._size
            elif size - self._size >= WRITE_BYTES:
                self._write(together)
                together = []
            if size == 0:
                self._born_ms = timestamp_of(batch)
            together.append(batch)
            size += len(batch)
        self._write(together)

    def _is_due(self, size: int, batch: bytes) -> bool:
        """Whether a segment of that size ends before the batch, as in Kafka: too large, or its first batch too old."""
        if size + len(batch) > self._segment_bytes:
            return True
        if self._born_ms is None:  # it was there when the log was opened
            header = read_at(self._disk, self._open_fd(), HEADER_BYTES, 0)
            if len(header) < HEADER_BYTES:
                raise OSError(errno.EIO, "it has become shorter while the log was open", str(self.folder))
            self._born_ms = timestamp_of(header)
        return timestamp_of(batch) - self._born_ms > self._segment_ms

    def last_segment(self) -> CleanEnd | None:
        """How the open segment ends; None when there is none, or it cannot be trusted."""
        is_known = self._base is not None and not self.failure
        return CleanEnd(self._base or 0, self._size, self.end_offset) if is_known else None

    def fail(self, error: Exception) -> None:
        """Its file can no longer be trusted: it is not written or synced any more until it is opened anew.

        After a failed sync the system has forgotten what it should have written, and a second one that succeeds proves
        nothing. What is to be in it stays in the journal.
        """
        if not self.failure:
            self.failure = str(error) or repr(error)
            self.close()
            log.error(
                "a partition of the log has failed",
                partition=self.folder.name,
                reason=self.failure,
                consequence="its commits are kept in the journal alone, which grows until the next start",
            )

    def sync_job(self) -> SyncJob | None:
        """What a sync has to do, which may run in another thread; None when there is nothing. OSError."""
        if not self.needs_sync:
            return None
        assert self._base is not None
        job = SyncJob(self.number, self._open_fd(), self._path(self._base), tuple(sorted(self._unsynced_folders)))
        self._unsynced = False
        self._unsynced_folders = set()
        return job

    @property
    def needs_sync(self) -> bool:
        """Whether something was written that no sync has been begun for, and one makes sense."""
        is_open = self._base is not None and not self.failure  # its folder may be there and the first segment not
        return is_open and bool(self._unsynced or self._unsynced_folders)

    def not_synced(self, job: SyncJob) -> None:
        """A job could not be done, and is to be done again."""
        self._unsynced = True
        self._unsynced_folders |= set(job.folders)

    def read(self) -> Iterator[tuple[int, int, Record]]:
        """Offset, timestamp in ms and record of all that was appended before this call, in order.

        Damage is passed over and added to ``quarantine``. DamagedBatch, DamagedRecord or UnsupportedCompression, for
        what lies in a batch whose checksum is right, end the iteration.
        """
        return self._read(self._base, self._size)

    def stats(self) -> PartitionStats:
        return PartitionStats(self.folder.name, self.end_offset, self._size, self.failure)

    def close(self) -> None:
        """Close without sync."""
        if self._fd != -1:
            self._disk.close(self._fd)
            self._fd = -1

    def _read(self, open_base: int | None, open_size: int) -> Iterator[tuple[int, int, Record]]:
        files = log_files(self._disk, self.folder).files
        for file, next_file in zip_longest(files, files[1:]):
            if not file.is_clean and (open_base is None or file.base > open_base):
                return  # it is younger than the call
            is_open = file.base == open_base and not file.is_clean
            next_base = None if is_open or file.is_clean or next_file is None else next_file.base
            size = open_size if is_open else None
            for piece in scan_past_damage(self._disk, file.path, file.base, next_base, size=size):
                if isinstance(piece, Damage):
                    self.quarantine.add(piece)
                else:
                    yield from self._decode(piece)

    def _next_segment(self, base_offset: int) -> None:
        if self._base is None:
            self._make_first(base_offset)
            return
        old = self._open_fd()
        self._disk.sync(old)
        try:
            self._disk.sync_folder(self.folder)  # the old name first: a log that begins with the new one has a hole
            self._create(base_offset)
        except OSError as error:
            if is_full(error):
                return  # the old one goes on, though it is long enough
            raise
        self._disk.close(old)
        try:
            self._disk.sync_folder(self.folder)
        except OSError as error:
            if not lacks_descriptor(error):
                raise
            self._unsynced_folders.add(self.folder)  # as with the first segment: the next checkpoint syncs the name

    def _make_first(self, base_offset: int) -> None:
        try:
            self._disk.make_folder(self.folder)
            self._unsynced_folders |= {self.folder, self.folder.parent}
            self._create(base_offset)
        except OSError as error:
            if is_full(error):
                raise NoRoom(error.errno, error.strerror, str(self.folder)) from error
            raise

    def _create(self, base_offset: int) -> None:
        self._fd = self._disk.open(self._path(base_offset), os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._base = base_offset
        self._size = 0
        self._born_ms = None

    def _write(self, batches: Sequence[bytes]) -> None:
        if batches:
            data = b"".join(batches)
            fd = self._open_fd()
            try:
                write_all(self._disk, fd, data, self._size)
            except OSError as error:
                if not is_full(error):
                    raise
                self._disk.truncate(fd, self._size)
                raise NoRoom(error.errno, error.strerror, str(self.folder)) from error
            self._size += len(data)
            self._unsynced = True
            self.end_offset = offsets_of(batches[-1])[1] + 1

    def _cut(self, path: Path, tail: Tail, salvage: Salvage | None) -> None:
        """Cut the torn end. What was there is kept beside, and what is good of it where it will be laid in from."""
        fd, size = self._open_fd(), tail.good_bytes
        if salvage is not None and tail.salvaged:
            salvage(self.number, tail, ((at, read_at(self._disk, fd, length, at)) for at, length in tail.salvaged))
        end = self._disk.size(fd)
        try:
            kept = put_aside(self._disk, path, size, end, tail.end_offset)
        except OSError as error:
            if is_full(error):
                raise no_room_to_start(path, end - size, "to keep its torn end beside it", error) from error
            raise
        self._disk.truncate(fd, size)
        self._disk.sync(fd)
        where = str(kept) if kept is not None else "no, all zeros"
        log.warning("torn tail cut", file=str(path), byte=size, bytes=end - size, reason=tail.torn, kept=where)

    def _open_fd(self) -> int:
        if self._fd == -1:
            assert self._base is not None
            path = self._path(self._base)
            try:
                self._fd = self._disk.open(path, os.O_RDWR)
            except OSError as error:
                if lacks_descriptor(error):
                    raise NoRoom(error.errno, error.strerror, str(path)) from error
                raise
        return self._fd

    def _path(self, base_offset: int) -> Path:
        return self.folder / segment_name(base_offset)


def no_room_to_start(path: Path, missing_bytes: int, purpose: str, error: OSError) -> StartError:
    return StartError(
        f"{path}: found no room {purpose} ({no_room_reason(error)}); {missing_bytes} bytes are missing: make room for"
        " them and start again, nothing is lost"
    )


def lost_beginning(files: Sequence[LogFile]) -> Damage | None:
    """What is gone at the beginning of a log: each of ours begins at offset 0, however often it was compacted."""
    if not files or files[0].base == 0:
        return None
    reason = f"the log begins at offset {files[0].base}: what lay before it was removed"
    return Damage(files[0].path, 0, 0, reason, 0, files[0].base)
