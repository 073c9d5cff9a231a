"""What a system says about itself: how many live, what they did, how long turns took, what was lost.

Each worker counts on its own tally, so that counting needs no lock; ``collect`` adds them up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from .dead_letters import DeadLetters
from .registry import Registry

TURN_BUCKETS = 64  # for all that 63 bits can count
DEEPEST_SHOWN = 10


class Tally:
    """What one worker has done. ``turns[n]`` counts the turns that took less than ``2 ** n`` nanoseconds."""

    __slots__ = ("handled", "longest_turn_ns", "turns")

    def __init__(self) -> None:
        self.handled: defaultdict[type, int] = defaultdict(int)
        self.turns = [0] * TURN_BUCKETS
        self.longest_turn_ns = 0

    def turn(self, elapsed_ns: int) -> None:
        self.turns[elapsed_ns.bit_length()] += 1
        if elapsed_ns > self.longest_turn_ns:
            self.longest_turn_ns = elapsed_ns


class ClassStats(NamedTuple):
    """All actors of one class. ``handled`` counts those that have stopped too."""

    name: str
    actors: int
    asleep: int
    waiting: int  # messages in their mailboxes
    handled: int


class Depth(NamedTuple):
    """A mailbox with unread messages."""

    actor: str  # its label, as the tracer shows it
    waiting: int


class TurnStats(NamedTuple):
    """Times in microseconds. A quantile is the upper end of its bucket, so at most twice the truth."""

    turns: int
    p50_us: float
    p99_us: float
    longest_us: float


class Stats(NamedTuple):
    """A moment of a system. Other threads go on while it is taken, so sums may be off by what they do."""

    classes: tuple[ClassStats, ...]  # those with the most messages handled first
    deepest: tuple[Depth, ...]
    turns: TurnStats
    restarts: int
    dead_letters: int
    late_replies: int

    @property
    def actors(self) -> int:
        return sum(one.actors for one in self.classes)

    @property
    def waiting(self) -> int:
        return sum(one.waiting for one in self.classes)

    @property
    def handled(self) -> int:
        return sum(one.handled for one in self.classes)


class StatsSource(Protocol):
    """What the figures of a system are taken from: its dispatcher."""

    registry: Registry
    tallies: list[Tally]
    dead_letters: DeadLetters
    restarts: int
    late_replies: int


def collect(dispatcher: StatsSource) -> Stats:
    """Counts; walks once through all that live."""
    refs = dispatcher.registry.own()
    tallies = dispatcher.tallies
    depths = [(len(ref.actor_inbox.queue), ref) for ref in refs]
    deepest = sorted((depth for depth in depths if depth[0]), key=lambda depth: -depth[0])[:DEEPEST_SHOWN]
    return Stats(
        tuple(_by_class(depths, tallies)),
        tuple(Depth(ref.actor_inbox.label, waiting) for waiting, ref in deepest),
        _turns(tallies),
        dispatcher.restarts,
        dispatcher.dead_letters.count,
        dispatcher.late_replies,
    )


def _by_class(depths: Sequence[tuple[int, Any]], tallies: Iterable[Tally]) -> list[ClassStats]:
    alive: Counter[type] = Counter()
    asleep: Counter[type] = Counter()
    waiting: Counter[type] = Counter()
    handled: Counter[type] = Counter()
    for depth, ref in depths:
        kind = ref.actor_class
        alive[kind] += 1
        waiting[kind] += depth
        asleep[kind] += ref.actor_inbox.is_asleep
    for tally in tallies:
        handled.update(dict(tally.handled))
    kinds = sorted(alive | handled, key=lambda kind: (-handled[kind], kind.__qualname__))
    return [ClassStats(kind.__name__, alive[kind], asleep[kind], waiting[kind], handled[kind]) for kind in kinds]


def _turns(tallies: Iterable[Tally]) -> TurnStats:
    tallies = tuple(tallies)
    counts = [sum(column) for column in zip(*(tally.turns for tally in tallies), strict=True)]
    longest_us = max((tally.longest_turn_ns for tally in tallies), default=0) / 1000
    p50_us, p99_us = (min(_quantile(counts, share), longest_us) for share in (0.5, 0.99))
    return TurnStats(sum(counts), p50_us, p99_us, longest_us)


def _quantile(counts: Sequence[int], share: float) -> float:
    """The upper end of the bucket in which the turn at ``share`` of all lies, in microseconds."""
    wanted = share * sum(counts)
    seen = 0
    for bucket, count in enumerate(counts):
        seen += count
        if count and seen >= wanted:
            return (1 << bucket) / 1000
    return 0.0
