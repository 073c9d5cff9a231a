"""What may go wrong with the disk during a life besides its end, by a seed."""

from __future__ import annotations

import errno
from math import inf
from random import Random

from callboard.runtime.disk.faulty import Fault, FaultyDisk

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
"""Short reads and writes are no errors, so nothing may come of them."""


class DiskFaults:
    """What one life meets. ``has_occurred``: the log has been told of an error, so it may have given up."""

    def __init__(self, random: Random, disk: FaultyDisk, share: float) -> None:
        self._random = random
        self._disk = disk
        self._is_ahead = random.random() < share
        self._is_full = False
        self.has_occurred = False
        if random.random() < share:
            for harmless in HARMLESS:
                disk.fail(Fault(*harmless, times=inf, chance=0.2))

    def inject(self) -> str:
        """Let something happen now, perhaps; what it is, for the story."""
        if self._is_full and self._random.random() < 0.3:
            self._is_full = False
            self._disk.capacity_bytes = inf
            return "room again"
        if not self._is_ahead or self._random.random() < 0.8:
            return ""
        self.has_occurred = True
        if self._random.random() < 0.4:
            self._is_full = True
            room = self._random.randrange(ROOM_BYTES_MAX)
            self._disk.capacity_bytes = self._disk.used_bytes() + room
            return f"room for {room} bytes"
        fault = Fault(*self._random.choice(FAULTS), skip=self._random.randrange(SKIP_MAX))
        self._disk.fail(fault)
        return str(fault)
