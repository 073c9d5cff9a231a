"""Counts how much work Python does between two turns of the event loop, without a clock.

The unit is a line of Python that is executed. A list comprehension or a generator counts each of its items.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CLOCK_STEP_NS = 10_000_000
"""More than a slice: with ``endless_clock`` each slice ends after its first step."""


class WorkCounter:
    """Counts executed lines. ``longest``: of the pieces that ``end_piece`` has ended."""

    def __init__(self) -> None:
        self.longest = 0
        self._trace, self._take_lines = line_counter()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what runs inside of this block, on this thread."""
        previous = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(previous)

    def end_piece(self) -> None:
        self.longest = max(self.longest, self._take_lines())

    async def count_turns_until(self, is_done: Callable[[], bool]) -> None:
        """Count each turn of the event loop as a piece."""
        while not is_done():
            await asyncio.sleep(0)
            self.end_piece()


def line_counter() -> tuple[Callable[[Any, str, Any], Any], Callable[[], int]]:
    """A trace function that counts lines, and one that returns their number and begins again at zero.

    A variable of a closure takes half as long as an attribute. The trace function runs at each line.
    """
    lines = 0

    def trace(_frame: Any, _event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += 1
        return trace

    def take_lines() -> int:
        nonlocal lines
        taken, lines = lines, 0
        return taken

    return trace, take_lines


def endless_clock() -> Callable[[], int]:
    """A clock (ns) by which each step of a long piece of work takes longer than a slice."""
    return itertools.count(step=CLOCK_STEP_NS).__next__


@pytest.fixture
def _one_step_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Actors work one step, and handle one message, in each turn of the event loop."""
    monkeypatch.setattr(time, "perf_counter_ns", endless_clock())


@pytest.fixture
def _no_garbage_collection() -> Iterator[None]:
    """The collector's pauses depend on the objects of other tests; ``serve`` sets it up in its own way."""
    gc.disable()
    yield
    gc.enable()
