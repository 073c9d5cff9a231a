"""How fast figures of groups change, as far as somebody looks at them. Pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Final, NamedTuple

SPAN_MS: Final = 300_000
SAMPLE_MS: Final = 30_000
GROUPS_MAX: Final = 2000
"""Groups whose figure is remembered: those that were shown last."""


class Sample(NamedTuple):
    """The figure at a time, in milliseconds since 1970."""

    time_ms: int
    value: int


class Trends:
    """A sample of the figure of each group that is shown, every 30 seconds, for five minutes.

    ``is_counter``: a lower figure than before is that of a new count, which began at 0.
    """

    def __init__(self, *, is_counter: bool = False) -> None:
        self._is_counter = is_counter
        self._samples: OrderedDict[str, deque[Sample]] = OrderedDict()

    def note(self, values: Mapping[str, int | None], now_ms: int) -> None:
        """``values``: by group."""
        for group, value in values.items():
            if value is not None:
                self._add(group, Sample(now_ms, value))
        while len(self._samples) > GROUPS_MAX:
            self._samples.popitem(last=False)

    def _add(self, group: str, sample: Sample) -> None:
        samples = self._samples.setdefault(group, deque())
        self._samples.move_to_end(group)
        if self._is_counter and samples and sample.value < samples[-1].value:
            samples.clear()
        if not samples or sample.time_ms - samples[-1].time_ms >= SAMPLE_MS:
            samples.append(sample)
        while sample.time_ms - samples[0].time_ms > SPAN_MS + SAMPLE_MS:
            samples.popleft()

    def per_minute(self, group: str, value: int | None, now_ms: int) -> int | None:
        """By how much the figure grows in a minute; negative: it shrinks. None if it is not known for 30 seconds."""
        samples = self._samples.get(group)
        if value is None or not samples or now_ms - samples[0].time_ms < SAMPLE_MS:
            return None
        return round((value - samples[0].value) * 60_000 / (now_ms - samples[0].time_ms))
