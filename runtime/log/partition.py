"""One partition on disk: a folder of segments, ``__consumer_offsets-N/%020d.log``, appended and rolled.

Appends are not synced: the journal holds what is not. The folder is made when the first batch arrives, so an empty
log starts without fifty folders. A roll syncs and closes the old segment before the next one is created, so "there is
a segment with a higher base" means "this one is complete", which compaction relies on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog

from ...actors.records import Record
from .batch import Batch, offsets_of
from .disk import Disk, write_all
from .segment import read_tail, scan, segment_base, segment_name
from .transaction_records import decode_batch, decode_transactions

TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"

Decode = Callable[[Batch], Iterator[tuple[int, int, Record]]]

DECODERS: Mapping[str, Decode] = {TOPIC: decode_batch, TRANSACTIONS_TOPIC: decode_transactions}

log = structlog.get_logger()


def folder_name(number: int, topic: str = TOPIC) -> str:
    return f"{topic}-{number}"


class SyncJob(NamedTuple):
    """What must be synced so that a partition is durable as it is now. ``fd`` belongs to the job, which closes it."""

    fd: int
    folders: tuple[Path, ...]

    def run(self, disk: Disk) -> None:
        try:
            disk.sync(self.fd)
            for folder in self.folders:
                disk.sync_folder(folder)
        finally:
            disk.close(self.fd)


class Partition:
    """Used by one thread at a time; only the iterator that ``read`` gives may be consumed in another."""

    def __init__(
        self, disk: Disk, root: Path, number: int, segment_bytes: int, topic: str = TOPIC, first: int = 0
    ) -> None:
        """``number`` counts through all topics of the log; the partition's own is ``number - first``."""
        self.number = number
        self.folder = root / folder_name(number - first, topic)
        self._decode = DECODERS[topic]
        self.end_offset = 0
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._bases: list[int] = []
        self._fd = -1
        self._size = 0
        self._unsynced = False
        self._unsynced_folders: set[Path] = set()

    def open(self, journal_from: int | None) -> None:
        """List the segments, check the last one, cut its torn tail; ``journal_from`` as in ``read_tail``.

        StartError for damage that may not be cut.
        """
        bases = (segment_base(name) for name in self._disk.names(self.folder))
        self._bases = [base for base in bases if base is not None]
        if not self._bases:
            return
        path = self._path(self._bases[-1])
        tail = read_tail(self._disk, path, self._bases[-1], journal_from)
        self.end_offset, self._size = tail.end_offset, tail.good_bytes
        if tail.bad_bytes:
            self._cut(tail.good_bytes)
            log.warning("torn tail cut", file=str(path), bytes=tail.bad_bytes, reason=tail.reason)

    def distrust(self) -> None:
        """Whoever wrote this partition may not have synced it: the next sync takes it all."""
        if self._bases:
            self._unsynced = True
            self._unsynced_folders |= {self.folder, self.folder.parent}

    def append(self, batches: Sequence[bytes]) -> None:
        """Write batches, in order and without sync. OSError leaves the partition unusable until it is opened anew.

        One write for all that goes into the same segment; a segment holds at least one batch, however large.
        """
        together: list[bytes] = []
        size = self._size
        for batch in batches:
            if not self._bases or (size > 0 and size + len(batch) > self._segment_bytes):
                self._write(together)
                self._next_segment(offsets_of(batch)[0])
                together, size = [], 0
            together.append(batch)
            size += len(batch)
        self._write(together)
        self.end_offset = offsets_of(batches[-1])[1] + 1

    def sync_job(self) -> SyncJob | None:
        """What a sync has to do, which may run in another thread; None when there is nothing."""
        if not self._unsynced and not self._unsynced_folders:
            return None
        job = SyncJob(self._disk.duplicate(self._open_fd()), tuple(sorted(self._unsynced_folders)))
        self._unsynced = False
        self._unsynced_folders = set()
        return job

    def read(self) -> Iterator[tuple[int, int, Record]]:
        """Offset, timestamp in ms and record of all that was appended before this call, in order.

        DamagedBatch, DamagedRecord or UnsupportedCompression end the iteration.
        """
        return self._read(self._bases.copy(), self._size)

    def close(self) -> None:
        """Close without sync."""
        if self._fd != -1:
            self._disk.close(self._fd)
            self._fd = -1

    def _read(self, bases: list[int], last_size: int) -> Iterator[tuple[int, int, Record]]:
        for base in bases:
            for batch in scan(self._disk, self._path(base), last_size if base == bases[-1] else None):
                yield from self._decode(batch)

    def _next_segment(self, base_offset: int) -> None:
        if self._bases:
            self._disk.sync(self._open_fd())
            self.close()
            self._disk.sync_folder(self.folder)  # the old name first: a log that begins with the new one has a hole
            self._create(base_offset)
            self._disk.sync_folder(self.folder)
        else:
            self._disk.make_folder(self.folder)
            self._unsynced_folders |= {self.folder, self.folder.parent}
            self._create(base_offset)

    def _create(self, base_offset: int) -> None:
        self._fd = self._disk.open(self._path(base_offset), os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._bases.append(base_offset)
        self._size = 0

    def _write(self, batches: list[bytes]) -> None:
        if batches:
            data = b"".join(batches)
            write_all(self._disk, self._open_fd(), data, self._size)
            self._size += len(data)
            self._unsynced = True

    def _cut(self, size: int) -> None:
        fd = self._open_fd()
        self._disk.truncate(fd, size)
        self._disk.sync(fd)

    def _open_fd(self) -> int:
        if self._fd == -1:
            self._fd = self._disk.open(self._path(self._bases[-1]), os.O_RDWR)
        return self._fd

    def _path(self, base_offset: int) -> Path:
        return self.folder / segment_name(base_offset)
