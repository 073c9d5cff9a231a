"""``topics.ends``: the end offset of every partition, which is durable although the records are not.

All end offsets are in memory, 8 bytes each. Each change is written to the file before the producer gets its response,
so a killed process loses nothing; a power cut loses the changes since the last sync. The file is not memory-mapped, so
another process that truncates it cannot crash this one: the next check finds that, and the file is rewritten from
memory.

There is one file for all topics, because a file per topic would need a descriptor per topic. ``topics.json`` has the
slots of each topic; the others are free.
"""

from __future__ import annotations

import errno
import os
import threading
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..common.errors import StartError
from ..disk.disk import Disk, replace_file, write_all
from .end_slots import FIRST_SLOT, HEADER, SLOT_BYTES, encode_slot, encode_slots
from .failures import storage_error

GROW_SLOTS = 256  # 4096 bytes


class EndOffsetsFile:
    """The open file. All methods but ``sync`` and ``put_in_place`` must be called on the event loop's thread.

    The file is always longer than its last used slot. So a size below ``_size`` shows that it was truncated, even if a
    slot after the cut has been written since.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        """Open ``path``. Raises OSError, and StartError if it is not a file of the current format."""
        self._path = path
        self._temporary_path = path.with_name(path.name + ".new")
        self._disk = disk
        self._is_dirty = False
        self._is_broken = False  # a write has failed
        self._is_closed = False
        self._file_lock = threading.Lock()  # closing waits for a sync in another thread
        self._file = disk.open(path, os.O_RDWR)
        self._offsets = array("q", bytes(8 * (disk.size(self._file) // SLOT_BYTES)))
        header = disk.read(self._file, SLOT_BYTES, 0)
        if header != HEADER:
            self.close()
            raise StartError(f"the end offsets '{path}' begin with {header!r}: expected {HEADER!r}")

    @property
    def _size(self) -> int:
        """The size in bytes that the file must have."""
        return len(self._offsets) * SLOT_BYTES

    def set_loaded(self, first: int, offsets: Sequence[int]) -> None:
        """Set offsets in memory only, as read from the file."""
        self._offsets[first : first + len(offsets)] = array("q", offsets)

    def __getitem__(self, slot: int) -> int:
        return self._offsets[slot]

    def store(self, slot: int, offset: int) -> None:
        """Store an end offset. After an OSError it is in effect in memory, and ``sync`` reports a problem."""
        self._offsets[slot] = offset
        self._is_dirty = True
        try:
            write_all(self._disk, self._file, encode_slot(slot, offset), slot * SLOT_BYTES)
        except OSError:
            self._is_broken = True
            raise

    def reserve(self, first: int, offsets: Sequence[int]) -> None:
        """Write free slots, extending the file as needed. Raises OSError, for example if the disk is full."""
        missing = first + len(offsets) + 1 - len(self._offsets)
        if missing > 0:
            if self._disk.size(self._file) < self._size:  # once extended, it would look complete
                raise OSError(errno.EIO, f"{self._path.name} was truncated and is about to be rewritten")
            added = bytes(-(-missing // GROW_SLOTS) * GROW_SLOTS * SLOT_BYTES)
            write_all(self._disk, self._file, added, self._size)
            self._offsets.frombytes(bytes(len(added) // SLOT_BYTES * 8))
        self.set_loaded(first, offsets)
        self._is_dirty = True
        write_all(self._disk, self._file, encode_slots(first, offsets), first * SLOT_BYTES)

    def sync(self) -> str:
        """Sync the file; returns what is wrong with the file, or "".

        Blocks; any thread may call it. Raises OSError. A file with a problem is not synced; it must be rewritten with
        ``rewrite`` and ``put_in_place``.
        """
        with self._file_lock:
            if self._is_closed:
                return ""
            problem = self._problem()
            if self._is_dirty and not problem:
                self._is_dirty = False  # before the sync: concurrent stores are for the next one
                try:
                    self._disk.sync(self._file)
                except OSError:
                    self._is_broken = True  # the system may have dropped pages that it could not write
                    raise
            return problem

    def _problem(self) -> str:
        expected = self._size  # read first, since the file grows before it does
        size = self._disk.size(self._file)
        if size < expected:
            return f"it has {size} bytes, expected {expected}: it was truncated"
        if not self._disk.is_named(self._file, self._path):
            return "it was removed, moved or replaced"
        return "it could not be written" if self._is_broken else ""

    def rewrite(self) -> None:
        """Write all offsets to a new file beside the old one, and use the new file from now on. Raises OSError."""
        new_file = self._disk.open(self._temporary_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(self._disk, new_file, _encode_file(self._offsets), 0)
        except OSError:
            self._disk.close(new_file)
            raise
        with self._file_lock:
            old_file, self._file = self._file, new_file
            self._is_broken = False
        self._disk.close(old_file)

    def put_in_place(self) -> None:
        """Rename the new file into place, durably. Blocks; any thread may call it. Raises OSError."""
        with self._file_lock:
            if not self._is_closed:
                self._disk.sync(self._file)
                self._disk.rename(self._temporary_path, self._path)
                self._disk.sync_folder(self._path.parent)

    def close(self) -> None:
        with self._file_lock:
            if not self._is_closed:
                self._is_closed = True
                self._disk.close(self._file)


class TopicEnds:
    """The end offsets of one topic's partitions, in adjacent slots."""

    __slots__ = ("_count", "_ends", "_first_slot", "_moving_to")

    def __init__(self, ends: EndOffsetsFile, first_slot: int, count: int) -> None:
        self._ends = ends
        self._first_slot = first_slot
        self._count = count
        self._moving_to: tuple[int, ...] = ()  # next slots of a growing topic; all are written until the moves end

    def begin_move(self, first_slot: int) -> None:
        """From now on also store to these slots, to which the caller copies the current offsets."""
        self._moving_to += (first_slot,)

    def finish_move(self, first_slot: int, count: int) -> None:
        """Use the new slots instead of the old ones."""
        self.cancel_move(first_slot)
        self._first_slot, self._count = first_slot, count

    def cancel_move(self, first_slot: int) -> None:
        """Do not store to these slots any more."""
        self._moving_to = tuple(slot for slot in self._moving_to if slot != first_slot)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        return self._ends[self._first_slot + index]

    def store(self, index: int, offset: int) -> None:
        """Store the end offset of a partition. Raises CoordinatorError (KAFKA_STORAGE_ERROR)."""
        try:
            self._ends.store(self._first_slot + index, offset)
            for first_slot in self._moving_to:
                self._ends.store(first_slot + index, offset)
        except OSError as error:
            raise storage_error(error) from error


