"""Keys on disk: their hashes in sorted files, for a partition whose keys are more than memory is to hold.

A file is a run. The first hash of each of its blocks stays in memory, a quarter of a byte for each key, and a key is
looked up by reading one block of each run. Runs of like size are merged, so that each is twice as long as the next and
there are few. All of it is gone when the compaction is done; nothing is synced.

A hash has 128 bits: among a milliard keys the chance that two share one is below one in 10^20. Kafka's cleaner trusts a
hash of as many bits, for every key.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from heapq import merge
from itertools import islice
from pathlib import Path
from struct import Struct

from ...disk.disk import Disk, read_at, write_all

HASH_BYTES = 16
BLOCK = 256  # hashes: 4 KiB, a page, is what a look-up reads
PIECE = 8 * BLOCK  # hashes that are read or written at once when a run is gone through

_HASH = Struct(f"{HASH_BYTES}s")


def hash_of(key: bytes) -> bytes:
    return blake2b(key, digest_size=HASH_BYTES).digest()


class HashRuns:
    """All runs of one compaction, the oldest and longest first. ``new_path`` names a file that is not there yet."""

    def __init__(self, disk: Disk, new_path: Callable[[], Path]) -> None:
        self._disk = disk
        self._new_path = new_path
        self._runs: list[HashRun] = []

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, keys: set[bytes]) -> None:
        """Move keys here that are not here yet; the set is empty afterwards. OSError."""
        if not keys:
            return
        hashes = []
        while keys:  # one by one, so that a key's memory is free before the next hash takes some
            hashes.append(hash_of(keys.pop()))
        hashes.sort()
        self._write(hashes)
        hashes.clear()
        while len(self._runs) > 1 and self._runs[-2].count < 2 * self._runs[-1].count:
            short, long = self._runs.pop(), self._runs.pop()
            self._write(merge(long, short))
            short.remove()
            long.remove()

    def missing(self, keys: Iterable[bytes]) -> list[bytes]:
        """Those keys that are in no run. OSError."""
        by_hash = {hash_of(key): key for key in keys}
        wanted = sorted(by_hash)
        for run in self._runs:
            found = run.find(wanted)
            wanted = [one for one in wanted if one not in found] if found else wanted
        return [by_hash[one] for one in wanted]

    def remove(self) -> None:
        """Remove all files. OSError."""
        while self._runs:
            self._runs.pop().remove()

    def _write(self, hashes: Iterable[bytes]) -> None:
        run = HashRun(self._disk, self._new_path())
        self._runs.append(run)
        run.write(hashes)


class HashRun:
    """One file of sorted hashes, each of them once."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.count = 0
        self._disk = disk
        self._path = path
        self._firsts: list[bytes] = []
        self._fd = disk.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def write(self, hashes: Iterable[bytes]) -> None:
        """Fill the file; ``hashes`` are sorted."""
        rest = iter(hashes)
        while piece := list(islice(rest, PIECE)):
            write_all(self._disk, self._fd, b"".join(piece), self.count * HASH_BYTES)
            self._firsts += piece[::BLOCK]
            self.count += len(piece)

    def __iter__(self) -> Iterator[bytes]:
        for first in range(0, self.count, PIECE):
            for (one,) in _HASH.iter_unpack(self._read(first, PIECE)):
                yield one

    def find(self, wanted: Sequence[bytes]) -> set[bytes]:
        """Which of some hashes, sorted, are here. OSError."""
        found: set[bytes] = set()
        index = bisect_left(wanted, self._firsts[0]) if self._firsts else len(wanted)
        while index < len(wanted):
            block = bisect_right(self._firsts, wanted[index])
            behind = bisect_left(wanted, self._firsts[block], index) if block < len(self._firsts) else len(wanted)
            data = self._read((block - 1) * BLOCK, BLOCK)
            found.update(one for one in wanted[index:behind] if _is_in(one, data))
            index = behind
        return found

    def remove(self) -> None:
        self._disk.close(self._fd)
        with suppress(FileNotFoundError):  # collected, because this compaction has lost already
            self._disk.remove(self._path)

    def _read(self, first: int, count: int) -> bytes:
        return read_at(self._disk, self._fd, min(count, self.count - first) * HASH_BYTES, first * HASH_BYTES)


def _is_in(one: bytes, block: bytes) -> bool:
    at = block.find(one)
    while at > 0 and at % HASH_BYTES:  # the end of one hash and the beginning of the next
        at = block.find(one, at + 1)
    return at >= 0
