"""Numbers in a mapped file: each is stored by one instruction, and belongs to the system's memory from then on.

A killed process loses none and leaves no half-written one; a power loss takes back what was stored since the last sync
of the file. A disk says how it maps a file (``Disk.map``), because one in memory has none of the system's.
"""

from __future__ import annotations

import mmap
from typing import Protocol

SLOT_BYTES = 8
"""An aligned signed 64-bit number, in the machine's byte order."""


class Slots(Protocol):
    """The numbers of a file, by their place in it."""

    def __len__(self) -> int: ...

    def load(self, first: int, count: int) -> list[int]: ...

    def store(self, slot: int, number: int) -> None: ...

    def close(self) -> None:
        """Let go of the mapping; the file stays open."""


class MappedSlots:
    """Those of a real file, as many as it has when it is mapped."""

    def __init__(self, fd: int, size: int) -> None:
        self._mapping = mmap.mmap(fd, size // SLOT_BYTES * SLOT_BYTES)
        self._view = memoryview(self._mapping)
        self._slots = self._view.cast("q")

    def __len__(self) -> int:
        return len(self._slots)

    def load(self, first: int, count: int) -> list[int]:
        return self._slots[first : first + count].tolist()

    def store(self, slot: int, number: int) -> None:
        self._slots[slot] = number

    def close(self) -> None:
        self._slots.release()
        self._view.release()
        self._mapping.close()
