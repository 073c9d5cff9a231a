"""Work on long lists on the event loop, with pauses for others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from ...actors.steps import Steps, pieces

T = TypeVar("T")
R = TypeVar("R")


async def map_in_pieces(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The results for all items. They must not change meanwhile."""
    results: list[R] = []
    for piece in pieces(items):
        results += map(function, piece)
        await asyncio.sleep(0)
    return results


async def run_in_pieces(steps: Steps[T]) -> T:
    """Do work in steps, with a pause after each."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
