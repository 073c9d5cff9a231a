"""Aliases of counters under the names that Kafka's own metrics get from the rules of the JMX exporter. Pure.

Only what is counted here in the same way has an alias. The labels are bounded, as those of /metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, UntypedMetricFamily

from ...actors.consumer_group.records import CONSUMER
from ...actors.group.kinds import KINDS
from ...actors.records import CLASSIC
from .sample import NodeSample

if TYPE_CHECKING:
    from prometheus_client import Metric

_COORDINATOR = "kafka_server_group_coordinator_metrics_"
_MANAGER = "kafka_coordinator_group_groupmetadatamanager_numgroups"


def jmx_aliases(figures: NodeSample, groups: Mapping[tuple[str, str], int]) -> Iterator[Metric]:
    """``groups``: their numbers by type and state."""
    rebalances = figures.rebalances
    yield _untyped("offset_expiration_count", "Offsets that were deleted by retention.", figures.expired_offsets)
    doc = "Generations of classic groups whose assignment was stored."
    yield _untyped("group_completed_rebalance_count", doc, rebalances.completed)
    doc = "Epochs of groups of the consumer protocol that were started."
    yield _untyped("consumer_group_rebalance_count", doc, rebalances.epochs)
    by_type = {str(kind): sum(count for (of, _), count in groups.items() if of == kind) for kind in (CLASSIC, CONSUMER)}
    yield _gauges(f"{_COORDINATOR}group_count", "Groups by protocol.", "protocol", by_type)
    of_consumers = {name.lower(): groups.get((CONSUMER, name), 0) for name in KINDS[CONSUMER].state_names}
    doc = "Groups of the consumer protocol by state."
    yield _gauges(f"{_COORDINATOR}consumer_group_count", doc, "state", of_consumers)
    loaded = figures.loaded
    partitions = {"active": loaded.active_partitions, "loading": loaded.loading_partitions}
    partitions["failed"] = loaded.failed_partitions
    yield _gauges(f"{_COORDINATOR}num_partitions", "Partitions of the log by state.", "state", partitions)
    yield GaugeMetricFamily(_MANAGER, "Classic groups.", by_type[CLASSIC])
    for name in KINDS[CLASSIC].state_names:
        count = groups.get((CLASSIC, name), 0)
        yield GaugeMetricFamily(f"{_MANAGER}{name.lower()}", f"Classic groups in the state {name}.", count)


def _untyped(name: str, doc: str, value: float) -> Metric:
    """Their names do not end as those of counters do."""
    return UntypedMetricFamily(_COORDINATOR + name, doc, value)


def _gauges(name: str, doc: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, doc, labels=(label,))
    for value, number in values.items():
        family.add_metric((value,), number)
    return family
