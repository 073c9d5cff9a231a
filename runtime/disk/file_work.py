"""Blocking file operations: in a separate thread, so that the event loop never waits for a disk, or on the caller.

Jobs run one at a time, in the order in which they were submitted. Their outcome is reported on the loop's thread.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Protocol

from ...actors.steps import SLICE_NS, Steps, run_slice, run_steps
from ..common.logs import get_logger
from ..common.thread_pool import ThreadPool

log = get_logger("callboard.runtime")

FileJob = Callable[[], None]
Done = Callable[[OSError | None], None]
"""Called with None when the job has succeeded, else with its error."""


class FileWork(Protocol):
    """Runs blocking jobs on files, and long work on the loop's thread before and after them."""

    def run_in_slices(self, steps: Steps[None]) -> None:
        """Do work on the loop's thread, in slices if there is a loop. It must not raise."""

    def submit(self, work: FileJob, done: Done) -> None:
        """Run ``work`` after all jobs that were submitted before, then call ``done`` on the loop's thread."""

    async def wait_until_idle(self) -> None:
        """Wait until all submitted jobs are done, including those that their ``done`` callbacks submit."""

    def close(self) -> None:
        """Accept no more jobs. Submitted jobs still run, but their outcome is not reported."""

    def halt(self) -> None:
        """Wait for the running job and drop the others. No outcome is reported."""


class InlineFileWork:
    """Runs jobs inside of ``submit``, on the same thread: during the start of a server, and for disks in memory."""

    def run_in_slices(self, steps: Steps[None]) -> None:
        run_steps(steps)

    def submit(self, work: FileJob, done: Done) -> None:
        try:
            work()
        except OSError as error:
            done(error)
        else:
            done(None)

    async def wait_until_idle(self) -> None:
        """Returns at once: no job is ever pending."""

    def close(self) -> None:
        pass

    def halt(self) -> None:
        pass


class FileThread:
    """Runs jobs in one separate thread, which starts with the first job. For use on the loop's thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._executor = ThreadPool(1, "callboard-files")
        self._unfinished = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_closed = False

    def submit(self, work: FileJob, done: Done) -> None:
        if self._is_closed:
            done(OSError(errno.ESHUTDOWN, "the server is stopping"))
            return
        self._unfinished += 1
        self._idle.clear()
        self._executor.submit(_failure_of, work).add_done_callback(partial(self._finished, done))

    def run_in_slices(self, steps: Steps[None]) -> None:
        if self._is_closed:
            run_steps(steps)
            return
        self._unfinished += 1
        self._idle.clear()
        self._run_slice(steps)

    def _run_slice(self, steps: Steps[None]) -> None:
        if self._is_closed:
            return
        try:
            run_slice(steps, time.perf_counter_ns, time.perf_counter_ns() + SLICE_NS)
        except StopIteration:
            self._end_one()
        except BaseException:  # a bug; without this a stop would wait for ever
            self._end_one()
            raise
        else:
            self._loop.call_soon(self._run_slice, steps)

    async def wait_until_idle(self) -> None:
        await self._idle.wait()

    def close(self) -> None:
        self._is_closed = True
        self._executor.shutdown(wait=False)

    def halt(self) -> None:
        self._is_closed = True
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _finished(self, done: Done, future: Future[OSError | None]) -> None:
        """Called on the worker thread."""
        if not future.cancelled():
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._report, done, future.result())

    def _report(self, done: Done, failure: OSError | None) -> None:
        if self._is_closed:
            return
        try:
            done(failure)
        finally:
            self._end_one()

    def _end_one(self) -> None:
        self._unfinished -= 1
        if not self._unfinished:
            self._idle.set()


def _failure_of(work: FileJob) -> OSError | None:
    try:
        work()
    except OSError as error:
        return error
    except Exception as error:  # a bug, but the submitter still needs an outcome
        log.exception("a file operation has raised an unexpected error")
        return OSError(errno.EIO, repr(error))
    return None
