"""What /metrics says, in Prometheus' terms. Docs: docs/metrics.md.

Nothing is counted for its sake: each scrape looks at what the parts count anyway. Labels are states, classes of actors
and the like, never names of groups or clients, so that their number is bounded whatever the clients do.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from ...actors.group.states import State
from ..common.errors import StartError
from ..disk.disk import Disk, file_size
from ..log.manifest import log_files
from ..log.partition import PARTITION_FOLDER
from ..log.stats import SYNC_BOUNDS_S, LogStats
from .health import Pages

if TYPE_CHECKING:
    from prometheus_client import Metric

    from ..engine.stats import Stats
    from .node import Node


MICROSECONDS = 1e6


class Seen(NamedTuple):
    """A moment of a node."""

    groups: Mapping[str, int]  # by state
    asleep: int
    commits: int
    rebalances: int
    expired_sessions: int
    expired_offsets: int
    connections: int
    transactional_ids: int
    loading: int  # partitions
    failed: int
    quarantined: int  # groups
    stats: Stats
    log: LogStats
    damages: int
    sizes: Sizes
    compactions: int


def pages(node: Node) -> Pages:
    return Pages(partial(metrics, node), partial(not_ready, node))


def not_ready(node: Node) -> str | None:
    """Why clients should go elsewhere; None when they are served."""
    if node.offsets_log is None or not hasattr(node, "transactions"):
        return "the log is being opened"
    if node.is_loading:
        return f"{len(node.groups.unserved.loading)} partitions of the log are being read"
    failure = node.offsets_log.stats().failure
    return f"commits are refused, the log has failed: {failure}" if failure else None


async def metrics(node: Node) -> bytes:
    """The page. What takes a while (all actors, the log's folders) is looked at beside the loop."""
    registry = CollectorRegistry()
    if node.offsets_log is not None and hasattr(node, "transactions"):  # else it has just begun
        stats, sizes = await asyncio.to_thread(_look_beside, node)
        registry.register(_Collector(_look(node, stats, sizes)))
    ProcessCollector(registry=registry)  # memory, CPU, files and start of the process, under their usual names
    return generate_latest(registry)


class Sizes(NamedTuple):
    """Bytes of all partitions of the log, and those of them that were never compacted."""

    log_bytes: int
    dirty_bytes: int


def _look_beside(node: Node) -> tuple[Stats, Sizes]:
    clean = dirty = 0
    disk, data = Disk(), node.options.data
    for name in disk.names(data):
        if PARTITION_FOLDER.fullmatch(name):
            with suppress(OSError, StartError):  # a file that was compacted meanwhile; damage is told elsewhere
                manifest, files = log_files(disk, data / name)
                clean += sum(segment.size for segment in manifest.segments)
                dirty += sum(file_size(disk, file.path) for file in files if not file.is_compacted)
    return node.system.stats(), Sizes(clean + dirty, dirty)


def _look(node: Node, stats: Stats, sizes: Sizes) -> Seen:
    groups, counts = node.groups, node.groups.counts
    assert node.offsets_log is not None
    states = Counter(listed.state for listed in groups.listed.values())
    states[State.EMPTY.value] += len(groups.asleep)
    return Seen(
        states,
        len(groups.asleep),
        counts.commits,
        counts.rebalances,
        counts.expired_sessions,
        counts.expired.offsets,
        len(node.connections),
        len(node.transaction_table),
        len(groups.unserved.loading),
        len(groups.unserved.failed),
        len(groups.unserved.quarantined),
        stats,
        node.offsets_log.stats(),
        len(node.offsets_log.damages()),
        sizes,
        node.compactions,
    )


class _Collector(Collector):
    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def collect(self) -> Iterator[Metric]:
        yield from _of_groups(self._seen)
        yield from _of_actors(self._seen.stats)
        yield from _of_loading(self._seen)
        yield from _of_rounds(self._seen.log)
        yield from _of_log(self._seen)


def _of_groups(seen: Seen) -> Iterator[Metric]:
    states = {state.value: seen.groups.get(state.value, 0) for state in State if state is not State.DEAD}
    yield _gauges("callboard_groups", "Groups by state; those that sleep are Empty.", "state", states)
    yield _gauge("callboard_groups_asleep", "Groups without members that are kept packed.", seen.asleep)
    yield _counter("callboard_commits", "Offset commits that were kept, one for each request.", seen.commits)
    yield _counter("callboard_rebalances", "Generations with members that began.", seen.rebalances)
    yield _counter("callboard_expired_sessions", "Members that were not heard in time.", seen.expired_sessions)
    yield _counter("callboard_expired_offsets", "Offsets that were deleted as old.", seen.expired_offsets)
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


def _of_loading(seen: Seen) -> Iterator[Metric]:
    yield _gauge("callboard_loading_partitions", "Partitions of the log whose groups are not served yet.", seen.loading)
    yield _gauge("callboard_failed_partitions", "Partitions of the log that could not be read.", seen.failed)
    yield _gauge(
        "callboard_quarantined_groups", "Groups that are refused: a record of theirs makes no sense.", seen.quarantined
    )


def _of_rounds(log: LogStats) -> Iterator[Metric]:
    yield _counter("callboard_log_records", "Records that were appended.", log.records)
    yield _counter("callboard_log_rounds", "Rounds: what was written and synced together.", log.rounds)
    yield _counter("callboard_log_refused_rounds", "Rounds that the disk did not take.", log.refused_rounds)
    counts = accumulate(log.sync_counts)
    bounds = [*map(str, SYNC_BOUNDS_S), "+Inf"]
    buckets = list(zip(bounds, counts, strict=True))
    doc = "How long a sync of the journal took."
    yield HistogramMetricFamily("callboard_log_sync_seconds", doc, buckets=buckets, sum_value=log.sync_seconds)
    yield _counter("callboard_log_checkpoints", "Checkpoints that were made.", log.checkpoints)
    yield _counter("callboard_log_checkpoint_seconds", "Time that checkpoints took.", log.checkpoint_seconds)


def _of_log(seen: Seen) -> Iterator[Metric]:
    log, sizes = seen.log, seen.sizes
    yield _gauge("callboard_log_bytes", "Size of all partitions of the log.", sizes.log_bytes)
    yield _gauge("callboard_log_dirty_bytes", "The part of it that was never compacted.", sizes.dirty_bytes)
    yield _counter("callboard_compactions", "Runs of compaction that this server has begun.", seen.compactions)
    yield _gauge("callboard_journal_bytes", "What the journal holds.", log.journal_bytes)
    yield _gauge("callboard_journal_files", "Files of the journal.", log.journal_files)
    yield _gauge("callboard_log_waiting_bytes", "What is in the journal and not in the partitions.", log.waiting_bytes)
    yield _gauge("callboard_log_damages", "Places of the log that were found damaged.", seen.damages)
    yield _gauge("callboard_log_failed", "1 when all commits are refused since the disk failed.", bool(log.failure))
    yield _gauge("callboard_log_full", "1 while the disk has no room.", bool(log.full))
    failed = len(log.failures)
    yield _gauge("callboard_log_failed_partitions", "Partitions whose file could not be written.", failed)


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
