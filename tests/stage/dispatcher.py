"""A dispatcher on the test's own thread: nothing runs but in ``step`` and ``run``, and a seed may decide the order."""

from __future__ import annotations

import random
import threading
from collections import deque
from typing import Any

import pykka

from callboard.actors.base import running_on
from callboard.runtime.dispatcher import Dispatcher
from callboard.runtime.mailbox import Mailbox

STEPS_MAX = 1_000_000  # a test that needs more has actors that never come to rest


class StepDispatcher(Dispatcher):
    """Mailboxes in the order in which they became ready, or, with ``chance``, any order that a real one could have."""

    def __init__(self, chance: random.Random | None = None, messages_a_turn: int = 1) -> None:
        super().__init__()
        self._chance = chance
        self._messages_a_turn = messages_a_turn
        self._queue: list[Mailbox] = []
        self._later: deque[tuple[pykka.ActorRef[Any], Any]] = deque()
        self._thread_id = threading.get_ident()

    def ready(self, mailbox: Mailbox) -> None:
        self._queue.append(mailbox)

    def after_turn(self, ref: pykka.ActorRef[Any], message: Any) -> None:
        self._later.append((ref, message))

    def is_own_thread(self) -> bool:
        return threading.get_ident() == self._thread_id

    def step(self) -> bool:
        """One turn of one mailbox; False when there is nothing to do."""
        if not self._queue and self._later:
            ref, message = self._later.popleft()
            ref.tell(message)
        if not self._queue:
            return False
        mailbox = self._queue.pop(self._chance.randrange(len(self._queue)) if self._chance else 0)
        with running_on(self):
            if mailbox.run(self._messages_a_turn):
                self._queue.append(mailbox)
        return True

    def run(self) -> None:
        """Until all mailboxes are empty."""
        for _ in range(STEPS_MAX):
            if not self.step():
                return
        raise AssertionError(f"the actors did not come to rest in {STEPS_MAX} steps")
