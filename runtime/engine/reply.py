"""Reply: a pykka future that creates a lock only for a blocking wait, and whose waits all have a timeout."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from queue import Full
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import pykka

from ...actors.callboard_error import CallboardError

if TYPE_CHECKING:
    from .counters import EngineCounters

log = logging.getLogger("callboard.runtime")

ASK_TIMEOUT_S = 30.0
"""The default timeout of an ask: longer than any handler should take."""


class WouldDeadlock(CallboardError, RuntimeError):
    """A blocking wait for an answer on the thread that would have to produce it."""


class ReplyHost(Protocol):
    """The part of a dispatcher that the replies of its actors use."""

    ask_timeout_s: float
    counters: EngineCounters
    """Replies that were settled after their timeout. The reply counts itself."""

    def wait_for(self, reply: Reply, timeout_s: float) -> None:
        """Block until the reply is settled. Raises pykka.Timeout, or WouldDeadlock if it could never be settled."""


class Reply(pykka.Future[Any]):
    """The future of an ``ask``. ``await`` it on a loop, ``get()`` it from another thread, or use ``on_done``."""

    def __init__(self, dispatcher: ReplyHost | None = None) -> None:
        super().__init__()
        self.timeout_s = ASK_TIMEOUT_S if dispatcher is None else dispatcher.ask_timeout_s
        self.receiver: object | None = None
        """The mailbox of the actor that was asked; None if it is not known."""
        self._dispatcher = dispatcher
        self._outcome: tuple[Any, BaseException | None, TracebackType | None] | None = None
        self._callbacks: list[Callable[[Reply], object]] = []
        self._sources: tuple[Reply, ...] = ()  # the replies that pykka's get hook reads, if there is one
        self._has_timed_out = False

    def done(self) -> bool:
        return self._outcome is not None

    def on_done(self, callback: Callable[[Reply], object]) -> None:
        """Call ``callback(self)`` once, on the thread that settles the reply; at once if it is settled."""
        self._callbacks.append(callback)
        if self._outcome is not None:
            self._call_back()

    def converted(self, convert: Callable[[BaseException | None], Any]) -> Reply:
        """A future with the result of ``convert``, which gets this one's error, or None, when this one is settled.

        It has the same timeout.
        """
        derived = Reply(self._dispatcher)
        derived.timeout_s = self.timeout_s
        derived.receiver = self.receiver
        self.on_done(_Conversion(derived, convert))
        return derived

    def get(self, *, timeout: float | None = None) -> Any:
        """Return the answer or raise its error. ``timeout`` in seconds; None means ``timeout_s``. Raises pykka.Timeout.

        Raises WouldDeadlock where a blocking wait would prevent the answer: ``await`` the reply there.
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
        if all(isinstance(source, Reply) and (source._get_hook is None or source._sources) for source in sources):
            follower._sources = sources
        return follower

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait on the event loop, at most ``timeout_s``. (Pykka's own future would block the loop.)"""
        if self._get_hook is not None and not self._sources:  # a user's hook may block, so it runs on a thread
            return (yield from asyncio.get_running_loop().run_in_executor(None, self.get).__await__())
        for source in self._unsettled():
            yield from source._wait_on_loop()
        return self.get()

    __iter__ = __await__

    def _unsettled(self) -> Iterable[Reply]:
        """The unsettled replies that this one waits for."""
        if self._get_hook is None:
            return () if self._outcome is not None else (self,)
        return [reply for source in self._sources for reply in source._unsettled()]

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self._outcome is not None or self._get_hook is not None:
            raise Full
        self._outcome = (value, error, None if error is None else error.__traceback__)
        if self._has_timed_out and self._dispatcher is not None:
            self._dispatcher.counters.late_replies += 1
        if self._callbacks:
            self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:  # another thread has taken the last one
                return
            try:
                callback(self)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # an error of the receiver must not affect the sender of the answer
                log.exception("a callback of a reply has failed")

    def _wait(self, timeout_s: float) -> None:
        if self._dispatcher is None:
            block_until_done(self, timeout_s)
        else:
            self._dispatcher.wait_for(self, timeout_s)

    def _wait_on_loop(self) -> Generator[Any, None, None]:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self.on_done(lambda _: _complete_on_loop(loop, waiter))
        timer = None if self.timeout_s == float("inf") else loop.call_later(self.timeout_s, _complete, waiter)
        try:
            yield from waiter
        finally:
            if timer is not None:
                timer.cancel()
        if self._outcome is None:
            raise self.mark_timed_out(self.timeout_s)

    def mark_timed_out(self, timeout_s: float) -> pykka.Timeout:
        """The wait has timed out: from now on an answer counts as late. Returns the error to raise."""
        self._has_timed_out = True
        return pykka.Timeout(f"no answer within {timeout_s:g} s")

    def _result(self) -> Any:
        assert self._outcome is not None
        value, error, traceback = self._outcome
        if error is None:
            return value
        try:
            raise error.with_traceback(traceback)
        finally:
            del self, error, traceback  # the error refers to this frame, so the frame must not refer to the error


class _Conversion:
    """The callback that settles a converted future. A chain of them is settled in a loop, so the stack stays flat."""

    def __init__(self, derived: Reply, convert: Callable[[BaseException | None], Any]) -> None:
        self._derived = derived
        self._convert = convert

    def __call__(self, source: Reply) -> None:
        chain = [(self, source)]
        for conversion, settled in chain:
            derived = conversion._derived
            dependents = _take_conversions(derived)
            conversion._settle(settled)
            chain += [(dependent, derived) for dependent in dependents]

    def _settle(self, source: Reply) -> None:
        assert source._outcome is not None
        try:
            answer = self._convert(source._outcome[1])
        except BaseException as error:  # any error is the result of the derived future
            self._settle_derived(self._derived.set_exception, (type(error), error, error.__traceback__))
        else:
            self._settle_derived(self._derived.set, answer)

    def _settle_derived(self, settle: Callable[[Any], None], answer: Any) -> None:
        with suppress(Full):  # it was settled directly
            settle(answer)


def _take_conversions(reply: Reply) -> list[_Conversion]:
    """Remove and return the conversions among the reply's callbacks."""
    taken = []
    for callback in tuple(reply._callbacks):
        if isinstance(callback, _Conversion):
            with suppress(ValueError):  # another thread has removed it
                reply._callbacks.remove(callback)
                taken.append(callback)
    return taken


def block_until_done(reply: Reply, timeout_s: float) -> None:
    """Block this thread until the reply is settled. Raises pykka.Timeout."""
    gate = threading.Lock()
    gate.acquire()
    reply.on_done(lambda _: gate.release())
    if not gate.acquire(timeout=min(max(timeout_s, 0), threading.TIMEOUT_MAX)):
        raise reply.mark_timed_out(timeout_s)


def _complete_on_loop(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> None:
    if asyncio._get_running_loop() is loop:  # most answers come from an actor on the loop; call_soon costs 6 us more
        _complete(waiter)
        return
    try:
        loop.call_soon_threadsafe(_complete, waiter)
    except RuntimeError:
        if not loop.is_closed():  # a closed loop has no waiter
            raise


def _complete(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
