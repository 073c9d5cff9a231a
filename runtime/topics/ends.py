"""``topics.ends``: where every partition ends, which must outlive the process although the records do not.

All end offsets are held in memory, 8 bytes each, and each change is written to the file before the producer is
answered. So a killed process loses nothing; a power cut takes back what was stored since the last sync. There is no
mapping of the file, so another process that truncates it cannot kill this one: the next check finds it, and the file is
written anew from memory.

One file for all topics, because a file each would cost a descriptor each. Which slots belong to which topic stands in
``topics.json``; the others are free.
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
    """The open file. Everything but ``sync`` and ``put_in_place`` belongs to the thread of the loop.

    The file is always longer than its last slot in use, so a size below ``_size`` says that somebody has cut it, even
    if a slot behind the cut was written since.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        """Open ``path``. Raises OSError, and StartError if it is no such file of the present format."""
        self._path = path
        self._side_path = path.with_name(path.name + ".new")
        self._disk = disk
        self._is_dirty = False
        self._is_broken = False  # a write has failed
        self._is_closed = False
        self._guard = threading.Lock()  # who closes the file waits for a sync of it in another thread
        self._file = disk.open(path, os.O_RDWR)
        self._offsets = array("q", bytes(8 * (disk.size(self._file) // SLOT_BYTES)))
        header = disk.read(self._file, SLOT_BYTES, 0)
        if header != HEADER:
            self.close()
            raise StartError(f"the end offsets '{path}' begin with {header!r}: expected {HEADER!r}")

    @property
    def _size(self) -> int:
        """How many bytes the file must have."""
        return len(self._offsets) * SLOT_BYTES

    def loaded(self, first: int, offsets: Sequence[int]) -> None:
        """Take what was read of a topic's slots."""
        self._offsets[first : first + len(offsets)] = array("q", offsets)

    def __getitem__(self, slot: int) -> int:
        return self._offsets[slot]

    def store(self, slot: int, offset: int) -> None:
        """Raises OSError; then the offset counts all the same, and ``sync`` says that the file must be rewritten."""
        self._offsets[slot] = offset
        self._is_dirty = True
        try:
            write_all(self._disk, self._file, encode_slot(slot, offset), slot * SLOT_BYTES)
        except OSError:
            self._is_broken = True
            raise

    def reserve(self, first: int, offsets: Sequence[int]) -> None:
        """Set free slots, and make the file long enough for them. Raises OSError when the disk is full."""
        missing = first + len(offsets) + 1 - len(self._offsets)
        if missing > 0:
            if self._disk.size(self._file) < self._size:  # longer, it would look whole
                raise OSError(errno.EIO, f"{self._path.name} was cut and is about to be written anew")
            added = bytes(-(-missing // GROW_SLOTS) * GROW_SLOTS * SLOT_BYTES)
            write_all(self._disk, self._file, added, self._size)
            self._offsets.frombytes(bytes(len(added) // SLOT_BYTES * 8))
        self.loaded(first, offsets)
        self._is_dirty = True
        write_all(self._disk, self._file, encode_slots(first, offsets), first * SLOT_BYTES)

    def sync(self) -> str:
        """Make what was stored survive a power cut, and say what is wrong with the file; "" if nothing is.

        Blocks; any thread may call it. Raises OSError. A file with something wrong is not synced but must be written
        anew: ``rewrite``, then ``put_in_place``.
        """
        with self._guard:
            if self._is_closed:
                return ""
            problem = self._problem()
            if self._is_dirty and not problem:
                self._is_dirty = False  # first: what is stored meanwhile is for the next sync
                try:
                    self._disk.sync(self._file)
                except OSError:
                    self._is_broken = True  # the system may have dropped what it could not write
                    raise
            return problem

    def _problem(self) -> str:
        size = self._disk.size(self._file)
        if size < self._size:
            return f"it has {size} bytes, expected {self._size}: somebody has cut it"
        if not self._disk.is_named(self._file, self._path):
            return "it was removed, moved or replaced"
        return "it could not be written" if self._is_broken else ""

    def rewrite(self) -> None:
        """Write all offsets to a new file beside the old one, and store there from now on. Raises OSError."""
        new = self._disk.open(self._side_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(self._disk, new, _image(self._offsets), 0)
        except OSError:
            self._disk.close(new)
            raise
        with self._guard:
            old, self._file = self._file, new
            self._is_broken = False
        self._disk.close(old)

    def put_in_place(self) -> None:
        """Give the new file its name, durably. Blocks; any thread may call it. Raises OSError."""
        with self._guard:
            if not self._is_closed:
                self._disk.sync(self._file)
                self._disk.rename(self._side_path, self._path)
                self._disk.sync_folder(self._path.parent)

    def close(self) -> None:
        with self._guard:
            if not self._is_closed:
                self._is_closed = True
                self._disk.close(self._file)


class TopicEnds:
    """The end offsets of one topic's partitions, which lie side by side."""

    __slots__ = ("_count", "_ends", "_first_slot", "_moving_to")

    def __init__(self, ends: EndOffsetsFile, first_slot: int, count: int) -> None:
        self._ends = ends
        self._first_slot = first_slot
        self._count = count
        self._moving_to = 0  # a growing topic's next slots: until they count, or never will, both places are written

    def move(self, first_slot: int) -> None:
        """Store at these slots too, which have what was stored up to now."""
        self._moving_to = first_slot

    def moved(self, first_slot: int, count: int) -> None:
        """From now on these slots count."""
        self._first_slot, self._count, self._moving_to = first_slot, count, 0

    def stay(self) -> None:
        """The move is given up."""
        self._moving_to = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        return self._ends[self._first_slot + index]

    def keep(self, index: int, offset: int) -> None:
        """Store where a partition ends. Raises CoordinatorError (KAFKA_STORAGE_ERROR)."""
        try:
            self._ends.store(self._first_slot + index, offset)
            if self._moving_to:
                self._ends.store(self._moving_to + index, offset)
        except OSError as error:
            raise storage_error(error) from error


class NoEnds:
    """Those of the coordinator's own topics, which take no records here."""

    __slots__ = ("_count",)

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        return 0

    def keep(self, index: int, offset: int) -> None:
        pass


class FreeSlots:
    """The slots that no topic has. ``spans`` are those in use, as (first, count)."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._gaps: list[tuple[int, int]] = []
        self._end = FIRST_SLOT
        for first, count in sorted(spans):
            if first > self._end:
                self._gaps.append((self._end, first - self._end))
            self._end = max(self._end, first + count)

    def allocate(self, count: int) -> int:
        """The first of ``count`` slots side by side, which are no longer free."""
        for place, (first, free) in enumerate(self._gaps):
            if free >= count:
                self._gaps[place] = (first + count, free - count)
                return first
        self._end += count
        return self._end - count


def create_file(path: Path, offsets: Sequence[int], disk: Disk) -> None:
    """Write a file with these end offsets, by slot from 0 on, durably. Raises OSError."""
    length = -(-(len(offsets) + 1) // GROW_SLOTS) * GROW_SLOTS
    replace_file(disk, path, _image([*offsets, *[0] * (length - len(offsets))]))


def _image(offsets: Sequence[int]) -> bytes:
    return HEADER + encode_slots(FIRST_SLOT, offsets[FIRST_SLOT:])
