"""Disk faults during a process's life, by a seed: errors, short reads and writes, a full disk."""

from __future__ import annotations

import errno
from math import inf
from random import Random

from callboard.runtime.testing.disk.faulty import Fault, FaultyDisk

JOURNALS, PARTITIONS, ANY = "*.journal", "*/__*", "*"
ROOM_BYTES_MAX = 3000
SKIP_MAX = 12

FAULTS = (
    ("sync", errno.EIO, JOURNALS),
    ("write", errno.EIO, JOURNALS),
    ("sync", errno.EIO, PARTITIONS),
    ("write", errno.EIO, PARTITIONS),
    ("sync_folder", errno.EIO, ANY),
    ("open", errno.EIO, ANY),
    ("open", errno.EMFILE, ANY),
    ("open", errno.ENFILE, ANY),
    ("remove", errno.EIO, ANY),
    ("truncate", errno.EIO, ANY),
)
HARMLESS = (("write", 0, ANY), ("read", 0, ANY))
"""Short reads and writes are not errors and must have no effect."""


class DiskFaults:
    """The faults of one life. ``has_occurred``: the log may have met an error, and may have stopped."""

    def __init__(self, random: Random, disk: FaultyDisk, probability: float) -> None:
        self._random = random
        self._disk = disk
        self._will_fail = random.random() < probability
        self._is_full = False
        self.has_occurred = False
        if random.random() < probability:
            for harmless in HARMLESS:
                disk.faults.fail(Fault(*harmless, times=inf, chance=0.2))

    def inject(self) -> str:
        """Inject or end a random fault; return a line for the events, or ""."""
        if self._is_full and self._random.random() < 0.3:
            self._is_full = False
            self._disk.capacity_bytes = inf
            return "room again"
        if not self._will_fail or self._random.random() < 0.8:
            return ""
        self.has_occurred = True
        if self._random.random() < 0.4:
            self._is_full = True
            free_bytes = self._random.randrange(ROOM_BYTES_MAX)
            self._disk.capacity_bytes = self._disk.used_bytes() + free_bytes
            return f"room for {free_bytes} bytes"
        fault = Fault(*self._random.choice(FAULTS), skip=self._random.randrange(SKIP_MAX))
        self._disk.faults.fail(fault)
        return str(fault)
