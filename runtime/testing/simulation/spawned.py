"""The processes that ``Sim.spawn`` started, and how to start them again after ``Chaos`` has killed them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from .loop import Process

T = TypeVar("T")
Program = Coroutine[Any, Any, T] | Callable[[], Coroutine[Any, Any, T]]
"""A coroutine, which runs once, or a function that returns one."""


class Spawned(NamedTuple):
    program: Program[Any]
    process: Process
    task: asyncio.Task[Any]

    @property
    def is_running(self) -> bool:
        return not self.process.is_dead and not self.task.done()


class SpawnedProcesses:
    """The latest process of each name."""

    def __init__(self) -> None:
        self._spawned: dict[str, Spawned] = {}
        self._killed: dict[str, None] = {}  # in this order, which does not depend on hashes

    def add(self, name: str, spawned: Spawned) -> None:
        self._spawned[name] = spawned
        self._killed.pop(name, None)

    def running(self) -> list[str]:
        """The names of those that have not ended."""
        return [name for name, spawned in self._spawned.items() if spawned.is_running]

    def restartable(self) -> list[str]:
        """The names of those that have not ended, and whose program is a function."""
        return [name for name in self.running() if callable(self._spawned[name].program)]

    def add_killed(self, name: str) -> None:
        """It was killed, and will be restarted."""
        self._killed[name] = None

    def killed(self) -> list[str]:
        """The names of those that were killed and not restarted yet."""
        return list(self._killed)

    def take_killed(self, name: str) -> Program[Any] | None:
        """The program to restart; None if that was done."""
        if name not in self._killed:
            return None
        del self._killed[name]
        return self._spawned[name].program
