"""Leaves the group when the process is asked to end, so that other members get the shards without a wait."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..common.stop_request import StopRequest
from .blocking import BlockingMember
from .member import Member

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_restore_calls: list[Callable[[], None]] = []
"""One for each block that runs in this process."""


@contextmanager
def leave_on_signals(
    member: Member | BlockingMember, signals: Sequence[signal.Signals] = STOP_SIGNALS
) -> Iterator[None]:
    """While the block runs, the first of these signals makes the member leave; then ``run`` returns.

    Leaving cancels handlers that are coroutines, sets ``is_revoked`` for those in threads, and waits for their end, at
    most for the rebalance timeout. A second signal, at least a quarter of a second later, has its usual effect. In a
    forked child each one has it.

    Raises RuntimeError outside of the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("signals reach the main thread only: use leave_on_signals() there")
    install = _install_on_loop if isinstance(member, Member) else _install_in_thread
    restore = install(member.start_leaving, signals)
    _restore_calls.append(restore)
    try:
        yield
    finally:
        if restore in _restore_calls:  # not in a child that was forked in the block
            _restore_calls.remove(restore)
            restore()


def _install_on_loop(leave: Callable[[], object], signals: Sequence[signal.Signals]) -> Callable[[], None]:
    loop = asyncio.get_running_loop()

    def restore() -> None:
        for number in signals:
            loop.remove_signal_handler(number)

    def on_signal(number: signal.Signals) -> None:
        if request.is_second():
            restore()
            signal.raise_signal(number)
        leave()

    request = StopRequest()
    for number in signals:
        loop.add_signal_handler(number, on_signal, number)
    return restore


def _install_in_thread(leave: Callable[[], object], signals: Sequence[signal.Signals]) -> Callable[[], None]:
    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def on_signal(number: int, _frame: object) -> None:
        if request.is_second():
            restore()
            signal.raise_signal(number)
        leave()

    request = StopRequest()
    previous = {number: signal.signal(number, on_signal) for number in signals}
    return restore


def _restore_in_child() -> None:
    """A forked child has no member, so the signal would not end it. That of an event loop would even reach the parent:
    the loop's handler writes to a socket that both processes have."""
    while _restore_calls:
        _restore_calls.pop()()


os.register_at_fork(after_in_child=_restore_in_child)
