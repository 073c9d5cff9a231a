"""The metrics of an embedded coordinator as a collector of prometheus_client. See docs/metrics.md."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector

from ..engine.waiting import LoopClosed, run_on_loop
from ..node.lag import group_lags
from ..node.metrics import NodeCollector, ready_metric, sample_in_thread
from ..node.sample import NodeSample, sample
from ..settings.metric_options import check_lag_groups

if TYPE_CHECKING:
    from prometheus_client import Metric

    from ..node.node import Node

SCRAPE_TIMEOUT_S = 2.0
"""A coordinator whose loop does not answer for so long is shown as not ready."""


class CoordinatorCollector(Collector):
    """Collects in any thread, also on the coordinator's own event loop.

    There the lags are those of the scrape before, because a collector cannot wait for groups. A coordinator that does
    not run, or does not answer, has only ``callboard_ready``, with the value 0.
    """

    def __init__(
        self,
        source: Callable[[], Node],
        own_loop: Callable[[], asyncio.AbstractEventLoop],
        lag_groups: Iterable[str] = (),
    ) -> None:
        """``source``: the running node, called on its loop; RuntimeError if there is none."""
        self._source = source
        self._own_loop = own_loop
        self._lag_groups = check_lag_groups(lag_groups)
        self._lags: Mapping[str, int] = {}
        self._refreshing: asyncio.Task[None] | None = None

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that a registry accepts it before the coordinator runs."""
        return ()

    def collect(self) -> Iterator[Metric]:
        try:
            node, figures = self._sample()
        except (RuntimeError, LoopClosed, TimeoutError):
            yield ready_metric(is_ready=False)
            return
        yield from NodeCollector(figures, sample_in_thread(node), self._lags).collect()

    def _sample(self) -> tuple[Node, NodeSample]:
        loop = self._own_loop()
        if _running_loop() is not loop:
            return run_on_loop(self._sample_with_lags(), loop, SCRAPE_TIMEOUT_S)
        node = self._source()
        if self._lag_groups and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = loop.create_task(self._refresh_lags(node))
        return node, sample(node)

    async def _sample_with_lags(self) -> tuple[Node, NodeSample]:
        node = self._source()
        await self._refresh_lags(node)
        return node, sample(node)

    async def _refresh_lags(self, node: Node) -> None:
        self._lags = await group_lags(node, self._lag_groups)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
