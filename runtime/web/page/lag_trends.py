"""How fast the lag of groups changes, as far as somebody looks at the list. Pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from ..group_rows import GroupRow

SPAN_MS: Final = 300_000
SAMPLE_MS: Final = 30_000
GROUPS_MAX: Final = 2000
"""Groups whose lag is remembered: those that were shown last."""


class Sample(NamedTuple):
    """The lag at a time, in milliseconds since 1970."""

    time_ms: int
    lag: int


class LagTrends:
    """A sample of each group that is shown, every 30 seconds, for five minutes."""

    def __init__(self) -> None:
        self._samples: OrderedDict[str, deque[Sample]] = OrderedDict()

    def note(self, rows: Iterable[GroupRow], now_ms: int) -> None:
        for row in rows:
            if row.lag is not None:
                self._add(row.group, Sample(now_ms, row.lag))
        while len(self._samples) > GROUPS_MAX:
            self._samples.popitem(last=False)

    def _add(self, group: str, sample: Sample) -> None:
        samples = self._samples.setdefault(group, deque())
        self._samples.move_to_end(group)
        if not samples or sample.time_ms - samples[-1].time_ms >= SAMPLE_MS:
            samples.append(sample)
        while sample.time_ms - samples[0].time_ms > SPAN_MS + SAMPLE_MS:
            samples.popleft()

    def per_minute(self, row: GroupRow, now_ms: int) -> int | None:
        """Records a minute by which the lag grows; negative: it shrinks. None if it is not known for 30 seconds."""
        samples = self._samples.get(row.group)
        if row.lag is None or not samples or now_ms - samples[0].time_ms < SAMPLE_MS:
            return None
        return round((row.lag - samples[0].lag) * 60_000 / (now_ms - samples[0].time_ms))
