"""Cleans topics regularly, in slices between the requests of clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ...actors.steps import SLICE_NS, Steps
from ..common.logs import get_logger
from ..topics.cleaning import TopicCleaner
from .environment import Environment

if TYPE_CHECKING:
    from ..settings.table import Settings
    from ..topics.catalogue import TopicCatalogue

log = get_logger("callboard.runtime")

T = TypeVar("T")


class BlockingCalls:
    """Blocking calls of work in steps. ``pending`` runs, perhaps in a thread, before the next step."""

    def __init__(self) -> None:
        self.pending: Callable[[], object] | None = None

    def run(self, call: Callable[[], T]) -> Steps[T]:
        results: list[T] = []
        self.pending = lambda: results.append(call())
        yield
        return results[0]


async def clean_topics(topics: TopicCatalogue, settings: Settings, environment: Environment) -> None:
    """Drop old records and compact topics until cancelled."""
    calls = BlockingCalls()
    cleaner = TopicCleaner(topics, settings, environment.clock.wall_ms, calls.run)
    async with asyncio.TaskGroup() as tasks:
        retention = _repeat(
            lambda: settings.log_retention_check_interval_ms, cleaner.expire, BlockingCalls(), environment
        )
        tasks.create_task(retention)
        if settings.log_cleaner_enable:
            compaction = _repeat(lambda: settings.log_cleaner_backoff_ms, cleaner.compact, calls, environment)
            tasks.create_task(compaction)


async def _repeat(
    interval_ms: Callable[[], int], work: Callable[[], Steps[None]], calls: BlockingCalls, environment: Environment
) -> None:
    while True:
        await asyncio.sleep(interval_ms() / 1000)
        try:
            await run_in_slices(work(), calls, environment)
        except Exception:  # a bug; the records of topics grow, but the server can go on
            log.exception("topics could not be cleaned")


async def run_in_slices(steps: Steps[None], calls: BlockingCalls, environment: Environment) -> None:
    """Run steps, in slices of the loop's thread between the work of others, and their blocking calls."""
    clock_ns = environment.work_clocks.slice_ns
    while True:
        deadline_ns = clock_ns() + SLICE_NS
        try:
            next(steps)
            while calls.pending is None and clock_ns() < deadline_ns:
                next(steps)
        except StopIteration:
            return
        if calls.pending is None:
            await asyncio.sleep(0)
        else:
            call, calls.pending = calls.pending, None
            await environment.run_blocking(call)
