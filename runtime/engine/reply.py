"""Reply: a pykka future that makes a lock only if somebody really blocks on it, and that waits for nothing for ever."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from queue import Full
from types import TracebackType
from typing import Any, Protocol

import pykka

log = logging.getLogger("callboard.runtime")

ASK_TIMEOUT_S = 30.0
"""How long an answer is waited for where nobody says how long: more than any handler needs, less than for ever."""


class WouldDeadlock(RuntimeError):
    """A wait for an answer on the very thread that would have to produce it."""


class ReplyHost(Protocol):
    """What a reply needs of the dispatcher whose actors settle it."""

    ask_timeout_s: float
    late_replies: int
    """Replies that were settled after their wait had ended; the reply itself counts them."""

    def wait_for(self, reply: Reply, timeout_s: float) -> None:
        """Block until the reply is settled. Raises pykka.Timeout, and WouldDeadlock where that could never be."""


class Reply(pykka.Future[Any]):
    """The future of an ``ask``. ``await`` it on a loop, ``get()`` it from another thread, or use ``on_done``."""

    def __init__(self, dispatcher: ReplyHost | None = None) -> None:
        super().__init__()
        self.timeout_s = ASK_TIMEOUT_S if dispatcher is None else dispatcher.ask_timeout_s
        self._dispatcher = dispatcher
        self._outcome: tuple[Any, BaseException | None, TracebackType | None] | None = None
        self._callbacks: list[Callable[[Reply], object]] = []
        self._sources: tuple[Reply, ...] = ()  # those whose answers a get hook of pykka's will ask for
        self._is_given_up = False

    def done(self) -> bool:
        return self._outcome is not None

    def on_done(self, callback: Callable[[Reply], object]) -> None:
        """Call ``callback(self)`` once, on the thread that settles the reply; at once if it is settled."""
        self._callbacks.append(callback)
        if self._outcome is not None:
            self._call_back()

    def converted(self, convert: Callable[[BaseException | None], Any]) -> Reply:
        """A future of what ``convert`` makes of this one's error (None if there is none), as soon as it is settled.

        It is waited for as long as this one.
        """
        derived = Reply(self._dispatcher)
        derived.timeout_s = self.timeout_s
        self.on_done(_Conversion(derived, convert))
        return derived

    def get(self, *, timeout: float | None = None) -> Any:
        """The answer, or its error raised. ``timeout`` in seconds; None means ``timeout_s``. Raises pykka.Timeout.

        Raises WouldDeadlock where the wait would keep the answer from coming: ``await`` the reply there.
        """
        if self._get_hook is not None:
            return super().get(timeout=timeout)
        if self._outcome is None:
            self._wait(self.timeout_s if timeout is None else timeout)
        try:
            return self._result()
        finally:
            del self  # see _result

    def set(self, value: Any = None) -> None:
        self._settle(value, None)

    def set_exception(self, exc_info: Any = None) -> None:
        """``exc_info`` as ``sys.exc_info()`` gives it; None means the exception that is being handled."""
        caught: Any = exc_info or sys.exc_info()
        kind, error, traceback = caught
        if error is None:
            error = kind()
        self._settle(None, error if error.__traceback__ is traceback else error.with_traceback(traceback))

    def set_get_hook(self, func: Callable[[float | None], Any]) -> None:
        if self._outcome is not None:
            raise Full
        super().set_get_hook(func)

    def filter(self, func: Any) -> Any:
        return self._follow(super().filter(func))

    def join(self, *futures: Any) -> Any:
        return self._follow(super().join(*futures), *futures)

    def map(self, func: Any) -> Any:
        return self._follow(super().map(func))

    def reduce(self, func: Any, *args: Any) -> Any:
        return self._follow(super().reduce(func, *args))

    def _follow(self, follower: Any, *more: pykka.Future[Any]) -> Any:
        sources = (self, *more)
        if all(isinstance(one, Reply) and (one._get_hook is None or one._sources) for one in sources):
            follower._sources = sources
        return follower

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait on the event loop, at most ``timeout_s``. (Pykka's own future would block the loop.)"""
        if self._get_hook is not None and not self._sources:  # somebody's hook: only a thread can wait for it
            return (yield from asyncio.get_running_loop().run_in_executor(None, self.get).__await__())
        for source in self._open():
            yield from source._wait_on_loop()
        return self.get()

    __iter__ = __await__

    def _open(self) -> Iterable[Reply]:
        """The unsettled replies that this one waits for."""
        if self._get_hook is None:
            return () if self._outcome is not None else (self,)
        return [one for source in self._sources for one in source._open()]

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self._outcome is not None or self._get_hook is not None:
            raise Full
        self._outcome = (value, error, None if error is None else error.__traceback__)
        if self._is_given_up and self._dispatcher is not None:
            self._dispatcher.late_replies += 1
        if self._callbacks:
            self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:  # another thread was here for the last
                return
            try:
                callback(self)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # of who waits for the answer; it must not hurt who gives it
                log.exception("a callback of a reply has failed")

    def _wait(self, timeout_s: float) -> None:
        if self._dispatcher is None:
            wait_blocking(self, timeout_s)
        else:
            self._dispatcher.wait_for(self, timeout_s)

    def _wait_on_loop(self) -> Generator[Any, None, None]:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self.on_done(lambda _: _wake_on(loop, waiter))
        timer = None if self.timeout_s == float("inf") else loop.call_later(self.timeout_s, _wake, waiter)
        try:
            yield from waiter
        finally:
            if timer is not None:
                timer.cancel()
        if self._outcome is None:
            raise self.give_up(self.timeout_s)

    def give_up(self, timeout_s: float) -> pykka.Timeout:
        """Nobody waits any more; what comes now is late, and counted."""
        self._is_given_up = True
        return pykka.Timeout(f"no answer within {timeout_s:g} s")

    def _result(self) -> Any:
        assert self._outcome is not None
        value, error, traceback = self._outcome
        if error is None:
            return value
        try:
            raise error.with_traceback(traceback)
        finally:
            del self, error, traceback  # the error keeps this frame, which must not keep who keeps the error


