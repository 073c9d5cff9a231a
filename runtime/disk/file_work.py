"""Blocking work on files: in a thread of its own, so that the event loop never waits for a disk; or on the caller.

Work is done in the order in which it was submitted, one piece at a time. Its outcome is handed over on the loop.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Protocol

from ..common.logs import get_logger

log = get_logger("callboard.runtime")

Work = Callable[[], None]
Done = Callable[[OSError | None], None]
"""Called with None when the work has succeeded, else with its error."""


class FileWork(Protocol):
    """Where blocking work on files is done."""

    def submit(self, work: Work, done: Done) -> None:
        """Do ``work`` behind everything that was submitted before, then call ``done`` on the thread of the loop."""

    async def wait_until_idle(self) -> None:
        """Until everything that was submitted is done, and what that led to."""

    def close(self) -> None:
        """Take nothing new. What is under way goes on, and nobody hears of its outcome."""

    def halt(self) -> None:
        """Wait for what is under way; drop what has not begun. Nobody hears of any outcome."""


class OnCaller:
    """On the thread that submits, before ``submit`` returns: while a server starts, and for disks in memory."""

    def submit(self, work: Work, done: Done) -> None:
        try:
            work()
        except OSError as error:
            done(error)
        else:
            done(None)

    async def wait_until_idle(self) -> None:
        """It always is."""

    def close(self) -> None:
        pass

    def halt(self) -> None:
        pass


class FileThread:
    """In one thread beside the loop, which is started when it is first needed. Belongs to the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._executor = ThreadPoolExecutor(1, "callboard-files")
        self._unfinished = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_closed = False

    def submit(self, work: Work, done: Done) -> None:
        if self._is_closed:
            done(OSError(errno.ESHUTDOWN, "the server is stopping"))
            return
        self._unfinished += 1
        self._idle.clear()
        self._executor.submit(_failure_of, work).add_done_callback(partial(self._finished, done))

    async def wait_until_idle(self) -> None:
        await self._idle.wait()

    def close(self) -> None:
        self._is_closed = True
        self._executor.shutdown(wait=False)

    def halt(self) -> None:
        self._is_closed = True
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _finished(self, done: Done, future: Future[OSError | None]) -> None:
        """In the thread of the work."""
        if not future.cancelled():
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._hand_over, done, future.result())

    def _hand_over(self, done: Done, failure: OSError | None) -> None:
        if self._is_closed:
            return
        try:
            done(failure)
        finally:
            self._unfinished -= 1
            if not self._unfinished:
                self._idle.set()


def _failure_of(work: Work) -> OSError | None:
    try:
        work()
    except OSError as error:
        return error
    except Exception as error:  # a bug; whoever waits for the outcome must be answered all the same
        log.exception("work on a file has failed")
        return OSError(errno.EIO, repr(error))
    return None
