"""Searches for the next valid batch after damage, byte by byte, in bounded memory and time.

The magic byte and the constraints on the bytes around it select candidates; the checksum decides. Bytes can be crafted
so that every few of them look like the header of a large batch, whose checksum takes long. Then the search stops with
SearchAborted: whether a valid batch follows is unknown, so the caller must not truncate anything.
"""

from __future__ import annotations

import errno
import re
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ...disk.disk import Disk, read_at
from ..format.batch import HEADER_BYTES, PREFIX_BYTES, Batch, read_batch
from ..format.errors import DamagedBatch

WINDOW_BYTES = 4 * 1024 * 1024  # searched at once, in memory
BATCH_BYTES_MAX = 64 * 1024 * 1024  # larger batches are not found; no server is configured to accept them
RECORD_BYTES_MAX = 2 * 1024 * 1024  # no record is larger, unless message_max_bytes is set to more
SEARCH_COST_FACTOR = 64  # bytes read and checked per byte searched: one or two seconds for 100 MB
SEARCH_COST_MIN_BYTES = 1024 * 1024 * 1024  # the limit for short searches, which are quick anyway
CANDIDATE_COST_BYTES = 4096  # minimum cost of a candidate: its overhead is about the checksum of so many bytes

_MAGIC_AT = 16
_HEAD_FIELDS = Struct(">qiibIhi")
# Magic 2; before it a base offset >= 0 and a length from 0 to 64 MiB; after it a checksum, attributes with an unused
# upper byte, and a last offset delta >= 0.
_HEAD = re.compile(
    rb"\x02(?<=[\x00-\x7f][\x00-\xff]{7}[\x00-\x03][\x00-\xff]{7}\x02)(?=[\x00-\xff]{4}\x00[\x00-\xff][\x00-\x7f])"
)


class SearchAborted(Exception):
    """Too many candidates looked like a batch and were none."""

    def __init__(self, position: int) -> None:
        super().__init__(f"the search for a good batch behind it was given up at byte {position}")


class OpenFile(NamedTuple):
    """A file that is read up to ``end``; bytes appended later are ignored."""

    disk: Disk
    fd: int
    path: Path
    end: int

    def read(self, size: int, position: int) -> bytes:
        """Exactly ``size`` bytes. Raises OSError, with the file and the position, if they cannot be read."""
        try:
            data = read_at(self.disk, self.fd, size, position)
        except OSError as error:
            reason = error.strerror or str(error)
            raise OSError(error.errno, f"{self.path}: cannot read {size} bytes at byte {position}: {reason}") from error
        if len(data) < size:
            raise OSError(errno.EIO, f"{self.path}: read {len(data)} bytes at byte {position}, expected {size}")
        return data

    def head(self, position: int) -> Head | None:
        """The header fields of a batch at ``position``; None if no batch can begin there."""
        if self.end - position < HEADER_BYTES:
            return None
        head = head_of(self.read(HEADER_BYTES, position), 0)
        fits = HEADER_BYTES <= head.size <= self.end - position and 0 <= head.base_offset <= head.last_offset
        return head if fits else None

    def batch(self, position: int, size: int) -> Batch | None:
        """The valid batch at ``position``; None if there is none."""
        try:
            return read_batch(memoryview(self.read(size, position)))
        except DamagedBatch:
            return None


class Head(NamedTuple):
    """Size in bytes and offsets from the header of a batch, not verified."""

    size: int
    base_offset: int
    last_offset: int


def head_of(data: bytes, at: int) -> Head:
    """The header fields of a possible batch; ``data`` has at least ``HEADER_BYTES`` from ``at`` on."""
    base, length, _, _, _, _, last_delta = _HEAD_FIELDS.unpack_from(data, at)
    return Head(PREFIX_BYTES + length, base, base + last_delta)


def find_good_batch(file: OpenFile, start: int, expected: int, next_base: int | None) -> int | None:
    """The position of the first valid batch at or after ``start``; None if there is none. Raises SearchAborted.

    Its offsets are ``expected`` or more, and below ``next_base``. If its base offset is farther ahead than the skipped
    bytes could have held records, it counts only if a valid batch or the end of the file follows it, because a record
    may contain bytes that look like a batch.

    Batches inside a record of the damaged batch are skipped as far as offsets tell: between two chains of valid batches
    there must be missing offsets, and a chain that reaches the end of the file, or beyond the largest possible record,
    is part of the log.
    """
    return _Search(file, start, expected, next_base).run()


