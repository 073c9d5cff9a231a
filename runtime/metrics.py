"""What /metrics says, in Prometheus' terms. Docs: docs/metrics.md.

Nothing is counted for its sake: each scrape looks at what the parts count anyway. Labels are states, classes of actors
and the like, never names of groups or clients, so that their number is bounded whatever the clients do.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from ..actors.states import State
from .watch import Pages

if TYPE_CHECKING:
    from prometheus_client import Metric

    from .node import Node
    from .stats import Stats


MICROSECONDS = 1e6


class Seen(NamedTuple):
    """A moment of a node."""

    groups: Mapping[str, int]  # by state
    asleep: int
    commits: int
    rebalances: int
    expired_sessions: int
    connections: int
    transactional_ids: int
    stats: Stats


def pages(node: Node) -> Pages:
    return Pages(partial(metrics, node), partial(not_ready, node))


def not_ready(node: Node) -> str | None:
    """Why clients should go elsewhere; None when they are served."""
    return None if hasattr(node, "system") else "the log is being opened"


async def metrics(node: Node) -> bytes:
    """The page. The walk through all actors is done beside the loop, because of a hundred thousand it takes a while."""
    stats = await asyncio.to_thread(node.system.stats)
    registry = CollectorRegistry()
    registry.register(_Collector(_look(node, stats)))
    ProcessCollector(registry=registry)  # memory, CPU, files and start of the process, under their usual names
    return generate_latest(registry)


def _look(node: Node, stats: Stats) -> Seen:
    groups, counts = node.groups, node.groups.counts
    states = Counter(listed.state for listed in groups.listed.values())
    states[State.EMPTY.value] += len(groups.asleep)
    return Seen(
        states,
        len(groups.asleep),
        counts.commits,
        counts.rebalances,
        counts.expired_sessions,
        len(node.connections),
        len(node.transaction_table),
        stats,
    )


class _Collector(Collector):
    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def collect(self) -> Iterator[Metric]:
        yield from _of_groups(self._seen)
        yield from _of_actors(self._seen.stats)


def _of_groups(seen: Seen) -> Iterator[Metric]:
    states = {state.value: seen.groups.get(state.value, 0) for state in State if state is not State.DEAD}
    yield _gauges("callboard_groups", "Groups by state; those that sleep are Empty.", "state", states)
    yield _gauge("callboard_groups_asleep", "Groups without members that are kept packed.", seen.asleep)
    yield _counter("callboard_commits", "Offset commits that were kept, one for each request.", seen.commits)
    yield _counter("callboard_rebalances", "Generations with members that began.", seen.rebalances)
    yield _counter("callboard_expired_sessions", "Members that were not heard in time.", seen.expired_sessions)
    yield _gauge("callboard_connections", "Connections of clients.", seen.connections)
    yield _gauge("callboard_transactional_ids", "Transactional ids that are known.", seen.transactional_ids)


def _of_actors(stats: Stats) -> Iterator[Metric]:
    alive = {one.name: one.actors for one in stats.classes}
    handled = {one.name: one.handled for one in stats.classes}
    deepest = max((one.waiting for one in stats.deepest), default=0)
    turns = stats.turns
    yield _gauges("callboard_actors", "Actors that live, by class.", "class", alive)
    yield _counters("callboard_actor_messages", "Messages that actors have handled, by class.", "class", handled)
    yield _gauge("callboard_mailbox_messages", "Messages that wait in all mailboxes.", stats.waiting)
    yield _gauge("callboard_mailbox_messages_max", "Messages that wait in the fullest mailbox.", deepest)
    yield _counter("callboard_actor_restarts", "Actors that began anew after a bug.", stats.restarts)
    yield _counter("callboard_dead_letters", "Messages to actors that were gone.", stats.dead_letters)
    yield _gauges(
        "callboard_turn_seconds",
        "How long an actor kept the loop, since the start: quantiles (upper ends of buckets), and the longest.",
        "quantile",
        {"0.5": turns.p50_us / MICROSECONDS, "0.99": turns.p99_us / MICROSECONDS, "1": turns.longest_us / MICROSECONDS},
    )


def _gauge(name: str, doc: str, value: float) -> Metric:
    return GaugeMetricFamily(name, doc, value)


def _counter(name: str, doc: str, value: float) -> Metric:
    return CounterMetricFamily(name, doc, value)


def _gauges(name: str, doc: str, label: str, values: Mapping[str, float]) -> Metric:
    return _labelled(GaugeMetricFamily(name, doc, labels=(label,)), values.items())


def _counters(name: str, doc: str, label: str, values: Mapping[str, float]) -> Metric:
    return _labelled(CounterMetricFamily(name, doc, labels=(label,)), values.items())


def _labelled(
    family: GaugeMetricFamily | CounterMetricFamily, values: Iterable[tuple[str, float]]
) -> GaugeMetricFamily | CounterMetricFamily:
    for value, number in values:
        family.add_metric((value,), number)
    return family
