"""Loads the groups from the log, while the server listens.

A small log is loaded before the server listens. A large log is loaded by subprocesses (``child``), partition by
partition, and their results arrive in pieces. Groups go to the coordinator, which serves a partition when it is loaded
completely. Transactions and the retention scan need all partitions, so they wait for the last one.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ...actors.group.offsets import GroupData
from ...actors.records import (
    MarkerRecord,
    PendingOffsetRecord,
    Record,
    TransactionRecord,
    TransactionValue,
    UnknownRecord,
)
from ..common.child_process import ChildEnded, ChildProcess
from ..common.errors import StartError
from ..common.logs import get_logger
from ..disk.disk import Disk, file_size
from ..log.manifest import log_files
from ..log.partition import TRANSACTIONS_TOPIC, folder_name
from ..log.pieces import LoadJob, LoadPiece, PieceHandler
from ..log.reading.group_records import is_unserved

if TYPE_CHECKING:
    from ..log.offsets_log import OffsetsLog

AT_ONCE_BYTES = 4 * 1024 * 1024
"""A log up to this size is loaded before the server listens: that takes less time than to start a process."""

FAST_BYTES = 128 * 1024 * 1024
"""From so many bytes of log per process on, numpy saves a third of the CPU, although each process imports it."""

CHILD_FUNCTION = f"{__package__}.child:run_in_child"

log = get_logger("callboard.runtime")


class PartitionReplay:
    """The groups of one partition, replayed record by record. The reference for the faster ways of loading."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupData] = {}
        self.skipped = 0
        self._open_transactions: dict[int, set[str]] = {}  # by producer id, the groups of its transaction

    def replay(self, record: Record) -> None:
        if isinstance(record, MarkerRecord):
            for group_id in self._open_transactions.pop(record.producer_id, ()):
                self.groups[group_id].replay(record)
        elif isinstance(record, UnknownRecord | TransactionRecord) or is_unserved(record):
            self.skipped += 1
        else:
            self.groups.setdefault(record.group_id, GroupData()).replay(record)
            if isinstance(record, PendingOffsetRecord):
                self._open_transactions.setdefault(record.producer_id, set()).add(record.group_id)


def make_job(partition: int, folder: Path, is_transactions: bool, disk: Disk, topic_partitions: int = 0) -> LoadJob:
    """A partition to load, with its size. Errors of its folder are ignored here, and reported by the job."""
    size = 0
    with suppress(OSError, StartError):
        size = sum(file_size(disk, file.path) for file in log_files(disk, folder).files)
    return LoadJob(partition, str(folder), is_transactions, size, topic_partitions=topic_partitions)


def make_jobs(root: Path, offsets_log: OffsetsLog, disk: Disk) -> list[LoadJob]:
    """The partitions of an open log that have data, those of transactions first."""
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


def load_inline(jobs: Iterable[LoadJob], take: PieceHandler, disk: Disk | None = None) -> None:
    """Run all jobs on this thread and pass every piece to ``take``."""
    for job in jobs:
        for piece in _run(job, disk):
            take(job, piece)


def _run(job: LoadJob, disk: Disk | None = None) -> Iterator[LoadPiece]:
    from .child import run  # not needed for an empty log

    return run(job, disk)


async def load_in_subprocesses(jobs: Iterable[LoadJob], take: PieceHandler) -> None:
    """Run all jobs in subprocesses, as many as there are processors, and pass every piece to ``take``, on this loop.

    The largest jobs come first, so that all subprocesses end at about the same time. Cancelling ends the subprocesses.
    """
    waiting = deque(sorted(jobs, key=lambda job: (not job.is_transactions, -job.log_bytes)))
    processes = min(processors(), len(waiting))
    if is_numpy_worthwhile(waiting, processes):
        waiting = deque(job._replace(fast=True) for job in waiting)
    async with asyncio.TaskGroup() as group:
        for _ in range(processes):
            group.create_task(_work(waiting, take))


async def _work(waiting: deque[LoadJob], take: PieceHandler) -> None:
    async with LoadWorker() as worker:
        while waiting:
            job = waiting.popleft()
            await pass_on(job, await worker.pieces(job), take)


async def pass_on(job: LoadJob, pieces: Iterable[LoadPiece], take: PieceHandler) -> None:
    """Pass pieces to ``take``, with a turn of the loop after each, so that it handles requests in between."""
    for piece in pieces:
        take(job, piece)
        await asyncio.sleep(0)


def is_numpy_worthwhile(jobs: Iterable[LoadJob], processes: int) -> bool:
    """Whether the log is large enough that each process should import numpy."""
    return sum(job.log_bytes for job in jobs) >= FAST_BYTES * processes


class _StoppableDisk(Disk):
    """The disk of a loading thread. A thread cannot be killed, so its next read raises after ``is_stopped`` is set."""

    def __init__(self) -> None:
        self.is_stopped = False

    def read(self, fd: int, size: int, position: int) -> bytes:
        if self.is_stopped:
            raise InterruptedError("the server stops")
        return super().read(fd, size, position)


async def _run_in_thread(job: LoadJob) -> list[LoadPiece]:
    disk = _StoppableDisk()
    try:
        return await asyncio.to_thread(lambda: list(_run(job, disk)))
    finally:
        disk.is_stopped = True


def processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


class LoadWorker:
    """One child process, in ``async with``. Runs its jobs in a thread if the child cannot start or ends early."""

    def __init__(self) -> None:
        self._child: ChildProcess | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def pieces(self, job: LoadJob) -> list[LoadPiece]:
        """All pieces of a job."""
        pieces = None if self._child is None else await self._run_in_child(self._child, job)
        return await _run_in_thread(job) if pieces is None else pieces

    async def _start(self) -> None:
        child = ChildProcess(CHILD_FUNCTION)
        try:
            await child.start()
            self._child = child
        except OSError as error:
            log.warning("a subprocess to load the log could not start", reason=str(error), consequence="a thread loads")

    async def _run_in_child(self, child: ChildProcess, job: LoadJob) -> list[LoadPiece] | None:
        """All pieces of a job; None if the child ends before the last one.

        No piece is passed on before that: the job would run again, and a group with members must not be loaded twice.
        """
        try:
            return [piece async for piece in child.results(job)]
        except ChildEnded as error:
            log.error("a subprocess that loads the log has ended", folder=job.folder, reason=str(error))
            await self._stop()
            return None

    async def _stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.stop()


def open_transactions(groups: Mapping[str, GroupData]) -> dict[int, set[str]]:
    """By producer id, the groups that wait for the end of its transaction."""
    groups_by_producer: dict[int, set[str]] = {}
    for group_id, data in groups.items():
        for producer_id in data.pending.producers():
            groups_by_producer.setdefault(producer_id, set()).add(group_id)
    return groups_by_producer


def newest_producer_id(transactions: Mapping[str, TransactionValue]) -> int:
    """The highest producer id that is assigned to a transactional id, or is about to be; -1 if there is none."""
    return max((max(value.producer_id, value.next_producer_id) for value in transactions.values()), default=-1)