class _Chain(NamedTuple):
    """Adjacent valid batches: their bounds in the file, the first offset, and the offset after the last one."""

    position: int
    end: int
    first_offset: int
    next_offset: int


class _Search:
    def __init__(self, file: OpenFile, start: int, expected: int, next_base: int | None) -> None:
        self._file = file
        self._start = start
        self._expected = expected
        self._next_base = next_base
        self._remaining_cost = max(SEARCH_COST_MIN_BYTES, SEARCH_COST_FACTOR * (file.end - start))

    def run(self) -> int | None:
        chains = self._chains()
        if not chains:
            return None
        best = next((chain for chain in chains if chain.end == self._file.end), None)
        chain_start = best or max(chains, key=lambda chain: chain.end - chain.position)
        for chain in reversed(chains[: chains.index(chain_start)]):
            if self._expected < chain.first_offset and chain.next_offset < chain_start.first_offset:
                chain_start = chain
        return chain_start.position

    def _chains(self) -> list[_Chain]:
        """Chains that may be part of a damaged record, and the first chain that cannot be."""
        chains: list[_Chain] = []
        position = self._start
        try:
            while position < self._file.end and (chain_start := self._find_first(position)) is not None:
                chains.append(self._chain(chain_start))
                position = chains[-1].end
        except SearchAborted:
            if not chains:
                raise
        return chains

    def _chain(self, position: int) -> _Chain:
        """The valid batches from ``position`` on. One that extends beyond any record is taken as reaching the end."""
        file, limit, at = self._file, self._start + RECORD_BYTES_MAX, position
        first_offset = next_offset = -1
        while (head := file.head(at)) is not None and head.base_offset >= next_offset:
            batch = file.batch(at, head.size)
            if batch is None or (at > position and head.base_offset > next_offset and self._is_raised(at, head)):
                break
            first_offset = batch.base_offset if at == position else first_offset
            at, next_offset = at + batch.size, batch.last_offset + 1
            if at >= limit:
                return _Chain(position, file.end, first_offset, next_offset)
        return _Chain(position, at, first_offset, next_offset)

    def _is_raised(self, position: int, head: Head) -> bool:
        """Whether offsets fall after the batch at ``position``: no checksum covers its base offset."""
        following = self._file.head(position + head.size)
        return following is not None and following.base_offset <= head.last_offset

    def _find_first(self, start: int) -> int | None:
        """The position of the first batch at or after ``start`` that may be part of the log."""
        file = self._file
        for window_at in range(start, file.end, WINDOW_BYTES):
            window = file.read(min(WINDOW_BYTES + HEADER_BYTES, file.end - window_at), window_at)
            for match in _HEAD.finditer(window):
                at = match.start() - _MAGIC_AT
                if (
                    0 <= at < WINDOW_BYTES
                    and at + HEADER_BYTES <= len(window)
                    and self._is_next_batch(window_at + at, window, at)
                ):
                    return window_at + at
        return None

    def _is_next_batch(self, position: int, window: bytes, at: int) -> bool:
        batch = self._checked_batch(position, head_of(window, at), self._expected)
        if batch is None:
            return False
        if batch.base_offset - self._expected <= position - self._start:
            return True
        next_at = position + batch.size
        return next_at == self._file.end or self._is_followed(next_at, batch.last_offset + 1)

    def _is_followed(self, position: int, min_offset: int) -> bool:
        head = self._file.head(position)
        return head is not None and self._checked_batch(position, head, min_offset) is not None

    def _checked_batch(self, position: int, head: Head, min_offset: int) -> Batch | None:
        """The valid batch at ``position``, if its offsets are possible there."""
        fits = HEADER_BYTES <= head.size <= min(BATCH_BYTES_MAX, self._file.end - position)
        if not fits or not min_offset <= head.base_offset <= head.last_offset:
            return None
        if self._next_base is not None and head.last_offset >= self._next_base:
            return None
        self._remaining_cost -= max(head.size, CANDIDATE_COST_BYTES)
        if self._remaining_cost < 0:
            raise SearchAborted(position)
        return self._file.batch(position, head.size)
