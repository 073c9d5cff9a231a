"""Letters to the dead: messages that no actor will read. All are counted, a few are kept, the log stays readable."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

log = logging.getLogger("callboard.runtime")

LOG_INTERVAL_MS = 1000
SAMPLES_KEPT = 100
SAMPLE_CHARS = 200  # a message may be as large as a request


class DeadLetter(NamedTuple):
    """A sample: whom it was for, and how the message begins."""

    receiver: str
    message: str


class DeadLetters:
    """Counts every letter by the class of its message; writes a line a second at most, and keeps what it wrote of."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self.by_class: Counter[str] = Counter()
        self.samples: deque[DeadLetter] = deque(maxlen=SAMPLES_KEPT)
        self._monotonic_ms = monotonic_ms
        self._silent_until_ms: int | None = None
        self._since = 0

    @property
    def count(self) -> int:
        return self.by_class.total()

    def add(self, receiver: Any, message: Any) -> None:
        self.by_class[type(message).__name__] += 1
        self._since += 1
        now_ms = self._monotonic_ms()
        if self._silent_until_ms is not None and now_ms < self._silent_until_ms:
            return
        self._silent_until_ms = now_ms + LOG_INTERVAL_MS
        letter = DeadLetter(str(receiver), _beginning(message))
        self.samples.append(letter)
        count, self._since = self._since, 0
        log.warning("%d messages to dead actors; the last: %s to %s", count, letter.message, letter.receiver)


def _beginning(message: Any) -> str:
    try:
        text = repr(message)
    except Exception as error:  # somebody else's class; it must not spoil a refusal
        text = f"<{type(message).__name__}, whose repr fails: {error!r}>"
    return text if len(text) <= SAMPLE_CHARS else text[:SAMPLE_CHARS] + "..."
