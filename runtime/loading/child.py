"""The process that loads partitions beside the server.

One interpreter has one lock, so a server that loads by itself would answer nobody meanwhile. It starts some of these,
as many as there are processors, and sends each one job after the other.

A job is a line of JSON on standard input; what was found goes back on standard output, in pieces: four bytes of length
and a pickle. Pieces are small, because the server takes each of them between two requests. The last of a job is a
``LoadReport``; it ends when its input does.
"""

from __future__ import annotations

import gc
import json
import pickle
import signal
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TypeVar

from ..common.errors import StartError
from ..disk.disk import Disk
from ..log.format.errors import UnsupportedCompression
from ..log.partition import PARTITION_FOLDER
from ..log.reading.newest import load_partition
from ..log.reading.newest_transactions import load_transactions_partition
from ..log.recovery.misplaced import find_misplaced
from .pieces import (
    LENGTH,
    CommittedEnds,
    LoadJob,
    LoadPiece,
    LoadReport,
    PackedGroups,
    TransactionalIds,
    UnpackedGroups,
)

PIECE = 2000  # groups; to unpickle so many takes a millisecond

Key = TypeVar("Key")
Value = TypeVar("Value")


def run(job: LoadJob, disk: Disk | None = None) -> Iterator[LoadPiece]:
    """Do a job, here. What cannot be read is in the report."""
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
    told = tuple(loaded.damages), tuple(loaded.problems)
    yield LoadReport(loaded.records, loaded.unknown_keys, loaded.quarantined, *told)


def _transactions(job: LoadJob, disk: Disk | None) -> Iterator[LoadPiece]:
    loaded = load_transactions_partition(Path(job.folder), disk)
    misplaced = _misplaced(job, loaded.values)
    if misplaced:
        yield LoadReport(misplaced=misplaced)
        return
    yield from map(TransactionalIds, _pieces(loaded.values))
    yield LoadReport(loaded.records, loaded.unknown_keys, {}, tuple(loaded.damages), tuple(loaded.problems))


def _misplaced(job: LoadJob, names: Collection[str]) -> str:
    """Which name belongs to another partition, in words; empty if none does."""
    path = Path(job.folder)
    match = PARTITION_FOLDER.fullmatch(path.name)
    if not job.topic_partitions or match is None:
        return ""
    misplaced = find_misplaced(names, path, match[1], int(match[2]), job.topic_partitions, fast=job.fast)
    return "" if misplaced is None else str(misplaced)


def _pieces(whole: dict[Key, Value]) -> Iterator[dict[Key, Value]]:
    items = iter(whole.items())
    while piece := dict(islice(items, PIECE)):
        yield piece


def serve(jobs: Iterable[bytes], out: BinaryIO) -> None:
    for line in jobs:
        for piece in run(LoadJob(*json.loads(line))):
            data = pickle.dumps(piece, pickle.HIGHEST_PROTOCOL)
            out.write(LENGTH.pack(len(data)))
            out.write(data)
        out.flush()


def main() -> None:
    """What the process does. Its server ends it, so a signal for all of a terminal, or of a service, is not for it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    gc.disable()  # nothing here is circular, and looking for it takes a third of the time
    with suppress(BrokenPipeError):  # the server has gone
        serve(sys.stdin.buffer, sys.stdout.buffer)
