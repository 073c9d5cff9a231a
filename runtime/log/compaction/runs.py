"""Keeps hashes of keys in sorted files, for partitions with more keys than memory may hold.

Each file is a run. The first hash of each block stays in memory, a quarter of a byte per key, so looking up a key reads
one block per run. Runs of similar size are merged: each is at least twice as long as the next, so there are few. The
files are removed at the end of the compaction and never synced.

A hash has 128 bits: among 10^9 keys, the chance that any two have the same hash is below 1 in 10^20. Kafka's cleaner
also relies on 128-bit hashes, for every key.
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
BLOCK_HASHES = 256  # 4 KiB, a page: read by each lookup
PIECE_HASHES = 8 * BLOCK_HASHES  # read or written at once when a run is scanned

_HASH = Struct(f"{HASH_BYTES}s")


def hash_key(key: bytes) -> bytes:
    return blake2b(key, digest_size=HASH_BYTES).digest()


class HashRuns:
    """All runs of one compaction, oldest and longest first. ``new_path`` returns the path for a new file."""

    def __init__(self, disk: Disk, new_path: Callable[[], Path]) -> None:
        self._disk = disk
        self._new_path = new_path
        self._runs: list[HashRun] = []

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, keys: set[bytes]) -> None:
        """Move keys that are in no run yet into a new run, and empty the set. Raises OSError."""
        if not keys:
            return
        hashes = []
        while keys:  # one by one, so each key's memory is freed before the next hash is allocated
            hashes.append(hash_key(keys.pop()))
        hashes.sort()
        self._write(hashes)
        hashes.clear()
        while len(self._runs) > 1 and self._runs[-2].count < 2 * self._runs[-1].count:
            newer, older = self._runs.pop(), self._runs.pop()
            self._write(merge(older, newer))
            newer.remove()
            older.remove()

    def find_missing(self, keys: Iterable[bytes]) -> list[bytes]:
        """The keys that are in no run. Raises OSError."""
        by_hash = {hash_key(key): key for key in keys}
        sorted_hashes = sorted(by_hash)
        for run in self._runs:
            matches = run.find(sorted_hashes)
            if matches:
                sorted_hashes = [digest for digest in sorted_hashes if digest not in matches]
        return [by_hash[digest] for digest in sorted_hashes]

    def remove(self) -> None:
        """Remove all files. Raises OSError."""
        while self._runs:
            self._runs.pop().remove()

    def _write(self, hashes: Iterable[bytes]) -> None:
        run = HashRun(self._disk, self._new_path())
        self._runs.append(run)
        run.write(hashes)


class HashRun:
    """One file of sorted, unique hashes."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.count = 0
        self._disk = disk
        self._path = path
        self._first_hashes: list[bytes] = []
        self._fd = disk.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def write(self, hashes: Iterable[bytes]) -> None:
        """Write the file. ``hashes`` must be sorted."""
        remaining = iter(hashes)
        while piece := list(islice(remaining, PIECE_HASHES)):
            write_all(self._disk, self._fd, b"".join(piece), self.count * HASH_BYTES)
            self._first_hashes += piece[::BLOCK_HASHES]
            self.count += len(piece)

    def __iter__(self) -> Iterator[bytes]:
        for first in range(0, self.count, PIECE_HASHES):
            for (digest,) in _HASH.iter_unpack(self._read(first, PIECE_HASHES)):
                yield digest

    def find(self, sorted_hashes: Sequence[bytes]) -> set[bytes]:
        """Those of the hashes that are in this run. Raises OSError."""
        matches: set[bytes] = set()
        index = bisect_left(sorted_hashes, self._first_hashes[0]) if self._first_hashes else len(sorted_hashes)
        while index < len(sorted_hashes):
            block = bisect_right(self._first_hashes, sorted_hashes[index])
            stop = (
                bisect_left(sorted_hashes, self._first_hashes[block], index)
                if block < len(self._first_hashes)
                else len(sorted_hashes)
            )
            data = self._read((block - 1) * BLOCK_HASHES, BLOCK_HASHES)
            matches.update(digest for digest in sorted_hashes[index:stop] if _is_in(digest, data))
            index = stop
        return matches

    def remove(self) -> None:
        self._disk.close(self._fd)
        with suppress(FileNotFoundError):  # removed already, because another compaction was first
            self._disk.remove(self._path)

    def _read(self, first: int, count: int) -> bytes:
        return read_at(self._disk, self._fd, min(count, self.count - first) * HASH_BYTES, first * HASH_BYTES)


def _is_in(digest: bytes, block: bytes) -> bool:
    at = block.find(digest)
    while at > 0 and at % HASH_BYTES:  # a match across two hashes
        at = block.find(digest, at + 1)
    return at >= 0