class InternalTopicEnds:
    """The end offsets, all 0, of the coordinator's own topics, whose records are not stored by this package."""

    __slots__ = ("_count",)

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        return 0

    def store(self, index: int, offset: int) -> None:
        pass


class FreeSlots:
    """The free slots. ``spans``: the used ones, as (first, count)."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._gaps: dict[int, list[int]] = {}  # the first slots of the gaps, by size
        self._end = FIRST_SLOT
        for first, count in sorted(spans):
            if first > self._end:
                self._gaps.setdefault(first - self._end, []).append(self._end)
            self._end = max(self._end, first + count)

    def allocate(self, count: int) -> int:
        """Allocate ``count`` adjacent slots; returns the first. A gap of exactly this size is preferred."""
        size = count if count in self._gaps else max(self._gaps, default=0)
        if size < count:
            self._end += count
            return self._end - count
        firsts = self._gaps[size]
        first = firsts.pop()
        if not firsts:
            del self._gaps[size]
        if size > count:
            self._gaps.setdefault(size - count, []).append(first + count)
        return first


def create_file(path: Path, offsets: Sequence[int], disk: Disk) -> None:
    """Write a file with these end offsets, from slot 0 on, durably. Raises OSError."""
    length = -(-(len(offsets) + 1) // GROW_SLOTS) * GROW_SLOTS
    replace_file(disk, path, _encode_file([*offsets, *[0] * (length - len(offsets))]))


def _encode_file(offsets: Sequence[int]) -> bytes:
    return HEADER + encode_slots(FIRST_SLOT, offsets[FIRST_SLOT:])
