"""Backend: asks the coordinator on its own event loop, for two seconds at most. The app may have another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from ..embed.any_group import requests_of
from ..embed.port import Port
from ..kafka.node_subjects import LastRebalance
from ..node.group_figures import TopicRanges

PATIENCE_S: Final = 2.0
"""A coordinator that does not answer for so long counts as unavailable."""

T = TypeVar("T")


class Unavailable(Exception):
    """The coordinator does not run, or does not answer. The text says which."""


class Backend:
    """``admin`` and ``node``: only for functions that ``ask`` runs. ``node`` raises RuntimeError if there is none."""

    def __init__(self, port: Port) -> None:
        self.admin = port.admin
        self.node = port.node
        self._loop = port.loop

    async def ranges(self, topics: Iterable[str]) -> TopicRanges:
        """The offsets of topics, of those that are known. On the coordinator's loop."""
        return await requests_of(self.node()).ranges(topics)

    async def last_rebalances(self, groups: Sequence[str]) -> Mapping[str, LastRebalance]:
        """Of groups of any node, of those that are known. It may be called on any event loop."""
        try:
            return await self.ask(lambda: requests_of(self.node()).last_rebalances(groups))
        except Unavailable:
            return {}

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """The answer of a coroutine that runs on the coordinator's loop. Raises Unavailable, and what it raises."""
        return await self._run(question, is_change=False)

    async def change(self, change: Callable[[], Awaitable[T]]) -> T:
        """The same for a change, which goes on if it is not made in time."""
        return await self._run(change, is_change=True)

    async def _run(self, question: Callable[[], Awaitable[T]], *, is_change: bool) -> T:
        running = _call(question)
        try:
            loop = self._loop()
            future = (
                asyncio.ensure_future(running)
                if loop is asyncio.get_running_loop()
                else asyncio.wrap_future(asyncio.run_coroutine_threadsafe(running, loop))
            )
        except RuntimeError as error:  # it has not started, or its loop is closed
            running.close()
            raise Unavailable(f"the coordinator does not run: {error}") from error
        try:
            return await asyncio.wait_for(asyncio.shield(future) if is_change else future, PATIENCE_S)
        except RuntimeError as error:  # of a coordinator that has stopped
            raise Unavailable(str(error)) from error
        except TimeoutError:
            what = "; the change may still be made" if is_change else ""
            raise Unavailable(f"the coordinator has not answered for {PATIENCE_S:.0f} s{what}") from None


async def _call(question: Callable[[], Awaitable[T]]) -> T:
    return await question()
