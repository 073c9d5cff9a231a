"""Looking for the next good batch behind damage, byte by byte, in bounded memory and time.

The magic byte and what must stand round it give the candidates; a checksum tells. Garbage can be made so that every
few bytes look like the head of a large batch, whose checksum would take long: then the search is given up, which says
"not known" and not "nothing there". Whoever asked must not cut anything then.
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

WINDOW_BYTES = 4 * 1024 * 1024  # what is searched at once, in memory
BATCH_BYTES_MAX = 64 * 1024 * 1024  # a larger one is not looked for: no server is set to take such
RECORD_BYTES_MAX = 2 * 1024 * 1024  # no record is larger, unless message_max_bytes is set to more
SEARCH_COST_FACTOR = 64  # bytes that may be read and checked for each that is searched: a second or two for 100 MB
SEARCH_COST_MIN_BYTES = 1024 * 1024 * 1024  # for a short search, which takes no time anyway
CANDIDATE_COST_BYTES = 4096  # what a candidate costs at least: about as much time as the checksum of so many bytes

_MAGIC_AT = 16
_HEAD_FIELDS = Struct(">qiibIhi")
# Magic 2; before it a base offset and a length (below 64 MiB) that are not negative; behind it a checksum, attributes
# whose upper byte is not used, and a last offset delta that is not negative.
_HEAD = re.compile(
    rb"\x02(?<=[\x00-\x7f][\x00-\xff]{7}[\x00-\x03][\x00-\xff]{7}\x02)(?=[\x00-\xff]{4}\x00[\x00-\xff][\x00-\x7f])"
)


class SearchAborted(Exception):
    """Too much of what was looked through looks like a batch and is none."""

    def __init__(self, position: int) -> None:
        super().__init__(f"the search for a good batch behind it was given up at byte {position}")


class OpenFile(NamedTuple):
    """A file that is being read up to ``end``; what is appended later is not looked at."""

    disk: Disk
    fd: int
    path: Path
    end: int

    def read(self, size: int, position: int) -> bytes:
        """Exactly ``size`` bytes; OSError that names the file and the position when they cannot be read."""
        try:
            data = read_at(self.disk, self.fd, size, position)
        except OSError as error:
            reason = error.strerror or str(error)
            raise OSError(error.errno, f"{self.path}: cannot read {size} bytes at byte {position}: {reason}") from error
        if len(data) < size:
            raise OSError(errno.EIO, f"{self.path}: read {len(data)} bytes at byte {position}, expected {size}")
        return data

    def head(self, position: int) -> Head | None:
        """What the first bytes there say of a batch; None when they cannot be those of one."""
        if self.end - position < HEADER_BYTES:
            return None
        head = head_of(self.read(HEADER_BYTES, position), 0)
        fits = HEADER_BYTES <= head.size <= self.end - position and 0 <= head.base_offset <= head.last_offset
        return head if fits else None

    def batch(self, position: int, size: int) -> Batch | None:
        """The good batch there; None when it is none."""
        try:
            return read_batch(memoryview(self.read(size, position)))
        except DamagedBatch:
            return None


class Head(NamedTuple):
    """What the head of a batch says, whether or not it is true: its size in bytes, its offsets."""

    size: int
    base_offset: int
    last_offset: int


def head_of(data: bytes, at: int) -> Head:
    """The head of what may be a batch; at least ``HEADER_BYTES`` are there."""
    base, length, _, _, _, _, last_delta = _HEAD_FIELDS.unpack_from(data, at)
    return Head(PREFIX_BYTES + length, base, base + last_delta)


def find_good_batch(file: OpenFile, start: int, expected: int, next_base: int | None) -> int | None:
    """Where at or after ``start`` the first good batch begins; None when there is none, SearchAborted.

    Its offsets are ``expected`` or more, and below ``next_base``. One that jumps further than the bytes before it could
    have held offsets counts only when a good batch or the end of the file follows: the bytes of a client may look like
    a batch, too.

    A batch in a record of the damaged batch is passed over, as far as offsets tell. What is damaged was a batch or
    more, before and behind the good ones, so offsets are missing in both places; and good batches that go on to the end
    of the file, or behind any record, are right.
    """
    return _Search(file, start, expected, next_base).run()


class _Chain(NamedTuple):
    """Good batches side by side: where they lie, the first one's base offset and the offset that follows the last."""

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
        self._effort = max(SEARCH_COST_MIN_BYTES, SEARCH_COST_FACTOR * (file.end - start))

    def run(self) -> int | None:
        chains = self._chains()
        if not chains:
            return None
        anchor = next((chain for chain in chains if chain.end == self._file.end), None)
        found = anchor or max(chains, key=lambda chain: chain.end - chain.position)
        for chain in reversed(chains[: chains.index(found)]):
            if self._expected < chain.first_offset and chain.next_offset < found.first_offset:
                found = chain
        return found.position

    def _chains(self) -> list[_Chain]:
        """What may lie in a record of the damaged batch, and the first that cannot."""
        chains: list[_Chain] = []
        position = self._start
        try:
            while position < self._file.end and (found := self._first(position)) is not None:
                chains.append(self._chain(found))
                position = chains[-1].end
        except SearchAborted:
            if not chains:
                raise
        return chains

    def _chain(self, position: int) -> _Chain:
        """The good batches from ``position`` on; as if to the end of the file if they go on behind any record."""
        file, limit, at = self._file, self._start + RECORD_BYTES_MAX, position
        first_offset = next_offset = -1
        while (head := file.head(at)) is not None and head.base_offset >= next_offset:
            batch = file.batch(at, head.size)
            if batch is None:
                break
            first_offset = batch.base_offset if at == position else first_offset
            at, next_offset = at + batch.size, batch.last_offset + 1
            if at >= limit:
                return _Chain(position, file.end, first_offset, next_offset)
        return _Chain(position, at, first_offset, next_offset)

    def _first(self, start: int) -> int | None:
        """Where at or after ``start`` the first batch begins that may be the log's."""
        file = self._file
        for window_at in range(start, file.end, WINDOW_BYTES):
            window = file.read(min(WINDOW_BYTES + HEADER_BYTES, file.end - window_at), window_at)
            for match in _HEAD.finditer(window):
                at = match.start() - _MAGIC_AT
                if (
                    0 <= at < WINDOW_BYTES
                    and at + HEADER_BYTES <= len(window)
                    and self._is_next(window_at + at, window, at)
                ):
                    return window_at + at
        return None

    def _is_next(self, position: int, window: bytes, at: int) -> bool:
        batch = self._batch(position, head_of(window, at), self._expected)
        if batch is None:
            return False
        if batch.base_offset - self._expected <= position - self._start:
            return True
        behind = position + batch.size
        return behind == self._file.end or self._follows(behind, batch.last_offset + 1)

    def _follows(self, position: int, lowest: int) -> bool:
        head = self._file.head(position)
        return head is not None and self._batch(position, head, lowest) is not None

    def _batch(self, position: int, head: Head, lowest: int) -> Batch | None:
        """The good batch there, if there is one whose offsets fit."""
        fits = HEADER_BYTES <= head.size <= min(BATCH_BYTES_MAX, self._file.end - position)
        if not fits or not lowest <= head.base_offset <= head.last_offset:
            return None
        if self._next_base is not None and head.last_offset >= self._next_base:
            return None
        self._effort -= max(head.size, CANDIDATE_COST_BYTES)
        if self._effort < 0:
            raise SearchAborted(position)
        return self._file.batch(position, head.size)
