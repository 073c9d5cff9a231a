"""The flight recorder of a node: assignments are compared in a thread, records are used on the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar
from uuid import UUID

from ...actors.recorder.flight_recorder import FlightRecorder
from ..topics.catalogue import TopicCatalogue
from .background import BackgroundThread
from .data import NodeData
from .environment import Environment
from .record_writer import open_writer

T = TypeVar("T")


class LoopBackground:
    """``BackgroundWork`` in a thread of its own, whose outcome comes on the loop's thread, in the same order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.thread = BackgroundThread()
        self._loop = loop
        self._is_closed = False

    def run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        if self._is_closed:
            done(work())
        else:
            self.thread.run(work, partial(_call_on_loop, self._loop, done))

    def close(self) -> None:
        """Finish the work so far, whose outcome may not be reported. Later work is done at once."""
        self._is_closed = True
        self.thread.end()


def _call_on_loop(loop: asyncio.AbstractEventLoop, done: Callable[[T], None], result: T) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(done, result)


class Recording:
    """The flight recorder of a node, whose records are also written to files if the node has some."""

    def __init__(
        self, recorder: FlightRecorder, data: NodeData, environment: Environment, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._recorder = recorder
        self._writer = open_writer(data, environment, loop)
        self._background = LoopBackground(loop) if environment.allows_workers else None
        if self._background is not None:
            recorder.background = self._background
        if self._writer is not None:
            recorder.observers.append(self._writer.add)
        recorder.topic_name = partial(_topic_name, data.topics)

    async def close(self, timeout_s: float) -> None:
        """Write the last records, unless that takes too long."""
        if self._background is not None and self._background.thread.is_started:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await finish_records(self._recorder)
            self._background.close()
        if self._writer is not None:
            await self._writer.close(timeout_s)

    def halt(self) -> None:
        """Write nothing more."""
        if self._background is not None:
            self._background.close()
        if self._writer is not None:
            self._writer.halt()


def _topic_name(topics: TopicCatalogue, topic_id: str) -> str:
    topic = topics.by_id(UUID(hex=topic_id))
    return topic_id if topic is None else topic.name


async def finish_records(recorder: FlightRecorder) -> None:
    """Wait until the rebalances that have ended have their records."""
    finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish(_result: None) -> None:
        if not finished.done():
            finished.set_result(None)

    recorder.background.run(_nothing, finish)
    await finished


def _nothing() -> None:
    """It is done after all work before it."""
