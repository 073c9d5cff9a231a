"""Batched: one operation of the store for all who ask for the same kind of thing at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Batched(Generic[K, V]):
    """``work`` gets the keys of all who wait, and returns the value of each. It always begins after they have asked.

    What it raises is raised for all of them.
    """

    def __init__(self, work: Callable[[Collection[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._work = work
        self._waiting: list[tuple[K, asyncio.Future[V]]] = []
        self._task: asyncio.Task[None] | None = None

    async def get(self, key: K) -> V:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[V] = loop.create_future()
        self._waiting.append((key, answer))
        if self._task is None:
            self._task = loop.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                await self._answer(waiting)
        finally:
            self._task = None

    async def _answer(self, waiting: list[tuple[K, asyncio.Future[V]]]) -> None:
        try:
            values = await self._work({key for key, _ in waiting})
        except Exception as error:
            for _, answer in waiting:
                if not answer.done():
                    answer.set_exception(error)
            return
        for key, answer in waiting:
            if not answer.done():
                answer.set_result(values[key])
