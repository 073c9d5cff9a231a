"""Statistics of a system: actors, waiting and handled messages, durations of turns, restarts, lost messages.

Each worker has its own counters, so that counting needs no lock; ``collect`` adds them up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from .counters import EngineCounters, TurnCounters
from .dead_letters import DeadLetters
from .incarnation import is_passivated
from .registry import Registry

DEEPEST_SHOWN = 10


class ClassStats(NamedTuple):
    """All actors of one class. ``handled`` includes the messages of actors that have stopped."""

    name: str
    actors: int
    passivated: int
    waiting: int  # messages in their mailboxes
    handled: int


class MailboxDepth(NamedTuple):
    """A mailbox with unread messages."""

    actor: str  # its label, as the tracer shows it
    waiting: int


class TurnStats(NamedTuple):
    """Durations in microseconds. A quantile is the upper end of its bucket, so at most twice the exact value."""

    turns: int
    p50_us: float
    p99_us: float
    longest_us: float


class Stats(NamedTuple):
    """The statistics at one moment. Other threads run meanwhile, so the sums may not match exactly."""

    classes: tuple[ClassStats, ...]  # the class with the most handled messages first
    deepest: tuple[MailboxDepth, ...]
    turns: TurnStats
    restarts: int
    dead_letters: int
    late_replies: int

    @property
    def actors(self) -> int:
        return sum(stats.actors for stats in self.classes)

    @property
    def waiting(self) -> int:
        return sum(stats.waiting for stats in self.classes)

    @property
    def handled(self) -> int:
        return sum(stats.handled for stats in self.classes)


class StatsSource(Protocol):
    """The part of a dispatcher that ``collect`` reads."""

    registry: Registry
    counters: EngineCounters
    dead_letters: DeadLetters


def collect(dispatcher: StatsSource) -> Stats:
    """The statistics of a dispatcher's actors. Iterates once over all of them."""
    refs = dispatcher.registry.engine_refs()
    turn_counters = dispatcher.counters.workers
    depths = [(len(ref.actor_inbox.queue), ref) for ref in refs]
    deepest = sorted((depth for depth in depths if depth[0]), key=lambda depth: -depth[0])[:DEEPEST_SHOWN]
    return Stats(
        tuple(_by_class(depths, turn_counters)),
        tuple(MailboxDepth(ref.actor_inbox.label, waiting) for waiting, ref in deepest),
        _turns(turn_counters),
        dispatcher.counters.restarts,
        dispatcher.dead_letters.count,
        dispatcher.counters.late_replies,
    )


def _by_class(depths: Sequence[tuple[int, Any]], turn_counters: Iterable[TurnCounters]) -> list[ClassStats]:
    actors: Counter[type] = Counter()
    passivated: Counter[type] = Counter()
    waiting: Counter[type] = Counter()
    handled: Counter[type] = Counter()
    for depth, ref in depths:
        cls = ref.actor_class
        actors[cls] += 1
        waiting[cls] += depth
        passivated[cls] += is_passivated(ref.actor_inbox)
    for counters in turn_counters:
        handled.update(dict(counters.handled))
    classes = sorted(actors | handled, key=lambda cls: (-handled[cls], cls.__qualname__))
    return [ClassStats(cls.__name__, actors[cls], passivated[cls], waiting[cls], handled[cls]) for cls in classes]


def _turns(turn_counters: Iterable[TurnCounters]) -> TurnStats:
    turn_counters = tuple(turn_counters)
    counts = [sum(column) for column in zip(*(counters.turns for counters in turn_counters), strict=True)]
    longest_us = max((counters.longest_turn_ns for counters in turn_counters), default=0) / 1000
    p50_us, p99_us = (min(_quantile(counts, share), longest_us) for share in (0.5, 0.99))
    return TurnStats(sum(counts), p50_us, p99_us, longest_us)


def _quantile(counts: Sequence[int], share: float) -> float:
    """The upper end of the bucket with the quantile ``share`` of all turns, in microseconds."""
    rank = share * sum(counts)
    cumulative = 0
    for bucket, count in enumerate(counts):
        cumulative += count
        if count and cumulative >= rank:
            return (1 << bucket) / 1000
    return 0.0
