"""MemberTasks: the background tasks of one member."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Loop = Callable[[], Coroutine[Any, Any, None]]


class MemberTasks:
    """The task that joins and syncs, and the one that sends heartbeats. ``on_error`` gets the error of either."""

    __slots__ = ("_heartbeats", "_joining", "_on_error")

    def __init__(self, on_error: Callable[[Exception], object]) -> None:
        self._on_error = on_error
        self._joining: asyncio.Task[None] | None = None
        self._heartbeats: asyncio.Task[None] | None = None

    def start(self, join: Loop, send_heartbeats: Loop) -> None:
        create_task = asyncio.get_running_loop().create_task
        self._joining = create_task(self._run(join))
        self._heartbeats = create_task(self._run(send_heartbeats))

    async def stop_joining(self) -> None:
        """Cancel the first task and wait for its end. Heartbeats continue."""
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.wait({self._joining})

    def cancel(self) -> None:
        """Cancel both tasks, if they have been started."""
        for task in (self._joining, self._heartbeats):
            if task is not None:
                task.cancel()

    async def _run(self, loop: Loop) -> None:
        try:
            await loop()
        except Exception as error:
            self._on_error(error)
