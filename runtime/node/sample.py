"""The figures of a node at one moment: read on its loop, without I/O and without reading each group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...actors.coordinator.partition_states import PartitionState
from ...actors.durations import Durations
from ...actors.group.rebalance_counts import RebalanceCounts
from ...actors.memory import MemorySample
from ...actors.text import format_count
from ..kafka.request_counts import RequestCounts
from ..log.stats import LogStats

if TYPE_CHECKING:
    from .node import Node


NodeSource = Callable[[], "Node | None"]
"""Returns the node; None while it is being opened."""


class LoadCounts(NamedTuple):
    """Numbers of partitions that are served, are being loaded, or failed to, and of groups with invalid records."""

    active_partitions: int
    loading_partitions: int
    failed_partitions: int
    quarantined_groups: int


class RequestSample(NamedTuple):
    """``errors``: requests by error. ``durations``: of those that have one."""

    errors: Mapping[str, int]
    durations: Histogram


class ConnectionSample(NamedTuple):
    """``over_limit``: refusals by limit. ``throttled``: waits by quota. ``logins``: by mechanism and result.

    ``certificate_seconds_left``: by listener, for those with TLS. ``denials``: by operation. ``requests``: by API; None
    if they are not counted.
    """

    open: int
    over_limit: Mapping[str, int]
    throttled: Mapping[str, int]
    certificate_seconds_left: Mapping[str, float]
    logins: Mapping[tuple[str, str], int]
    denials: Mapping[str, int]
    requests: Mapping[str, RequestSample] | None


class RebalanceSample(NamedTuple):
    """``joins``: members that were added. ``completed``: generations whose assignment was stored. ``epochs``: those of
    the consumer protocol that were started. ``by_cause``: started rebalances. ``phases``: histograms of durations.
    """

    joins: int
    completed: int
    epochs: int
    by_cause: Mapping[str, int]
    phases: Mapping[str, Histogram]

    @property
    def started(self) -> int:
        return sum(self.by_cause.values())


class Histogram(NamedTuple):
    """``counts``: one number for each bucket, not cumulative. ``seconds``: the sum of all durations."""

    counts: tuple[int, ...]
    seconds: float


class NodeSample(NamedTuple):
    """``not_ready``: why clients are not served, None if they are. ``active``, ``passivated``: numbers of groups."""

    not_ready: str | None
    active: int
    passivated: int
    commits: int
    rebalances: RebalanceSample
    expired_sessions: int
    expired_offsets: int
    connections: ConnectionSample
    transactional_ids: int
    memory: MemorySample
    loaded: LoadCounts
    log: LogStats
    damages: int
    compactions: int
    audit_failure: str


def sample(node: Node) -> NodeSample:
    """Call it on the node's loop."""
    groups, counters = node.groups, node.groups.counters
    return NodeSample(
        not_ready(node),
        len(groups.groups),
        len(groups.passivated),
        counters.commits,
        _sample_rebalances(groups.rebalances),
        counters.expired_sessions,
        counters.expired.offsets,
        ConnectionSample(
            len(node.connections),
            dict(node.services.over_limit.counts),
            dict(node.services.quotas.throttled),
            node.listeners.certificate_seconds_left(),
            dict(node.services.sasl.logins.counts),
            dict(node.services.denials),
            _sample_requests(node.services.routes.counts),
        ),
        len(node.actors.transaction_table),
        groups.memory_limit.sample(),
        LoadCounts(
            groups.partitions.count_in(PartitionState.ACTIVE),
            groups.partitions.count_in(PartitionState.LOADING),
            groups.partitions.count_in(PartitionState.FAILED),
            len(groups.partitions.quarantined),
        ),
        node.offsets_log.stats(),
        len(node.offsets_log.damages()),
        node.compactions,
        node.services.audit.failure,
    )


def _histogram(durations: Durations) -> Histogram:
    return Histogram(tuple(durations.counts), durations.seconds)


def _sample_requests(counts: RequestCounts | None) -> dict[str, RequestSample] | None:
    if counts is None:
        return None
    return {name: RequestSample(dict(api.errors), _histogram(api.durations)) for name, api in counts.apis.items()}


def _sample_rebalances(counts: RebalanceCounts) -> RebalanceSample:
    phases = {phase: _histogram(durations) for phase, durations in counts.phases.items()}
    epochs = sum(count for (is_epoch, _), count in counts.started.items() if is_epoch)
    return RebalanceSample(counts.joins, counts.completed, epochs, counts.by_cause(), phases)


def not_ready(node: Node | None) -> str | None:
    """Why a node does not serve clients; None if it does."""
    if node is None:
        return "the log is being opened"
    if not node.listeners.is_accepting.is_set():
        return "the node has not joined its cluster yet"
    if node.is_loading:
        count = node.groups.partitions.count_in(PartitionState.LOADING)
        return f"{format_count(count, 'partition')} of the log {'is' if count == 1 else 'are'} being read"
    failure = node.offsets_log.stats().failure
    return f"commits are refused, the log has failed: {failure}" if failure else None
