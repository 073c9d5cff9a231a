"""Long work of the cluster on the event loop, with pauses for others."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

from ...actors.steps import Steps

STEPS_PER_TURN = 8
"""At most about 0.2 ms each. They are counted, so that simulations repeat exactly."""

T = TypeVar("T")


async def finished(work: T | Steps[T]) -> T:
    """The result of work that is done, or of the steps that do it."""
    return await run_on_loop(work) if isinstance(work, Generator) else work


async def run_on_loop(steps: Steps[T]) -> T:
    while True:
        try:
            for _ in range(STEPS_PER_TURN):
                next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
