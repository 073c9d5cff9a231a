"""Work that takes long: it pauses after each small piece, so that other work can run in between.

A generator yields after each piece, of at most about 0.2 ms. Whoever drives it decides by a clock how many pieces run
without a pause. A part of the work is another generator, with ``yield from``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""The work; ``T`` is the type of its result."""


SLICE_NS = 2_000_000
"""How long work runs before sockets and other work have a turn."""

SHORT_WORK_ITEMS = 256
"""Work on at most so many items, of a microsecond or two each, is done without a pause."""

ITEMS_PER_STEP = 64
"""Items that take a microsecond or two each and are handled in one step."""


NAMES_PER_STEP = 1_024
"""Names that are hashed or sorted in one step, by code in C."""


def pieces(items: Iterable[T], size: int = ITEMS_PER_STEP) -> Iterator[Sequence[T]]:
    """Divide ``items`` into pieces of ``size`` items; the last one may be smaller."""
    remaining = iter(items)
    while piece := tuple(islice(remaining, size)):
        yield piece


def run_slice(steps: Steps[Any], clock_ns: Callable[[], int], deadline_ns: int) -> None:
    """Run one piece, and more until the deadline. Raises StopIteration with the result when the work is done."""
    next(steps)
    while clock_ns() < deadline_ns:
        next(steps)


def distinct(items: Iterable[T]) -> Steps[dict[T, None]]:
    """The different items, in the order in which they first occur."""
    found: dict[T, None] = {}
    for piece in pieces(items):
        found.update(dict.fromkeys(piece))
        yield
    return found


def counted(items: Iterable[T]) -> Steps[Counter[T]]:
    """The different items, in the order in which they first occur, and how often each occurs."""
    counts = Counter[T]()
    for piece in pieces(items):
        counts.update(piece)
        yield
    return counts


def sorted_in_steps(items: Iterable[str], key: Callable[[str], Any] | None = None) -> Steps[list[str]]:
    """The same as ``sorted``."""
    runs: list[list[str]] = []
    for piece in pieces(items, NAMES_PER_STEP):
        runs.append(sorted(piece, key=key))
        yield
    if len(runs) <= 1:
        return runs[0] if runs else []
    result: list[str] = []
    for piece in pieces(merge(*runs, key=key)):
        result += piece
        yield
    return result


def run_steps(steps: Steps[T]) -> T:
    """Run all the work without a pause and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
