"""The time series of /metrics/groups, with the names and labels of kafka_exporter and of kminion. Pure.

Dashboards for these exporters show the groups of this server, too. Figures that are not known have no series; in
kafka_exporter an unknown lag is -1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily

from .group_figures import GroupFigures, TopicRange

NAME_CHARACTERS_MAX = 255
"""Of a protocol in a label; clients may choose names of 32 KiB."""


class Row(NamedTuple):
    """The help text and the labels of a metric."""

    doc: str
    labels: tuple[str, ...] = ()


class Series(NamedTuple):
    """One sample. ``labels``: the values, in the order of the row of ``name``."""

    name: str
    labels: tuple[str, ...]
    value: float


class Brokers(NamedTuple):
    """``node_id``: of this server, which leads the topics. ``addresses``: of all servers, by id."""

    node_id: int
    addresses: Mapping[int, str]


class Style(NamedTuple):
    """The names of one exporter. ``rows``: by name, in the order of the page."""

    rows: Mapping[str, Row]
    of_group: Callable[[GroupFigures, int], Iterator[Series]]
    of_topic: Callable[[str, TopicRange, int], Iterator[Series]]
    of_brokers: Callable[[Brokers], Iterator[Series]]


_GROUP = "kafka_consumergroup_"
_TOPIC = "kafka_topic_"
_PARTITION = ("topic", "partition")

KAFKA_EXPORTER_ROWS = {
    "kafka_brokers": Row("Servers of the cluster."),
    "kafka_broker_info": Row("The address of a server.", ("id", "address")),
    f"{_TOPIC}partitions": Row("Partitions of a topic.", ("topic",)),
    f"{_TOPIC}partition_current_offset": Row("The next offset of a partition.", _PARTITION),
    f"{_TOPIC}partition_oldest_offset": Row("The first offset of a partition.", _PARTITION),
    f"{_TOPIC}partition_leader": Row("The id of the leader of a partition.", _PARTITION),
    f"{_TOPIC}partition_replicas": Row("Replicas of a partition.", _PARTITION),
    f"{_TOPIC}partition_in_sync_replica": Row("Replicas of a partition that are in sync.", _PARTITION),
    f"{_TOPIC}partition_leader_is_preferred": Row("1 if the preferred server leads a partition.", _PARTITION),
    f"{_TOPIC}partition_under_replicated_partition": Row("1 if a partition lacks replicas.", _PARTITION),
    f"{_GROUP}members": Row("Members of a group.", ("consumergroup",)),
    f"{_GROUP}current_offset": Row("The committed offset of a partition.", ("consumergroup", *_PARTITION)),
    f"{_GROUP}current_offset_sum": Row("The sum of the committed offsets of a topic.", ("consumergroup", "topic")),
    f"{_GROUP}lag": Row("Records that a group has not consumed yet.", ("consumergroup", *_PARTITION)),
    f"{_GROUP}lag_sum": Row("The sum of the lags of a topic.", ("consumergroup", "topic")),
}


def _kafka_exporter_group(group: GroupFigures, _node_id: int) -> Iterator[Series]:
    name = label(group.group_id)
    yield Series(f"{_GROUP}members", (name,), group.members)
    for topic in group.topics:
        topic_labels = name, label(topic.topic)
        for partition, offset, lag in topic.partitions:
            labels = *topic_labels, str(partition)
            yield Series(f"{_GROUP}current_offset", labels, offset)
            if lag is not None:
                yield Series(f"{_GROUP}lag", labels, lag)
        yield Series(f"{_GROUP}current_offset_sum", topic_labels, topic.offset_sum)
        if topic.lag is not None:
            yield Series(f"{_GROUP}lag_sum", topic_labels, topic.lag)


def _kafka_exporter_topic(topic: str, offsets: TopicRange, node_id: int) -> Iterator[Series]:
    yield Series(f"{_TOPIC}partitions", (topic,), len(offsets.ends))
    for partition, (start, end) in enumerate(zip(*offsets, strict=True)):
        labels = topic, str(partition)
        yield Series(f"{_TOPIC}partition_current_offset", labels, end)
        yield Series(f"{_TOPIC}partition_oldest_offset", labels, start)
        yield Series(f"{_TOPIC}partition_leader", labels, node_id)
        yield Series(f"{_TOPIC}partition_replicas", labels, 1)
        yield Series(f"{_TOPIC}partition_in_sync_replica", labels, 1)
        yield Series(f"{_TOPIC}partition_leader_is_preferred", labels, 1)
        yield Series(f"{_TOPIC}partition_under_replicated_partition", labels, 0)


def _kafka_exporter_brokers(brokers: Brokers) -> Iterator[Series]:
    if brokers.addresses:
        yield Series("kafka_brokers", (), len(brokers.addresses))
    for node_id, address in brokers.addresses.items():
        yield Series("kafka_broker_info", (str(node_id), address), 1)


_KMINION_GROUP = "kminion_kafka_consumer_group_"
_KMINION_TOPIC = "kminion_kafka_topic_"
_GROUP_TOPIC = ("group_id", "topic_name")
_KMINION_PARTITION = ("topic_name", "partition_id")

KMINION_ROWS = {
    f"{_KMINION_GROUP}info": Row(
        "The state of a group.", ("group_id", "protocol", "protocol_type", "state", "coordinator_id")
    ),
    f"{_KMINION_GROUP}members": Row("Members of a group.", ("group_id",)),
    f"{_KMINION_GROUP}empty_members": Row("Members of a group without partitions.", ("group_id",)),
    f"{_KMINION_GROUP}topic_members": Row("Members with partitions of a topic.", _GROUP_TOPIC),
    f"{_KMINION_GROUP}topic_assigned_partitions": Row("Partitions of a topic that members have.", _GROUP_TOPIC),
    f"{_KMINION_GROUP}topic_offset_sum": Row("The sum of the committed offsets of a topic.", _GROUP_TOPIC),
    f"{_KMINION_GROUP}topic_partition_lag": Row(
        "Records of a partition that a group has not consumed yet.", (*_GROUP_TOPIC, "partition_id")
    ),
    f"{_KMINION_GROUP}topic_lag": Row("The sum of the lags of a topic.", _GROUP_TOPIC),
    f"{_KMINION_TOPIC}partition_high_water_mark": Row("The next offset of a partition.", _KMINION_PARTITION),
    f"{_KMINION_TOPIC}partition_low_water_mark": Row("The first offset of a partition.", _KMINION_PARTITION),
}


def _kminion_group(group: GroupFigures, node_id: int) -> Iterator[Series]:
    name = label(group.group_id)
    protocol, protocol_type = label(group.protocol), label(group.protocol_type)
    yield Series(f"{_KMINION_GROUP}info", (name, protocol, protocol_type, group.state, str(node_id)), 1)
    yield Series(f"{_KMINION_GROUP}members", (name,), group.members)
    yield Series(f"{_KMINION_GROUP}empty_members", (name,), group.empty_members)
    for topic_name, assigned in group.assigned.items():
        topic_labels = name, label(topic_name)
        yield Series(f"{_KMINION_GROUP}topic_members", topic_labels, assigned.members)
        yield Series(f"{_KMINION_GROUP}topic_assigned_partitions", topic_labels, assigned.partitions)
    for topic in group.topics:
        topic_labels = name, label(topic.topic)
        for partition, _, lag in topic.partitions:
            if lag is not None:
                yield Series(f"{_KMINION_GROUP}topic_partition_lag", (*topic_labels, str(partition)), lag)
        yield Series(f"{_KMINION_GROUP}topic_offset_sum", topic_labels, topic.offset_sum)
        if topic.lag is not None:
            yield Series(f"{_KMINION_GROUP}topic_lag", topic_labels, topic.lag)


def _kminion_topic(topic: str, offsets: TopicRange, _node_id: int) -> Iterator[Series]:
    for partition, (start, end) in enumerate(zip(*offsets, strict=True)):
        labels = topic, str(partition)
        yield Series(f"{_KMINION_TOPIC}partition_high_water_mark", labels, end)
        yield Series(f"{_KMINION_TOPIC}partition_low_water_mark", labels, start)


def _kminion_brokers(_brokers: Brokers) -> Iterator[Series]:
    """kminion's metrics of brokers are not about groups."""
    return iter(())


STYLES = {
    "kafka_exporter": Style(KAFKA_EXPORTER_ROWS, _kafka_exporter_group, _kafka_exporter_topic, _kafka_exporter_brokers),
    "kminion": Style(KMINION_ROWS, _kminion_group, _kminion_topic, _kminion_brokers),
}


def label(text: str) -> str:
    """A value of a label that can be encoded: names of clients may have halves of surrogate pairs."""
    return text[:NAME_CHARACTERS_MAX].encode("utf-8", "backslashreplace").decode()


def families(style: Style, series: Iterable[Series]) -> Iterator[GaugeMetricFamily]:
    """The series by metric, in the order of the rows. A metric without series is left out."""
    by_name: dict[str, GaugeMetricFamily] = {}
    for name, labels, value in series:
        family = by_name.get(name)
        if family is None:
            row = style.rows[name]
            family = by_name[name] = GaugeMetricFamily(name, row.doc, labels=row.labels)
        family.add_metric(labels, value)
    return (by_name[name] for name in style.rows if name in by_name)
