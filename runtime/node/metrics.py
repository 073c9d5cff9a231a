"""The metrics of /metrics, for Prometheus. See docs/metrics.md.

A page is made of counters that exist anyway, at most once a second, and for the most part in a thread. Labels are
states, classes of actors and the like, and those groups whose lag the operator asked for. So clients cannot increase
the number of time series.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from ...actors.coordinator.partitions import GroupPartition
from ...actors.group.kind import PASSIVATED_NAME
from ...actors.group.kinds import KINDS
from ...actors.group.offsets import count_packed_types
from ...actors.group.rebalance_counts import PHASE_BOUNDS_S
from ...actors.memory import MemorySample
from ...actors.records import GroupType
from ..common.errors import StartError
from ..disk.disk import Disk, file_size
from ..kafka.connections.request_names import api_title
from ..kafka.request_counts import BOUNDS_S as REQUEST_BOUNDS_S
from ..log.manifest import log_files
from ..log.partition import PARTITION_FOLDER
from ..log.stats import SYNC_BOUNDS_S, LogStats
from .group_page import FamilyCollector, GroupPages
from .health import Pages
from .jmx_names import jmx_aliases
from .kept_page import KeptPage
from .lag import group_lags
from .sample import LoadCounts, NodeSample, NodeSource, RebalanceSample, RequestSample, not_ready, sample

if TYPE_CHECKING:
    from prometheus_client import Metric

    from ..engine.stats import Stats
    from .node import Node


MICROSECONDS = 1e6


class ThreadSample(NamedTuple):
    """The figures that take longer, with the number of groups and partitions, and are read in a thread.

    ``groups``: their numbers by type and state.
    """

    groups: Mapping[tuple[str, str], int]
    stats: Stats
    sizes: Sizes


def pages(
    source: NodeSource,
    clock_s: Callable[[], float] = time.monotonic,
    lag_groups: Sequence[str] = (),
    *,
    has_groups: bool = False,
) -> Pages:
    """``clock_s``: seconds, for the age of pages. ``lag_groups``: groups whose lag is shown. ``has_groups``: whether
    there is a page of single groups."""
    page, with_aliases = (
        KeptPage(partial(metrics, source, lag_groups, has_aliases=has_aliases), clock_s)
        for has_aliases in (False, True)
    )
    groups = GroupPages(source, clock_s).get if has_groups else None
    return Pages(page.get, lambda: not_ready(source()), groups, with_aliases.get, names_groups=bool(lag_groups))


async def metrics(source: NodeSource, lag_groups: Sequence[str] = (), *, has_aliases: bool = False) -> bytes:
    """The page. Counters are read on the loop; the rest is read, and the page is written, in a thread.

    ``has_aliases``: whether it also has the names of the JMX exporter.
    """
    node = source()
    if node is None:
        return await asyncio.to_thread(_make_page, CollectorRegistry())
    lags = await group_lags(node, lag_groups)
    return await asyncio.to_thread(_make_page_of, node, sample(node), lags, has_aliases)


def _make_page_of(node: Node, figures: NodeSample, lags: Mapping[str, int], has_aliases: bool) -> bytes:
    registry, thread_sample = CollectorRegistry(), sample_in_thread(node)
    registry.register(NodeCollector(figures, thread_sample, lags))
    if has_aliases:
        registry.register(FamilyCollector(list(jmx_aliases(figures, thread_sample.groups))))
    return _make_page(registry)


def _make_page(registry: CollectorRegistry) -> bytes:
    ProcessCollector(registry=registry)  # memory, CPU, files and start of the process, under their usual names
    return generate_latest(registry)


class Sizes(NamedTuple):
    """The bytes of all partitions of the log, and of those segments that were never compacted."""

    log_bytes: int
    dirty_bytes: int


def sample_in_thread(node: Node) -> ThreadSample:
    """May be called in any thread."""
    return ThreadSample(_count_groups(node), node.actors.system.stats(), _sizes(node.services.options.data))


def _count_groups(node: Node) -> Counter[tuple[str, str]]:
    listed = tuple(node.groups.listed.values())  # a copy in one step: the loop changes it meanwhile
    states = Counter[tuple[str, str]]((entry.group_type, entry.state) for entry in listed)
    for group_type, count in _count_passivated(node.groups.partitions).items():
        states[group_type, PASSIVATED_NAME] += count
    return states


def _sizes(data: Path) -> Sizes:
    clean = dirty = 0
    disk = Disk()
    for name in disk.names(data):
        if PARTITION_FOLDER.fullmatch(name):
            with suppress(OSError, StartError):  # a file was compacted meanwhile; damage is reported elsewhere
                manifest, files = log_files(disk, data / name)
                clean += sum(segment.size for segment in manifest.segments)
                dirty += sum(file_size(disk, file.path) for file in files if not file.is_compacted)
    return Sizes(clean + dirty, dirty)


def _count_passivated(partitions: Iterable[GroupPartition]) -> Counter[GroupType]:
    """By type."""
    copies = (tuple(partition.passivated.values()) for partition in partitions)
    return sum(map(count_packed_types, copies), Counter[GroupType]())


class NodeCollector(Collector):
    """All metrics of one moment. ``lags``: records by group."""

    def __init__(self, figures: NodeSample, thread_sample: ThreadSample, lags: Mapping[str, int]) -> None:
        self._figures = figures
        self._thread_sample = thread_sample
        self._lags = lags

    def collect(self) -> Iterator[Metric]:
        groups, stats, sizes = self._thread_sample
        yield ready_metric(is_ready=self._figures.not_ready is None)
        yield from _of_groups(self._figures, groups)
        yield from _of_rebalances(self._figures.rebalances)
        yield from _of_requests(self._figures.connections.requests)
        yield from _of_actors(stats)
        yield from _of_memory(self._figures.memory)
        yield from _of_loading(self._figures.loaded)
        yield from _of_rounds(self._figures.log)
        yield from _of_log(self._figures, sizes)
        if self._lags:
            doc = "Records between the committed offsets of a group and the ends of the partitions."
            yield _gauges("callboard_group_lag", doc, "group", self._lags)


def ready_metric(*, is_ready: bool) -> Metric:
    return _gauge("callboard_ready", "1 if clients are served, as in /readyz.", is_ready)


def _of_groups(sample: NodeSample, groups: Mapping[tuple[str, str], int]) -> Iterator[Metric]:
    keys = [(kind.type, name) for kind in KINDS.values() for name in kind.state_names]
    states = [(key, groups.get(key, 0)) for key in keys]
    doc = "Groups by type and state; passivated groups are Empty."
    yield _labelled(GaugeMetricFamily("callboard_groups", doc, labels=("type", "state")), states)
    yield _gauge("callboard_groups_passivated", "Groups without members that are packed in memory.", sample.passivated)
    yield _counter("callboard_commits", "Requests whose offsets were committed.", sample.commits)
    yield _counter("callboard_expired_sessions", "Members whose session has expired.", sample.expired_sessions)
    yield _counter("callboard_expired_offsets", "Offsets that were deleted by retention.", sample.expired_offsets)
    yield _gauge("callboard_connections", "Connections of clients.", sample.connections.open)
    yield _gauge("callboard_transactional_ids", "Transactional ids that have a state.", sample.transactional_ids)
    doc = "Refusals of clients by a limit."
    yield _counters("callboard_requests_over_limit", doc, "limit", sample.connections.over_limit)
    doc = "Responses and new connections that were throttled, by quota."
    yield _counters("callboard_throttled", doc, "quota", sample.connections.throttled)
    doc = "Clients that have authenticated or failed to, by mechanism (SSL: in the TLS handshake) and result."
    family = CounterMetricFamily("callboard_authentications", doc, labels=("mechanism", "result"))
    yield _labelled(family, sorted(sample.connections.logins.items()))
    doc = "Resources that were denied to clients, by operation."
    yield _counters("callboard_denied", doc, "operation", sample.connections.denials)
    failed = bool(sample.audit_failure)
    yield _gauge("callboard_audit_failed", "1 while lines of the audit trail cannot be written.", failed)
    doc = "How long the certificates of listeners with TLS are still valid."
    yield _gauges("callboard_certificate_expires_seconds", doc, "listener", sample.connections.certificate_seconds_left)


def _of_rebalances(sample: RebalanceSample) -> Iterator[Metric]:
    yield _counter("callboard_joins", "Members that have joined groups.", sample.joins)
    doc = "Generations with members, and epochs, that were started, by cause."
    yield _counters("callboard_rebalances", doc, "cause", sample.by_cause)
    doc = "Durations of the phases of rebalances."
    family = HistogramMetricFamily("callboard_rebalance_seconds", doc, labels=("phase",))
    for phase, (counts, seconds) in sample.phases.items():
        family.add_metric((phase,), _buckets(PHASE_BOUNDS_S, counts), seconds)
    yield family


def _of_requests(requests: Mapping[str, RequestSample] | None) -> Iterator[Metric]:
    if requests is None:
        return
    counts = CounterMetricFamily("callboard_requests", "Requests by API and error.", labels=("api", "error"))
    doc = "Durations of requests until an actor has replied, or they have been handled."
    durations = HistogramMetricFamily("callboard_request_seconds", doc, labels=("api",))
    for name, (errors, histogram) in requests.items():
        api = api_title(name)
        _labelled(counts, (((api, error), number) for error, number in errors.items()))
        durations.add_metric((api,), _buckets(REQUEST_BOUNDS_S, histogram.counts), histogram.seconds)
    yield counts
    yield durations


def _of_actors(stats: Stats) -> Iterator[Metric]:
    actors = {row.name: row.actors for row in stats.classes}
    handled = {row.name: row.handled for row in stats.classes}
    deepest = max((mailbox.waiting for mailbox in stats.deepest), default=0)
    turns = stats.turns
    yield _gauges("callboard_actors", "Running actors by class.", "class", actors)
    yield _counters("callboard_actor_messages", "Messages that actors have handled, by class.", "class", handled)
    yield _gauge("callboard_mailbox_messages", "Messages that wait in all mailboxes.", stats.waiting)
    yield _gauge("callboard_mailbox_messages_max", "Messages that wait in the fullest mailbox.", deepest)
    yield _counter("callboard_actor_restarts", "Restarts of actors after a bug.", stats.restarts)
    yield _counter("callboard_dead_letters", "Messages to actors that had stopped.", stats.dead_letters)
    yield _gauges(
        "callboard_turn_seconds",
        "Durations of actors' turns on the loop since the start: quantiles (upper ends of buckets) and the maximum.",
        "quantile",
        {"0.5": turns.p50_us / MICROSECONDS, "0.99": turns.p99_us / MICROSECONDS, "1": turns.longest_us / MICROSECONDS},
    )


def _of_memory(memory: MemorySample) -> Iterator[Metric]:
    doc = "Memory for what clients store and wait for, by kind; counted, not measured."
    yield _gauges("callboard_memory_bytes", doc, "kind", memory.bytes_by_kind)
    yield _gauge("callboard_memory_limit_bytes", "The setting memory_limit_bytes.", memory.limit_bytes)
    doc = "New groups, members, topics and transactional ids that were refused at that limit."
    yield _counter("callboard_memory_refusals", doc, memory.refusals)


def _of_loading(loaded: LoadCounts) -> Iterator[Metric]:
    _, loading, failed, quarantined = loaded
    yield _gauge("callboard_loading_partitions", "Partitions of the log that are not loaded yet.", loading)
    yield _gauge("callboard_failed_partitions", "Partitions of the log that could not be read.", failed)
    yield _gauge("callboard_quarantined_groups", "Groups that are refused because of an invalid record.", quarantined)


def _of_rounds(log: LogStats) -> Iterator[Metric]:
    yield _counter("callboard_log_records", "Records that were appended.", log.records)
    yield _counter("callboard_log_rounds", "Rounds: records that were written and synced together.", log.rounds)
    yield _counter("callboard_log_refused_rounds", "Rounds that could not be written.", log.refused_rounds)
    doc = "Durations of the journal's syncs."
    buckets = _buckets(SYNC_BOUNDS_S, log.sync_counts)
    yield HistogramMetricFamily("callboard_log_sync_seconds", doc, buckets=buckets, sum_value=log.sync_seconds)
    yield _counter("callboard_log_checkpoints", "Checkpoints that were made.", log.checkpoints)
    yield _counter("callboard_log_checkpoint_seconds", "Total duration of checkpoints.", log.checkpoint_seconds)


def _of_log(sample: NodeSample, sizes: Sizes) -> Iterator[Metric]:
    log = sample.log
    yield _gauge("callboard_log_bytes", "Size of all partitions of the log.", sizes.log_bytes)
    yield _gauge("callboard_log_dirty_bytes", "The part of it that was never compacted.", sizes.dirty_bytes)
    yield _counter("callboard_compactions", "Compactions that this server has started.", sample.compactions)
    yield _gauge("callboard_journal_bytes", "Size of the journal.", log.journal_bytes)
    yield _gauge("callboard_journal_files", "Files of the journal.", log.journal_files)
    yield _gauge("callboard_log_waiting_bytes", "Bytes in the journal but not yet in partitions.", log.waiting_bytes)
    yield _gauge("callboard_log_damages", "Damaged positions that were found in the log.", sample.damages)
    yield _gauge("callboard_log_failed", "1 if all commits are refused after a disk error.", bool(log.failure))
    yield _gauge("callboard_log_full", "1 while the disk is full.", bool(log.full))
    failed = len(log.failures)
    yield _gauge("callboard_log_failed_partitions", "Partitions whose file could not be written.", failed)


def _buckets(bounds_s: Sequence[float], counts: Iterable[int]) -> list[tuple[str, float]]:
    """The cumulative buckets of a histogram. ``counts``: one for each bound, and one for longer durations."""
    return list(zip([*map(str, bounds_s), "+Inf"], accumulate(counts), strict=True))


def _gauge(name: str, doc: str, value: float) -> Metric:
    return GaugeMetricFamily(name, doc, value)


def _counter(name: str, doc: str, value: float) -> Metric:
    return CounterMetricFamily(name, doc, value)


def _gauges(name: str, doc: str, label: str, values: Mapping[str, float]) -> Metric:
    return _labelled(GaugeMetricFamily(name, doc, labels=(label,)), _single(values))


def _counters(name: str, doc: str, label: str, values: Mapping[str, float]) -> Metric:
    return _labelled(CounterMetricFamily(name, doc, labels=(label,)), _single(values))


def _single(values: Mapping[str, float]) -> list[tuple[tuple[str, ...], float]]:
    return [((value,), number) for value, number in values.items()]


def _labelled(
    family: GaugeMetricFamily | CounterMetricFamily, values: Iterable[tuple[tuple[str, ...], float]]
) -> GaugeMetricFamily | CounterMetricFamily:
    for labels, number in values:
        family.add_metric(labels, number)
    return family
