"""How much of a quota is used: a rate over a sliding window, and a token bucket. Pure.

Source: ``Rate``, ``SampledStat`` and ``TokenBucket`` of Kafka 4.3.1, with the defaults of ``quota.window.num`` and
``quota.window.size.seconds``. Times are in milliseconds.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SAMPLES: Final = 11
SAMPLE_MS: Final = 1000
BURST_S: Final = SAMPLES * SAMPLE_MS // 1000
"""A token bucket holds what its rate gives in this time."""

THROTTLE_MAX_MS: Final = 1000
"""A client that is above a rate waits at most so long, and is then checked again."""


class Sample:
    """What was counted in ``SAMPLE_MS``."""

    __slots__ = ("start_ms", "value")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.value = 0.0


class SlidingRate:
    """Sums values over the last ``SAMPLES`` samples."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()

    def add(self, value: float, now_ms: int) -> None:
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= SAMPLE_MS:
            samples.append(Sample(now_ms))
        samples[-1].value += value

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long the client has to wait until the rate per second is at the limit again; 0 if it is not above."""
        window_ms = self._window_ms(now_ms)
        rate = sum(sample.value for sample in self._samples) * 1000 / window_ms
        return min(round((rate - limit) / limit * window_ms), THROTTLE_MAX_MS) if rate > limit else 0

    def _window_ms(self, now_ms: int) -> int:
        """The time that the samples cover, at least all samples but the current one. Drops older ones."""
        samples = self._samples
        while samples and now_ms - samples[0].start_ms >= SAMPLES * SAMPLE_MS:
            samples.popleft()
        elapsed_ms = now_ms - samples[0].start_ms if samples else 0
        missing_samples = max(0, SAMPLES - 1 - elapsed_ms // SAMPLE_MS)
        return elapsed_ms + missing_samples * SAMPLE_MS


class TokenBucket:
    """Gains tokens at a rate per second, up to those of ``BURST_S``. It may owe tokens (KIP-599)."""

    __slots__ = ("_tokens", "_updated_ms")

    def __init__(self) -> None:
        self._tokens: float | None = None  # full
        self._updated_ms = 0

    def take(self, tokens: float, rate: float, now_ms: int) -> None:
        self._tokens = self._tokens_at(rate, now_ms) - tokens
        self._updated_ms = now_ms

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """How long until it owes nothing."""
        return max(0, round(-self._tokens_at(rate, now_ms) / rate * 1000))

    def _tokens_at(self, rate: float, now_ms: int) -> float:
        burst = rate * BURST_S
        if self._tokens is None:
            return burst
        return min(burst, self._tokens + rate * (now_ms - self._updated_ms) / 1000)
