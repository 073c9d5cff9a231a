"""Writes the output of compaction: the kept records of several files are joined into larger segments, in log order.

This pass goes from the oldest to the newest record, so only here is it known whether data of a transaction is left
before its marker. A marker stays while there is such data, and afterwards as long as a tombstone does (KIP-534).
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
from ..manifest import CompactedSegment
from ..reading.spans import read_headers, read_spans
from .kernel import CleaningRules, SpilledFile
from .rewrite import DELETE_HORIZON_BIT, empty_batch, set_delete_horizon

MAX_OFFSET_SPAN = 2**31 - 1
"""From the first to the last offset of a file: Kafka's indexes use 32 bits."""

_LENGTH = Struct(">i")


class OutputPiece(NamedTuple):
    """A part of a segment: its bytes, the number of records dropped in this pass, its first delete horizon."""

    data: bytes
    dropped: int
    horizon_ms: int | None


def group_into_segments(
    sources: Sequence[SpilledFile], end: int, segment_bytes: int
) -> Iterator[tuple[list[SpilledFile], int]]:
    """Group adjacent sources into segments of at most ``segment_bytes``; yields each group and its end offset.

    A segment begins at the base offset of a source. So a reader of Kafka's file names sees a consistent log at any time
    while the old files are replaced one by one.
    """
    ends = [*(source.base for source in sources[1:]), end]
    group: list[SpilledFile] = []
    for index, source in enumerate(sources):
        size = sum(member.size for member in group) + source.size
        if group and (size > segment_bytes or ends[index] - group[0].base > MAX_OFFSET_SPAN):
            yield group, source.base
            group = []
        group.append(source)
    if group:
        yield group, end


class SegmentJoiner:
    """Writes the segments of one run, oldest first."""

    def __init__(self, disk: Disk, folder: Path, spill_fd: int, rules: CleaningRules, has_transactions: bool) -> None:
        self._disk = disk
        self._folder = folder
        self._spill_fd = spill_fd
        self._markers = MarkerFilter(rules) if has_transactions else None

    def write(self, name: str, sources: Sequence[SpilledFile], end: int) -> CompactedSegment:
        """Write one segment from ``sources``, up to the offset ``end``. Its content is synced, its name is not yet."""
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
        horizon_ms = min((horizon for horizon in horizons if horizon is not None), default=None)
        return CompactedSegment(name, sources[0].base, end, size, checksum, records, horizon_ms)

    def _pieces(self, sources: Sequence[SpilledFile]) -> Iterator[OutputPiece]:
        for source in sources:
            for position, size in source.pieces:
                data = read_at(self._disk, self._spill_fd, size, position)
                is_last = (position, size) == source.pieces[-1]
                yield self._markers.filter(data, is_last) if self._markers else OutputPiece(data, 0, None)


class MarkerFilter:
    """Drops expired transaction markers. ``filter`` must be called with all kept records, oldest first."""

    def __init__(self, rules: CleaningRules) -> None:
        self._rules = rules
        self._producers_with_data: set[int] = set()

    def filter(self, data: bytes, ends_file: bool) -> OutputPiece:
        """A piece without its expired markers."""
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
        return OutputPiece(b"".join(parts), dropped, min(horizons, default=None))

    def _is_unneeded(self, attributes: int, producer_id: int, record_count: int) -> bool:
        """Whether it is a marker whose transaction has no records left."""
        if not record_count or not attributes & TRANSACTIONAL_BIT:
            return False
        if not attributes & CONTROL_BIT:
            self._producers_with_data.add(producer_id)
            return False
        if producer_id not in self._producers_with_data:
            return True
        self._producers_with_data.discard(producer_id)
        return False

    def _with_horizon(self, batch: bytes) -> tuple[bytes, int]:
        horizon = self._rules.now_ms + self._rules.delete_retention_ms
        spans = read_spans(batch, [0], fast=False)
        record_spans = list(zip(spans.start, spans.end, strict=True))
        return set_delete_horizon(batch, 0, record_spans, spans.timestamp_ms, horizon), horizon


def _starts(data: bytes) -> list[int]:
    """The positions of the batches, which were checked or written by this run."""
    starts, at = [], 0
    while at + HEADER_BYTES <= len(data):
        starts.append(at)
        at += PREFIX_BYTES + int(_LENGTH.unpack_from(data, at + 8)[0])
    return starts
