"""Work with the partition files that somebody outside of the log's threads waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Task(Generic[T]):
    """Something to be done with the partition files when they hold all rounds before it; somebody waits for it."""

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
