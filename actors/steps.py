"""Work that takes long: it pauses after each small piece, so that other work can run in between.

A generator yields after each piece, of at most about 0.2 ms. Whoever drives it decides by a clock how many pieces run
without a pause. A part of the work is another generator, with ``yield from``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""The work; ``T`` is the type of its result."""


def pieces(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Divide ``items`` into pieces of ``size`` items; the last one may be smaller."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def run_steps(steps: Steps[T]) -> T:
    """Run all the work without a pause and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
