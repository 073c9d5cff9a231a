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
        self.error: Exception | None = None
        self.result: T

    def run(self) -> None:
        try:
            self.result = self._work()
        except Exception as error:
            self.error = error
        self.finished.set()
