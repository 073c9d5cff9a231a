"""Rebalances as bars: how long each phase took, and when they were. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ....actors.recorder.causes import OTHER, TEXTS
from ....actors.recorder.record import RebalanceRecord
from ....actors.recorder.texts import who

WIDTH: Final = 1000
"""Of a drawing, in its own units."""

TICK_WIDTH: Final = 4

PHASES: Final = {
    "initial_delay": "wait for more members",
    "join": "members rejoin",
    "leader_assigns": "leader assigns",
    "log": "log stores",
    "followers": "members get assignments",
    "assign": "assignor",
    "reconcile": "members hand over",
}
"""What happens in each phase."""


class Phase(NamedTuple):
    """A part of a bar: from ``x``, ``width`` wide."""

    name: str
    text: str
    ms: int
    x: float
    width: float


class Bar(NamedTuple):
    """A rebalance. ``cause``: in words."""

    record: RebalanceRecord
    cause: str
    phases: tuple[Phase, ...]


class Tick(NamedTuple):
    """A rebalance on the strip of time."""

    x: float
    width: float
    outcome: str


class Strip(NamedTuple):
    """The time from ``began_ms`` to ``ended_ms``, with the rebalances in it."""

    began_ms: int
    ended_ms: int
    ticks: tuple[Tick, ...]


def bars_of(records: Sequence[RebalanceRecord]) -> list[Bar]:
    """All to the same scale: the longest one has the whole width."""
    longest_ms = max((record.duration_ms for record in records), default=0)
    return [Bar(record, cause_of(record), phases_of(record, longest_ms)) for record in records]


def cause_of(record: RebalanceRecord) -> str:
    return TEXTS.get(record.why.cause, TEXTS[OTHER]).format(who=who(record.why.by))


def phases_of(record: RebalanceRecord, longest_ms: int) -> tuple[Phase, ...]:
    scale = WIDTH / max(longest_ms, 1)
    phases, x = [], 0.0
    for name, ms in record.phases_ms:
        width = min(ms * scale, WIDTH - x)
        phases.append(Phase(name, PHASES.get(name, name), ms, round(x, 1), round(width, 1)))
        x += width
    return tuple(phases)


def strip_of(records: Sequence[RebalanceRecord], now_ms: int) -> Strip | None:
    """None without records."""
    if not records:
        return None
    began_ms = min(record.began_ms for record in records)
    scale = WIDTH / max(now_ms - began_ms, 1)
    ticks = [
        Tick(
            round(min((record.began_ms - began_ms) * scale, WIDTH - TICK_WIDTH), 1),
            round(max(record.duration_ms * scale, TICK_WIDTH), 1),
            record.outcome,
        )
        for record in records
    ]
    return Strip(began_ms, now_ms, tuple(ticks))
