"""The garbage collector of a server: it does not hold all requests for long, and leaves loaded objects alone."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from callboard.runtime.cli import serve

EXAMINED_MAX = 13_000
"""Objects; each takes about 0.4 us."""


@pytest.fixture
def _restored_collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    gc.unfreeze()  # as in a process that runs no tests
    yield
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("_restored_collector")
def test_collections_of_new_objects_examine_few() -> None:
    examined: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 1:
            examined.append(len(gc.get_objects(0)) + len(gc.get_objects(1)))

    gc.collect()
    gc.set_threshold(*serve.GC_THRESHOLDS)
    gc.callbacks.append(note)
    try:
        kept = [[number] for number in range(5 * EXAMINED_MAX)]
    finally:
        gc.callbacks.remove(note)
    assert len(kept) == 5 * EXAMINED_MAX
    assert examined
    assert max(examined) < EXAMINED_MAX


class LoadingNode:
    """A node that has loaded 5 records when it is asked."""

    def __init__(self) -> None:
        self.frozen_before_loading = 0
        self.listeners = SimpleNamespace(is_accepting=asyncio.Event())
        self.listeners.is_accepting.set()

    async def wait_until_loaded(self) -> SimpleNamespace:
        self.frozen_before_loading = gc.get_freeze_count()
        self.loaded = [[number] for number in range(1000)]
        return SimpleNamespace(failure="", records=5, seconds=1.0)

    async def stop(self) -> None:
        pass


async def frozen_after_loading(node: LoadingNode) -> int:
    """The number of frozen objects of a server that has loaded its groups. It is stopped then."""
    stopping = asyncio.Event()
    serving = asyncio.create_task(serve.serve_until_stopped(cast("Any", node), "127.0.0.1:9092", {}, stopping))
    for _ in range(10):
        await asyncio.sleep(0)
    frozen = gc.get_freeze_count()
    stopping.set()
    await serving
    return frozen


@pytest.mark.usefixtures("_restored_collector")
def test_objects_of_the_start_and_of_loading_are_not_examined_again() -> None:
    gc.collect()
    objects, node = len(gc.get_objects()), LoadingNode()
    frozen = asyncio.run(frozen_after_loading(node))
    assert gc.get_threshold() == serve.GC_THRESHOLDS
    assert node.frozen_before_loading > objects / 2
    assert frozen > node.frozen_before_loading + len(node.loaded)