class _Conversion:
    """The callback that settles a converted future. A chain of them is settled in a line: the stack stays flat."""

    def __init__(self, derived: Reply, convert: Callable[[BaseException | None], Any]) -> None:
        self._derived = derived
        self._convert = convert

    def __call__(self, source: Reply) -> None:
        line = [(self, source)]
        for conversion, settled in line:
            derived = conversion._derived
            following = _take_conversions(derived)
            conversion._settle(settled)
            line += [(one, derived) for one in following]

    def _settle(self, source: Reply) -> None:
        assert source._outcome is not None
        try:
            answer = self._convert(source._outcome[1])
        except BaseException as error:  # whatever it is, it is the answer
            self._settle_derived(self._derived.set_exception, (type(error), error, error.__traceback__))
        else:
            self._settle_derived(self._derived.set, answer)

    def _settle_derived(self, settle: Callable[[Any], None], answer: Any) -> None:
        with suppress(Full):  # somebody has settled it by hand
            settle(answer)


def _take_conversions(reply: Reply) -> list[_Conversion]:
    """Those that wait for the reply; they are no longer called by it."""
    taken = []
    for callback in tuple(reply._callbacks):
        if isinstance(callback, _Conversion):
            with suppress(ValueError):  # another thread has it
                reply._callbacks.remove(callback)
                taken.append(callback)
    return taken


def wait_blocking(reply: Reply, timeout_s: float) -> None:
    """Block this thread until the reply is settled. Raises pykka.Timeout."""
    gate = threading.Lock()
    gate.acquire()
    reply.on_done(lambda _: gate.release())
    if not gate.acquire(timeout=min(max(timeout_s, 0), threading.TIMEOUT_MAX)):
        raise reply.give_up(timeout_s)


def _wake_on(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> None:
    if asyncio._get_running_loop() is loop:  # most answers come from an actor on the loop; the other way costs 6 us
        _wake(waiter)
        return
    try:
        loop.call_soon_threadsafe(_wake, waiter)
    except RuntimeError:
        if not loop.is_closed():  # where nobody waits any more
            raise


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
