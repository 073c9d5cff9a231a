"""Reply: a pykka future that makes a lock only if somebody really blocks on it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from queue import Full
from typing import TYPE_CHECKING, Any

import pykka

if TYPE_CHECKING:
    from .dispatcher import Dispatcher


class WouldDeadlock(RuntimeError):
    """A wait for an answer on the very thread that would have to produce it."""


class Reply(pykka.Future[Any]):
    """The future of an ``ask``. ``await`` it on the loop, ``get()`` it from another thread."""

    def __init__(self, dispatcher: Dispatcher | None = None) -> None:
        super().__init__()
        self._dispatcher = dispatcher
        self._outcome: tuple[Any, BaseException | None] | None = None
        self._callbacks: list[Callable[[Reply], object]] = []

    def done(self) -> bool:
        return self._outcome is not None

    def on_done(self, callback: Callable[[Reply], object]) -> None:
        """Call ``callback(self)`` once, on the thread that settles the reply."""
        self._callbacks.append(callback)
        if self._outcome is not None:
            self._call_back()

    def get(self, *, timeout: float | None = None) -> Any:
        if self._get_hook is not None:
            return super().get(timeout=timeout)
        if self._outcome is None:
            self._wait(timeout)
        return self._result()

    def set(self, value: Any = None) -> None:
        self._settle(value, None)

    def set_exception(self, exc_info: Any = None) -> None:
        self._settle(None, (exc_info or sys.exc_info())[1])

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait on the event loop. Pykka's own future would block it."""
        import asyncio

        if self._get_hook is not None:  # pykka's stop() and map() make futures that only get() can settle
            return (yield from asyncio.get_running_loop().run_in_executor(None, self.get))
        if self._outcome is None:
            loop = asyncio.get_running_loop()
            waiter = loop.create_future()
            self.on_done(lambda _: loop.call_soon_threadsafe(_wake, waiter))
            yield from waiter
        return self._result()

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self._outcome is not None:
            raise Full
        self._outcome = (value, error)
        self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            self._callbacks.pop()(self)

    def _wait(self, timeout: float | None) -> None:
        if self._dispatcher is not None and self._dispatcher.is_own_thread():
            raise WouldDeadlock("a blocking get() on the actors' own thread: await the reply, or use on_done()")
        gate = threading.Lock()
        gate.acquire()
        self.on_done(lambda _: gate.release())
        if not gate.acquire(timeout=-1 if timeout is None else timeout):
            raise pykka.Timeout(f"no answer within {timeout} s")

    def _result(self) -> Any:
        assert self._outcome is not None
        value, error = self._outcome
        if error is not None:
            raise error
        return value


def _wake(waiter: Any) -> None:
    if not waiter.done():
        waiter.set_result(None)
