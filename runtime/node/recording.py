"""The flight recorder of a node: assignments are compared in a thread, records are used on the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar
from uuid import UUID

from ...actors.ports import BackgroundWork
from ...actors.recorder.flight_recorder import FlightRecorder
from ..topics.catalogue import TopicCatalogue
from .background import BackgroundThread

T = TypeVar("T")


class LoopBackground:
    """``BackgroundWork`` in a thread of its own, whose outcome comes on the loop's thread, in the same order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread: BackgroundWork = BackgroundThread()

    def run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        self._thread.run(work, partial(_call_on_loop, self._loop, done))


def _call_on_loop(loop: asyncio.AbstractEventLoop, done: Callable[[T], None], result: T) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(done, result)


def prepare_recorder(
    recorder: FlightRecorder, topics: TopicCatalogue, loop: asyncio.AbstractEventLoop, *, in_background: bool
) -> None:
    """``in_background``: whether threads may be used."""
    if in_background:
        recorder.background = LoopBackground(loop)
    recorder.topic_name = partial(_topic_name, topics)


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
