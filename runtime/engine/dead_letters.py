"""Dead letters: messages that no actor will handle. All are counted, some are kept as samples, few are logged."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ...actors.text import format_count

log = logging.getLogger("callboard.runtime")

LOG_INTERVAL_MS = 1000
SAMPLES_KEPT = 100
SAMPLE_CHARS = 200  # a message may be as large as a request


class DeadLetter(NamedTuple):
    """A sample: the label of the receiver, and the beginning of the message's repr."""

    receiver: str
    message: str


class DeadLetters:
    """Counts dead letters by message class. Logs at most one line per second, and keeps the logged ones as samples."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self.by_class: Counter[str] = Counter()
        self.samples: deque[DeadLetter] = deque(maxlen=SAMPLES_KEPT)
        self._monotonic_ms = monotonic_ms
        self._next_log_ms: int | None = None
        self._unlogged = 0

    @property
    def count(self) -> int:
        return self.by_class.total()

    def add(self, receiver: Any, message: Any) -> None:
        self.by_class[type(message).__name__] += 1
        self._unlogged += 1
        now_ms = self._monotonic_ms()
        if self._next_log_ms is not None and now_ms < self._next_log_ms:
            return
        self._next_log_ms = now_ms + LOG_INTERVAL_MS
        letter = DeadLetter(str(receiver), _short_repr(message))
        self.samples.append(letter)
        count, self._unlogged = self._unlogged, 0
        messages = format_count(count, "message")
        log.warning("%s to dead actors; the last: %s to %s", messages, letter.message, letter.receiver)


def _short_repr(message: Any) -> str:
    try:
        text = repr(message)
    except Exception as error:  # a user's class; its error must not prevent the rejection of the message
        text = f"<{type(message).__name__}, whose repr fails: {error!r}>"
    return text if len(text) <= SAMPLE_CHARS else text[:SAMPLE_CHARS] + "..."
