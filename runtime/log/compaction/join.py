"""The output of compaction: what was spilled file by file is joined to a few files, in the order of the log.

Only here, on the way from the oldest to the newest, is it known whether data of a transaction is left before the marker
that ends it. A marker stays as long as there is some, and as long as tombstones do after that (KIP-534).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ...disk.crc import crc32c
from ...disk.disk import Disk, read_at, write_all
from ..format.batch import CONTROL_BIT, HEADER_BYTES, PREFIX_BYTES, TRANSACTIONAL_BIT
from ..manifest import Compacted
from ..reading.spans import read_headers, read_spans
from .kernel import Rules, Spilled
from .rewrite import DELETE_HORIZON_BIT, empty_batch, set_delete_horizon

FARTHEST = 2**31 - 1
"""Between the first and the last offset of a file: Kafka's indexes count in 32 bits."""

_LENGTH = Struct(">i")


class Piece(NamedTuple):
    """A part of an output: its bytes, how many of its records were dropped after all, its first delete horizon."""

    data: bytes
    dropped: int
    horizon_ms: int | None


def groups(sources: Sequence[Spilled], end: int, segment_bytes: int) -> Iterator[tuple[list[Spilled], int]]:
    """Which sources become one file, and at which offset that ends: as many neighbours as fit into a segment.

    A file begins where a source began: that is what lets a reader of Kafka's names go on at any time while the files
    are put in the place of the old ones, one by one.
    """
    ends = [*(source.base for source in sources[1:]), end]
    together: list[Spilled] = []
    for index, source in enumerate(sources):
        size = sum(one.size for one in together) + source.size
        if together and (size > segment_bytes or ends[index] - together[0].base > FARTHEST):
            yield together, source.base
            together = []
        together.append(source)
    if together:
        yield together, end


class Joiner:
    """Writes the outputs of one run, oldest first."""

    def __init__(self, disk: Disk, folder: Path, spill_fd: int, rules: Rules, has_transactions: bool) -> None:
        self._disk = disk
        self._folder = folder
        self._spill_fd = spill_fd
        self._markers = Markers(rules) if has_transactions else None

    def write(self, name: str, sources: Sequence[Spilled], end: int) -> Compacted:
        """One output, durable but for its name, that holds what stays of these sources and ends at that offset."""
        fd = self._disk.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        size = checksum = 0
        records = sum(source.records for source in sources)
        horizons = [source.horizon_ms for source in sources]
        try:
            for piece in self._pieces(sources):
                write_all(self._disk, fd, piece.data, size)
                size += len(piece.data)
                checksum = crc32c(piece.data, checksum)
                records -= piece.dropped
                horizons.append(piece.horizon_ms)
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)
        horizon_ms = min((one for one in horizons if one is not None), default=None)
        return Compacted(name, sources[0].base, end, size, checksum, records, horizon_ms)

    def _pieces(self, sources: Sequence[Spilled]) -> Iterator[Piece]:
        for source in sources:
            for position, size in source.pieces:
                data = read_at(self._disk, self._spill_fd, size, position)
                is_last = (position, size) == source.pieces[-1]
                yield self._markers.look(data, is_last) if self._markers else Piece(data, 0, None)


class Markers:
    """Which markers stay; to be shown everything that is left, oldest first."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._with_data: set[int] = set()

    def look(self, data: bytes, ends_file: bool) -> Piece:
        """A piece without the markers that have had their time."""
        parts: list[bytes] = []
        horizons: list[int] = []
        dropped = 0
        headers = read_headers(data, _starts(data))
        for index, (at, end) in enumerate(zip(headers.at, headers.end, strict=True)):
            batch = data[at:end]
            if self._is_unneeded(headers.attributes[index], headers.producer_id[index], headers.record_count[index]):
                horizon = headers.base_timestamp_ms[index]
                if not headers.attributes[index] & DELETE_HORIZON_BIT:
                    batch, horizon = self._with_horizon(batch)
                elif horizon <= self._rules.now_ms:
                    parts.append(empty_batch(data, at) if ends_file and end == len(data) else b"")
                    dropped += headers.record_count[index]
                    continue
                horizons.append(horizon)
            parts.append(batch)
        return Piece(b"".join(parts), dropped, min(horizons, default=None))

    def _is_unneeded(self, attributes: int, producer_id: int, record_count: int) -> bool:
        """Whether it is a marker, and nothing of its transaction is left."""
        if not record_count or not attributes & TRANSACTIONAL_BIT:
            return False
        if not attributes & CONTROL_BIT:
            self._with_data.add(producer_id)
            return False
        if producer_id not in self._with_data:
            return True
        self._with_data.discard(producer_id)
        return False

    def _with_horizon(self, batch: bytes) -> tuple[bytes, int]:
        horizon = self._rules.now_ms + self._rules.delete_retention_ms
        spans = read_spans(batch, [0], fast=False)
        places = list(zip(spans.start, spans.end, strict=True))
        return set_delete_horizon(batch, 0, places, spans.timestamp_ms, horizon), horizon


def _starts(data: bytes) -> list[int]:
    """Where the batches begin; we have written them, or checked them, a moment ago."""
    starts, at = [], 0
    while at + HEADER_BYTES <= len(data):
        starts.append(at)
        at += PREFIX_BYTES + int(_LENGTH.unpack_from(data, at + 8)[0])
    return starts
