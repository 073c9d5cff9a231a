"""The loop dispatcher: actors run on the event loop's own thread, between the callbacks of its sockets.

One thread for sockets and actors is the fastest form that CPython allows: a message costs no hand-over between threads
(8 us against 70 us a round trip), and more workers are slower. See docs/design.md.
"""

from __future__ import annotations

import threading
import time
from asyncio import AbstractEventLoop, _get_running_loop
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from typing import Any

import pykka

from ..actors.base import belong_to
from .mailbox import Mailbox
from .reply import Reply

MESSAGES_A_TURN = 64
"""How many messages a mailbox may handle before the next one has its turn: batches pay, and waits stay short."""

SLICE_S = 0.002
"""How long actors run before the sockets are looked at again."""


class Dispatcher:
    """What all dispatchers share: the list of the living, and the count of letters to the dead."""

    def __init__(self) -> None:
        self.refs: dict[pykka.ActorRef[Any], None] = {}
        self.dead_letters = 0

    def new_mailbox(self) -> Mailbox:
        return Mailbox(self)

    def new_reply(self) -> Reply:
        return Reply(self)

    def after_turn(self, ref: pykka.ActorRef[Any], message: Any) -> None:
        """See ``actors.base.Dispatcher``."""
        raise NotImplementedError

    def forget(self, ref: pykka.ActorRef[Any]) -> None:
        self.refs.pop(ref, None)

    def ready(self, mailbox: Mailbox) -> None:
        """Queue a mailbox that has turned from empty to non-empty."""
        raise NotImplementedError

    def is_own_thread(self) -> bool:
        """Whether the caller runs on a thread that the actors need."""
        raise NotImplementedError


class LoopDispatcher(Dispatcher):
    """Runs ready mailboxes on an asyncio (or uvloop) loop. ``ready`` may be called from any thread."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._thread_id: int | None = None
        self._queue: deque[Mailbox] = deque()
        self._pumping = False
        # Turns run in a context of their own, where actors that are made belong here; entering it costs nothing.
        self._context = copy_context()
        self._context.run(belong_to, self)

    def ready(self, mailbox: Mailbox) -> None:
        self._queue.append(mailbox)
        if not self._pumping:
            self._pumping = True
            if threading.get_ident() == self._thread_id:
                self._loop.call_soon(self._pump, context=self._context)
            else:
                self._loop.call_soon_threadsafe(self._pump, context=self._context)

    def after_turn(self, ref: pykka.ActorRef[Any], message: Any) -> None:
        self._loop.call_soon(_tell, ref, message)

    def is_own_thread(self) -> bool:
        """Before the first turn nobody knows the thread: then it is the one on which the loop runs."""
        return threading.get_ident() == self._thread_id or _get_running_loop() is self._loop

    def _pump(self) -> None:
        self._thread_id = threading.get_ident()
        try:
            self._run_until(time.perf_counter() + SLICE_S)
        finally:  # whatever got out of a turn, the others have theirs
            self._pumping = False
            if self._queue and not self._pumping:
                self._pumping = True
                self._loop.call_soon(self._pump, context=self._context)

    def _run_until(self, deadline: float) -> None:
        queue, clock = self._queue, time.perf_counter
        while queue:
            mailbox = queue.popleft()
            if mailbox.run(MESSAGES_A_TURN):
                queue.append(mailbox)
            if clock() > deadline:
                return


def _tell(ref: pykka.ActorRef[Any], message: Any) -> None:
    with suppress(pykka.ActorDeadError):  # it has stopped meanwhile
        ref.tell(message)
