"""Where every partition ends, in one memory-mapped file: what must outlive the process although the records do not.

A slot is one aligned 64-bit number and is stored by one instruction, before the producer is answered. The pages belong
to the kernel, so a killed process loses nothing and leaves no half-written number; a power loss takes back what was
stored since the last sync.

One file for all topics, not one for each: a mapping holds a file descriptor, and a thousand topics should not cost a
thousand. Which slots are whose stands in ``topics.json``; slots that nobody names are free.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from ...errors import StartError
from ...log.disk import Disk, write_all
from ...log.slots import SLOT_BYTES, Slots

GROW_SLOTS = 512  # a page of 4096 bytes
HEADER = int.from_bytes(b"CBENDS01", "big")  # in the first slot; the other byte order reads as another number
FIRST_SLOT = 1


class EndOffsets:
    """The slots of a mapped file. Everything but ``sync`` belongs to one thread."""

    def __init__(self, path: Path, disk: Disk) -> None:
        """Open ``path``. Raises StartError if it is missing or not such a file."""
        self._path = path
        self._disk = disk
        self._dirty = False
        self._is_closed = False
        self._syncing = threading.Lock()  # close waits for a sync that another thread is in
        try:
            self._file = disk.open(path, os.O_RDWR)
        except OSError as error:
            way_out = "change its owner" if isinstance(error, PermissionError) else _WAY_OUT
            raise StartError(f"cannot open the end offsets '{path}': {error.strerror}; {way_out}") from error
        if disk.size(self._file) < SLOT_BYTES:
            disk.close(self._file)
            raise StartError(f"the end offsets '{path}' are cut off: expected at least {SLOT_BYTES} bytes; {_WAY_OUT}")
        self._slots: Slots = disk.map(self._file)
        [found] = self._slots.load(0, 1)
        if found != HEADER:
            self.close()
            raise StartError(f"the end offsets '{path}' begin with {found:#x}: expected {HEADER:#x}; {_WAY_OUT}")

    @staticmethod
    def create(path: Path, disk: Disk) -> None:
        """Write an empty file, durable but for the folder's entry; what stood there is lost."""
        fd = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(disk, fd, HEADER.to_bytes(SLOT_BYTES, sys.byteorder).ljust(GROW_SLOTS * SLOT_BYTES, b"\0"), 0)
            disk.sync(fd)
        finally:
            disk.close(fd)

    def __len__(self) -> int:
        return len(self._slots)

    def load(self, first: int, count: int) -> list[int]:
        """The offsets of slots ``first`` to ``first + count - 1``. Raises StartError if they cannot be offsets."""
        if first < FIRST_SLOT or first + count > len(self._slots):
            raise StartError(
                f"the end offsets '{self._path}' have {len(self._slots)} slots: expected {first + count}; {_WAY_OUT}"
            )
        offsets = self._slots.load(first, count)
        if min(offsets) < 0:
            raise StartError(f"the end offsets '{self._path}' hold {min(offsets)}: expected 0 or more; {_WAY_OUT}")
        return offsets

    def store(self, slot: int, offset: int) -> None:
        self._slots.store(slot, offset)
        self._dirty = True

    def reserve(self, first: int, count: int) -> None:
        """Set the slots to 0, and make the file long enough first. Raises OSError when the disk is full."""
        missing = first + count - len(self._slots)
        if missing > 0:
            self._grow(-(-missing // GROW_SLOTS) * GROW_SLOTS)
        for slot in range(first, first + count):
            self.store(slot, 0)

    def _grow(self, slots: int) -> None:
        # Real zeros, not a hole: a store into a hole on a full disk would kill the process.
        write_all(self._disk, self._file, bytes(slots * SLOT_BYTES), len(self._slots) * SLOT_BYTES)
        self._slots.close()
        self._slots = self._disk.map(self._file)

    def sync(self) -> None:
        """Make what was stored survive a power loss, if anything was. Blocks; any thread may call it.

        Not ``mmap.flush``, which keeps Python's lock while the disk works; a sync of the file writes its mapped pages.
        """
        with self._syncing:
            if self._dirty and not self._is_closed:
                self._dirty = False  # first: what is stored meanwhile is for the next sync
                self._disk.sync(self._file)

    def close(self) -> None:
        with self._syncing:
            self._is_closed = True
            self._slots.close()
            self._disk.close(self._file)


def free_run(spans: Iterable[tuple[int, int]], count: int) -> int:
    """The first of ``count`` free slots in a row. ``spans`` are the slots in use as (first, count)."""
    free = FIRST_SLOT
    for first, used in sorted(spans):
        if first - free >= count:
            break
        free = max(free, first + used)
    return free


_WAY_OUT = "restore it from a copy, or delete it and topics.json beside it to start without topics"
