"""Figures and health of a coordinator, and a collector of its metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .results import CoordinatorStats, Health

if TYPE_CHECKING:
    import asyncio

    from prometheus_client.registry import Collector

    from ..node.node import Node


class Monitoring:
    """What an operator asks a coordinator. Nothing here waits for the log, or reads each group."""

    def _running_node(self) -> Node:
        """The running node. Raises RuntimeError if there is none, or on another event loop."""
        raise NotImplementedError

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        """The coordinator's event loop. Raises RuntimeError before its start."""
        raise NotImplementedError

    def stats(self) -> CoordinatorStats:
        """Counts and sizes at this moment. It takes less than a millisecond, whatever the number of groups."""
        from ..node.sample import sample

        figures = sample(self._running_node())
        return CoordinatorStats(
            active_groups=figures.active,
            passivated_groups=figures.passivated,
            quarantined_groups=figures.loaded.quarantined_groups,
            failed_partitions=figures.loaded.failed_partitions,
            commits=figures.commits,
            rebalances=figures.rebalances.started,
            expired_sessions=figures.expired_sessions,
            expired_offsets=figures.expired_offsets,
            connections=figures.connections.open,
            transactional_ids=figures.transactional_ids,
            memory_bytes=sum(figures.memory.bytes_by_kind.values()),
            memory_limit_bytes=figures.memory.limit_bytes,
            journal_bytes=figures.log.journal_bytes,
            log_damages=figures.damages,
            is_log_full=bool(figures.log.full),
        )

    def health(self) -> Health:
        """Whether the coordinator serves its clients, as ``/readyz`` of ``callboard serve``. Never raises."""
        from ..node.sample import not_ready

        try:
            reason = not_ready(self._running_node())
        except RuntimeError as error:
            reason = str(error)
        return Health(reason is None, reason or "")

    def collector(self, lag_groups: Iterable[str] = ()) -> Collector:
        """A collector of the metrics of docs/metrics.md, for any registry: ``registry.register(c.collector())``.

        ``lag_groups``: at most 100 groups whose lag is shown. Raises StartError for more.
        """
        from .collector import CoordinatorCollector  # imports prometheus_client

        return CoordinatorCollector(self._running_node, self._own_loop, lag_groups)
