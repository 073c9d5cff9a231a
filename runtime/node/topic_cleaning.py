"""Cleans topics regularly, in slices between the requests of clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...actors.steps import SLICE_NS, Steps, run_slice
from ..common.logs import get_logger
from ..topics.cleaning import TopicCleaner
from .environment import Environment

if TYPE_CHECKING:
    from ..settings.table import Settings
    from ..topics.catalogue import TopicCatalogue

log = get_logger("callboard.runtime")


async def clean_topics(topics: TopicCatalogue, settings: Settings, environment: Environment) -> None:
    """Drop old records and compact topics until cancelled."""
    cleaner = TopicCleaner(topics, settings, environment.clock.wall_ms)
    clock_ns = environment.slice_clock_ns
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_repeat(lambda: settings.log_retention_check_interval_ms, cleaner.expire, clock_ns))
        if settings.log_cleaner_enable:
            tasks.create_task(_repeat(lambda: settings.log_cleaner_backoff_ms, cleaner.compact, clock_ns))


async def _repeat(interval_ms: Callable[[], int], work: Callable[[], Steps[None]], clock_ns: Callable[[], int]) -> None:
    while True:
        await asyncio.sleep(interval_ms() / 1000)
        try:
            await _run_in_slices(work(), clock_ns)
        except Exception:  # a bug; the records of topics grow, but the server can go on
            log.exception("topics could not be cleaned")


async def _run_in_slices(steps: Steps[None], clock_ns: Callable[[], int]) -> None:
    while True:
        try:
            run_slice(steps, clock_ns, clock_ns() + SLICE_NS)
        except StopIteration:
            return
        await asyncio.sleep(0)
