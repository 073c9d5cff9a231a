"""From the log to the groups, while the server listens.

A small log is read before anybody is answered. A large one is read by processes beside the server (``child``),
partition by partition, and what they find arrives in pieces: groups go to the coordinator, which serves a partition
when all of it is there; what concerns all partitions (transactions, the sweep, where topics end) waits for the last.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ...actors.group.offsets import GroupData
from ...actors.records import (
    MarkerRecord,
    PendingOffsetRecord,
    Record,
    TransactionRecord,
    TransactionValue,
    UnknownRecord,
)
from ..common.errors import StartError
from ..common.logs import get_logger
from ..disk.disk import Disk, file_size
from ..log.manifest import log_files
from ..log.partition import TRANSACTIONS_TOPIC, folder_name
from .pieces import LENGTH, Job, Piece, Report, unpack

if TYPE_CHECKING:
    from ..log.offsets_log import OffsetsLog

AT_ONCE_BYTES = 4 * 1024 * 1024
"""A log up to this size is read before the server listens: that takes less time than to start a process."""

FAST_BYTES = 32 * 1024 * 1024
"""From this size on, of all that there is, it pays to import numpy, which takes as long as to load 100,000 records."""

COMMAND = "from {package}.child import main; main()"

Take = Callable[[Job, Piece], None]

log = get_logger("callboard.runtime")


class Loading:
    """One partition's groups, while its records are read in the order of the log: what all other ways must equal."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupData] = {}
        self.skipped = 0
        self._open: dict[int, set[str]] = {}  # for each producer the groups in which its transaction is open

    def replay(self, record: Record) -> None:
        if isinstance(record, MarkerRecord):
            for group_id in self._open.pop(record.producer_id, ()):
                self.groups[group_id].replay(record)
        elif isinstance(record, UnknownRecord | TransactionRecord):
            self.skipped += 1
        else:
            self.groups.setdefault(record.group_id, GroupData()).replay(record)
            if isinstance(record, PendingOffsetRecord):
                self._open.setdefault(record.producer_id, set()).add(record.group_id)


def make_job(partition: int, folder: Path, is_transactions: bool, disk: Disk, topic_partitions: int = 0) -> Job:
    """A partition to load, with its size. What is wrong with its folder the job will say."""
    size = 0
    with suppress(OSError, StartError):
        size = sum(file_size(disk, file.path) for file in log_files(disk, folder).files)
    return Job(partition, str(folder), is_transactions, size, topic_partitions=topic_partitions)


def make_jobs(root: Path, offsets_log: OffsetsLog, disk: Disk) -> list[Job]:
    """The partitions of an open log that hold something, those of transactions first."""
    first, counts = offsets_log.first_transactions_partition, offsets_log.counts
    transactions = [
        make_job(number, root / folder_name(number - first, TRANSACTIONS_TOPIC), True, disk, counts.transactions)
        for number in offsets_log.transactions_partitions_with_data()
    ]
    groups = [
        make_job(number, root / folder_name(number), False, disk, counts.offsets)
        for number in offsets_log.offsets_partitions_with_data()
    ]
    return [*transactions, *groups]


def load_at_once(jobs: Iterable[Job], take: Take, disk: Disk | None = None) -> None:
    """Do all jobs here and now; ``take`` gets every piece."""
    for job in jobs:
        for piece in _run(job, disk):
            take(job, piece)


def _run(job: Job, disk: Disk | None = None) -> Iterator[Piece]:
    from .child import run  # which nobody needs whose log is empty

    return run(job, disk)


async def load_beside(jobs: Iterable[Job], take: Take) -> None:
    """Do all jobs in processes of their own, as many as there are processors; ``take`` gets every piece, on this loop.

    The largest come first, so that the last to end is not alone for long. When this is cancelled the processes end.
    """
    ordered = sorted(jobs, key=lambda job: (not job.is_transactions, -job.log_bytes))
    fast = sum(job.log_bytes for job in ordered) >= FAST_BYTES
    waiting = deque(job._replace(fast=fast) for job in ordered)
    async with asyncio.TaskGroup() as group:
        for _ in range(min(_processors(), len(waiting))):
            group.create_task(_Worker(take).work(waiting))


class _UntilStopped(Disk):
    """The disk of a thread that loads. Nobody can end a thread: it does so by itself, with the chunk in hand."""

    def __init__(self) -> None:
        self.is_stopped = False

    def read(self, fd: int, size: int, position: int) -> bytes:
        if self.is_stopped:
            raise InterruptedError("the server stops")
        return super().read(fd, size, position)


async def _do_here(job: Job) -> list[Piece]:
    disk = _UntilStopped()
    try:
        return await asyncio.to_thread(lambda: list(_run(job, disk)))
    finally:
        disk.is_stopped = True


def _processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Worker:
    """One process, and who does its jobs if it cannot."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._child: Process | None = None

    async def work(self, waiting: deque[Job]) -> None:
        try:
            await self._start()
            while waiting:
                job = waiting.popleft()
                pieces = None if self._child is None else await self._ask(self._child, job)
                if pieces is None:
                    pieces = await _do_here(job)
                await self._hand_on(job, pieces)
        finally:
            await self._stop()

    async def _hand_on(self, job: Job, pieces: list[Piece]) -> None:
        for piece in pieces:
            self._take(job, piece)
            await asyncio.sleep(0)  # others must have their turns

    async def _start(self) -> None:
        command = COMMAND.format(package=__package__)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        try:
            self._child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", command, stdin=PIPE, stdout=PIPE, env=environment
            )
        except OSError as error:
            log.warning("no process to load beside the server", reason=str(error), consequence="it loads by itself")

    async def _ask(self, child: Process, job: Job) -> list[Piece] | None:
        """What the child finds; None if it ends before it is done.

        Nothing is handed on before that: the job will be done again, and a group that has members must not come twice.
        """
        assert child.stdin is not None and child.stdout is not None
        pieces: list[Piece] = []
        try:
            child.stdin.write(json.dumps(job).encode() + b"\n")
            while not (pieces and isinstance(pieces[-1], Report)):
                (size,) = LENGTH.unpack(await child.stdout.readexactly(LENGTH.size))
                pieces.append(unpack(await child.stdout.readexactly(size)))
                await asyncio.sleep(0)  # what was read ahead must not keep others from their turns
        except Exception as error:  # uvloop has its own for a pipe that nobody reads
            log.error("the process that loads has ended", folder=job.folder, reason=repr(error))
            await self._stop()
            return None
        return pieces

    async def _stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()


def open_transactions(groups: Mapping[str, GroupData]) -> dict[int, set[str]]:
    """For each producer the groups that wait for the end of its transaction."""
    found: dict[int, set[str]] = {}
    for group_id, data in groups.items():
        for producer_id in data.pending.producers():
            found.setdefault(producer_id, set()).add(group_id)
    return found


def newest_producer_id(transactions: Mapping[str, TransactionValue]) -> int:
    """The highest that was given to a transactional id, or is about to be; -1 when there is none."""
    return max((max(value.producer_id, value.next_producer_id) for value in transactions.values()), default=-1)
