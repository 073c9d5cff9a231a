"""Creates logged values on the event loop: it writes them to the page cache, and the kernel syncs them.

A thread needs the GIL again after each system call, while the event loop holds it. So a round of commits costs less
without one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from ...common.logs import get_logger
from ...disk.kernel_sync import KernelSync, error_of_sync
from .value_log import BegunCreate

log = get_logger("callboard.cluster")


class _InProgress(NamedTuple):
    begun: BegunCreate
    answer: asyncio.Future[bool]


class KernelCreates:
    """One create at a time. All methods are called on the event loop of the first ``create``."""

    def __init__(self, begin: Callable[[str, bytes], BegunCreate | None]) -> None:
        """``begin``: writes the value of a key, see ``ValueLog.begin_create``."""
        self._begin = begin
        self._kernel_sync: KernelSync | None = None
        self._is_available = True
        self._in_progress: _InProgress | None = None

    def create(self, key: str, value: bytes) -> asyncio.Future[bool] | None:
        """Create a value. The answer is True, or an OSError.

        None, and nothing is done, if that might block, while another create is in progress, where the system cannot
        sync in the background, and after ``close``.
        """
        kernel_sync = self._kernel_sync or self._take()
        if kernel_sync is None or self._in_progress is not None:
            return None
        begun = self._begin(key, value)
        if begun is None:
            return None
        try:
            kernel_sync.start(begun.fd)
        except OSError as error:
            begun.end(error)
            self._give_up(error)
            return None
        self._in_progress = _InProgress(begun, asyncio.get_running_loop().create_future())
        return self._in_progress.answer

    def close(self) -> None:
        """Wait for the create in progress."""
        while self._in_progress is not None and self._kernel_sync is not None:
            self._kernel_sync.wait()
            self._end()
        self._release()

    def _take(self) -> KernelSync | None:
        if self._is_available:
            try:
                self._kernel_sync = KernelSync.take()
                asyncio.get_running_loop().add_reader(self._kernel_sync.fileno(), self._end)
            except (OSError, NotImplementedError) as error:
                self._give_up(error)
        return self._kernel_sync

    def _end(self) -> None:
        """Called by the loop when the kernel has signalled the end of a sync."""
        in_progress, kernel_sync = self._in_progress, self._kernel_sync
        number = None if in_progress is None or kernel_sync is None else kernel_sync.take_error_number()
        if in_progress is None or number is None:
            return
        self._in_progress = None
        (fd, end), answer = in_progress
        error = error_of_sync(number, fd)
        end(error)
        if answer.done():  # its task was cancelled
            return
        if error is None:
            answer.set_result(True)
        else:
            answer.set_exception(error)

    def _give_up(self, error: Exception) -> None:
        log.debug("a thread syncs the rounds, not the kernel in the background", reason=str(error))
        self._release()

    def _release(self) -> None:
        self._is_available = False
        if self._kernel_sync is not None:
            asyncio.get_running_loop().remove_reader(self._kernel_sync.fileno())
            self._kernel_sync.release()
            self._kernel_sync = None
