"""LoadPool: child processes that load partitions which become ready one after the other."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from ..log.pieces import LoadJob, PieceHandler
from .loader import LoadWorker, is_numpy_worthwhile, pass_on, processors

LINGER_S = 0.3
"""A process that has nothing to load ends after so long. The partitions of a takeover come within that."""
EXPECTED_S = 5.0
"""Processes wait for the first of the jobs that are expected for so long."""


class _Waiting(NamedTuple):
    job: LoadJob
    take: PieceHandler
    done: asyncio.Future[None]


class LoadPool:
    """As many processes as there are processors, and none while there is nothing to load."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        self._is_waiting = asyncio.Event()
        self._workers: set[asyncio.Task[None]] = set()
        self._expected_until_s = 0.0

    def expect(self, jobs: int) -> None:
        """Start the processes for so many jobs, which may come in the next seconds."""
        if jobs:
            self._expected_until_s = asyncio.get_running_loop().time() + EXPECTED_S
        for _ in range(min(jobs, processors()) - len(self._workers)):
            self.prepare()

    def prepare(self) -> None:
        """Start one more process: there is a job soon. Starting one takes as long as loading some megabytes."""
        if len(self._workers) < processors():
            worker = asyncio.get_running_loop().create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._ended)

    async def load(self, job: LoadJob, take: PieceHandler) -> None:
        """Pass the pieces of a job to ``take``, on this loop. Raises what ``take`` raises. Cancelling gives it up."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(job, take, done))
        self._is_waiting.set()
        self.prepare()
        await done

    def _ended(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if worker.cancelled():
            return
        error = worker.exception()
        if error is not None:  # else those that wait would wait for ever
            for waiting in self._waiting:
                _fail(waiting, error)
            self._waiting.clear()
        elif self._waiting:  # they came while it ended
            self.prepare()

    async def _work(self) -> None:
        async with LoadWorker() as worker:
            while (waiting := await self._next()) is not None:
                try:
                    pieces = await worker.pieces(waiting.job)
                    if not waiting.done.done():
                        await pass_on(waiting.job, pieces, waiting.take)
                except Exception as error:
                    _fail(waiting, error)
                else:
                    if not waiting.done.done():
                        waiting.done.set_result(None)

    async def _next(self) -> _Waiting | None:
        """None if nothing comes for a while."""
        while True:
            while self._waiting:
                waiting = self._waiting.popleft()
                if not waiting.done.done():
                    jobs = [waiting.job, *(other.job for other in self._waiting)]
                    fast = is_numpy_worthwhile(jobs, processors())
                    return waiting._replace(job=waiting.job._replace(fast=fast))
            self._is_waiting.clear()
            try:
                async with asyncio.timeout(LINGER_S):
                    await self._is_waiting.wait()
            except TimeoutError:
                if asyncio.get_running_loop().time() >= self._expected_until_s:
                    return None


def _fail(waiting: _Waiting, error: BaseException) -> None:
    if not waiting.done.done():
        waiting.done.set_exception(error)
