"""A journal file as a start reads it, and its batches by partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ...disk.disk import Disk, read_file
from ..format.batch import LOG_OFFSET_MAX, offsets_of
from ..format.errors import UNKNOWN_OFFSET, Damage
from ..journal import JournalScan, journal_salt, read_rounds, scan_journal

BEGINNING_BYTES = 64  # of a file: the head of its first frame, and the magic


class JournalContent(NamedTuple):
    data: bytes
    scan: JournalScan


class JournalFile:
    """A journal file. ``scan`` has only the first round, to save memory; that of ``content`` has all."""

    def __init__(self, disk: Disk, path: Path, is_newest: bool) -> None:
        self.path = path
        self._disk = disk
        self._is_newest = is_newest
        self.too_large: dict[int, Damage] = {}  # by position: batches with offsets beyond LOG_OFFSET_MAX
        self.cached: JournalContent | None = None
        self.cached = self.content()
        self.size = len(self.cached.data)
        self.beginning = self.cached.data[:BEGINNING_BYTES]
        self.scan = self.cached.scan._replace(rounds=self.cached.scan.rounds[:1])

    def content(self) -> JournalContent:
        if self.cached is not None:
            return self.cached
        data = read_file(self._disk, self.path)
        return JournalContent(
            data, _drop_impossible_starts(scan_journal(data, journal_salt(self.path.name), self._is_newest))
        )

    @property
    def is_damaged(self) -> bool:
        return bool(self.scan.damaged or self.too_large)


class JournalBatch(NamedTuple):
    """A batch in a journal file; ``position``: that of its round."""

    first: int
    last: int
    data: memoryview
    file: Path
    position: int


def _drop_impossible_starts(scan: JournalScan) -> JournalScan:
    """The scan without impossible start offsets."""
    if scan.start_offsets is None:
        return scan
    start_offsets = {number: end for number, end in scan.start_offsets.items() if 0 <= end <= LOG_OFFSET_MAX + 1}
    return scan._replace(start_offsets=start_offsets)


def journal_batches(file: JournalFile) -> Iterator[tuple[int, JournalBatch]]:
    """The batches of a journal file with their partitions. Impossible offsets are noted in ``too_large`` instead."""
    data, scan = file.content()
    for (start, _), batches in zip(scan.rounds, read_rounds(data, scan), strict=True):
        for number, batch in batches:
            first, last = offsets_of(batch)
            if 0 <= first <= last <= LOG_OFFSET_MAX:
                yield number, JournalBatch(first, last, batch, file.path, start)
            else:
                reason = f"a batch of partition {number} with offsets {first} to {last}, expected 0 to {LOG_OFFSET_MAX}"
                file.too_large[start] = Damage(file.path, start, len(batch), reason, UNKNOWN_OFFSET, None)


def group_by_partition(files: Iterable[JournalFile]) -> dict[int, list[JournalBatch]]:
    by_partition: dict[int, list[JournalBatch]] = {}
    for file in files:
        for number, batch in journal_batches(file):
            by_partition.setdefault(number, []).append(batch)
    return by_partition


def spans_of(file: JournalFile) -> dict[int, tuple[int, int]]:
    """The first and end offset of a journal file's batches, by partition."""
    spans: dict[int, tuple[int, int]] = {}
    for number, batch in journal_batches(file):
        first, end = spans.get(number, (batch.first, 0))
        spans[number] = min(first, batch.first), max(end, batch.last + 1)
    return spans


class OutOfOrderBatches:
    """Batches that precede batches of earlier journal files, in order. They are few, so they stay in memory."""

    def __init__(self) -> None:
        self.by_partition: dict[int, list[JournalBatch]] = {}

    def add(self, file: JournalFile) -> None:
        for number, batches in group_by_partition([file]).items():
            merged = self.by_partition.setdefault(number, [])
            merged += batches
            merged.sort(key=lambda batch: batch.first)

    def pop_through(self, number: int, last: int) -> list[JournalBatch]:
        """Remove and return the batches up to an offset."""
        batches = self.by_partition.get(number, [])
        count = sum(batch.first <= last for batch in batches)
        removed, batches[:count] = batches[:count], []
        return removed
