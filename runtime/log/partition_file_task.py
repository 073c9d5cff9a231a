"""A call on the partition files whose result a thread outside of the log waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PartitionFileTask(Generic[T]):
    """A call that runs when the partition files hold all rounds before it. ``finished`` is set when it has run."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self.finished = threading.Event()
        self._results: list[T] = []  # one when the call has returned
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._results.append(self._work())
        except Exception as error:
            self._error = error
        self.finished.set()

    def result(self) -> T:
        """The result of the call, or its exception. Only when it is finished."""
        if self._error is not None:
            raise self._error
        return self._results[0]
