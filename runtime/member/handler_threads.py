"""Runs the handlers of a blocking member, each in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from .shards import Shard


class HandlerThreads:
    """The threads that run handlers now. They are daemons: one that ignores its shard's end does not keep the process.

    Used on the event loop, apart from ``in``.
    """

    __slots__ = ("_threads",)

    def __init__(self) -> None:
        self._threads: set[threading.Thread] = set()

    def __contains__(self, thread: threading.Thread) -> bool:
        return thread in self._threads

    async def run(self, handler: Callable[[], object], shard: Shard) -> None:
        """Call a handler of this shard in a new thread. Raises its error.

        A thread cannot be cancelled. So a cancellation that comes with a change of the shard's state only waits for the
        end of the thread: the shard must not have another owner before. Any other one, as at the end of the loop, ends
        the wait.
        """
        ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        thread = threading.Thread(
            target=_call, args=(handler, ended), name=f"callboard {shard.resource} {shard.name}", daemon=True
        )
        self._threads.add(thread)
        try:
            thread.start()
            is_cancelled = await _wait_for_end(ended, shard)
        finally:
            self._threads.discard(thread)
        error = ended.result()
        if error is not None:
            raise error
        if is_cancelled:
            raise asyncio.CancelledError


async def _wait_for_end(ended: asyncio.Future[BaseException | None], shard: Shard) -> bool:
    """Whether the wait was cancelled meanwhile, because the shard was revoked or lost."""
    state = first_state = shard.state
    while not ended.done():
        try:
            await asyncio.wait({ended})
        except asyncio.CancelledError:
            if shard.state is state:
                raise
            state = shard.state
    return state is not first_state


def _call(handler: Callable[[], object], ended: asyncio.Future[BaseException | None]) -> None:
    """In the thread. As in any thread, SystemExit ends it without an error."""
    error: BaseException | None = None
    try:
        handler()
    except SystemExit:
        pass
    except BaseException as raised:
        error = raised
    with suppress(RuntimeError):  # the loop was closed, and nobody waits
        ended.get_loop().call_soon_threadsafe(_set_result, ended, error)


def _set_result(ended: asyncio.Future[BaseException | None], error: BaseException | None) -> None:
    if not ended.done():
        ended.set_result(error)
