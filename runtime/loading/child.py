"""Loads one partition, in a child process or on the caller's thread.

Loading holds the interpreter's lock, so a server that loads a large log itself would answer no requests meanwhile. The
result comes in pieces, which are small because the server handles each of them between two requests.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

from ..common.errors import StartError
from ..disk.disk import Disk
from ..log.format.errors import UnsupportedCompression
from ..log.partition import PARTITION_FOLDER
from ..log.pieces import (
    CommittedEnds,
    LoadJob,
    LoadPiece,
    LoadReport,
    PackedGroups,
    TransactionalIds,
    UnpackedGroups,
)
from ..log.reading.newest import load_partition
from ..log.reading.newest_transactions import load_transactions_partition
from ..log.recovery.misplaced import find_misplaced

PIECE_GROUPS = 2000  # unpickling them takes a millisecond
SAMPLE_NAMES = 500
"""A wrong number of partitions misplaces nearly all names. To check one takes a quarter of the time of its loading."""

Key = TypeVar("Key")
Value = TypeVar("Value")


def run(job: LoadJob, disk: Disk | None = None) -> Iterator[LoadPiece]:
    """All pieces of a job, a report last. Errors of the disk and the log are in the report."""
    try:
        yield from _transactions(job, disk) if job.is_transactions else _groups(job, disk)
    except (OSError, StartError, UnsupportedCompression) as error:
        yield LoadReport(failure=str(error) or repr(error))


def _groups(job: LoadJob, disk: Disk | None) -> Iterator[LoadPiece]:
    loaded = load_partition(Path(job.folder), disk, fast=None if job.fast else False)
    misplaced = _misplaced(job, [*loaded.packed_groups, *loaded.unpacked_groups, *loaded.quarantined])
    if misplaced:
        yield LoadReport(misplaced=misplaced)
        return
    yield from map(CommittedEnds, _pieces(loaded.committed_ends))
    yield from map(PackedGroups, _pieces(loaded.packed_groups))
    yield from map(UnpackedGroups, _pieces(loaded.unpacked_groups))
    damages, problems = tuple(loaded.damages), tuple(loaded.problems)
    yield LoadReport(loaded.records, loaded.unknown_keys, loaded.quarantined, damages, problems)


def _transactions(job: LoadJob, disk: Disk | None) -> Iterator[LoadPiece]:
    loaded = load_transactions_partition(Path(job.folder), disk)
    misplaced = _misplaced(job, loaded.values)
    if misplaced:
        yield LoadReport(misplaced=misplaced)
        return
    yield from map(TransactionalIds, _pieces(loaded.values))
    yield LoadReport(loaded.records, loaded.unknown_keys, {}, tuple(loaded.damages), tuple(loaded.problems))


def _misplaced(job: LoadJob, names: Collection[str]) -> str:
    """A message about a name that belongs to another partition; empty if there is none."""
    path = Path(job.folder)
    match = PARTITION_FOLDER.fullmatch(path.name)
    if not job.topic_partitions or match is None:
        return ""
    if job.sampled:
        names = list(islice(names, SAMPLE_NAMES))
    misplaced = find_misplaced(names, path, match[1], int(match[2]), job.topic_partitions, fast=job.fast)
    return "" if misplaced is None else str(misplaced)


def _pieces(content: dict[Key, Value]) -> Iterator[dict[Key, Value]]:
    items = iter(content.items())
    while piece := dict(islice(items, PIECE_GROUPS)):
        yield piece


def run_in_child(job: LoadJob) -> Iterator[LoadPiece]:
    """``run`` in a child process (``common.child_process``)."""
    gc.disable()  # loading makes no reference cycles, and the collector would take a third of the time
    yield from run(job)
