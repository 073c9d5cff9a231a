"""The topic settings of Kafka 4.3 (TopicConfig), and their values for the topics here, which are in memory.

Two of them have an effect and follow the server's settings: the size limit of a batch and the retention in bytes. The
others only report Kafka's defaults to clients. The coordinator's own topics report that they are compacted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..settings.dynamic import ConfigType
from ..settings.table import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

_LONG_MAX = str(2**63 - 1)


class TopicSetting(NamedTuple):
    """``synonym``: the server's setting that is the topic's default; None without one."""

    name: str
    type: ConfigType
    default: str
    synonym: str | None
    doc: str


TOPIC_SETTINGS = (
    TopicSetting(
        "cleanup.policy", ConfigType.LIST, "delete", "log.cleanup.policy", "Old records are deleted or compacted."
    ),
    TopicSetting("compression.gzip.level", ConfigType.INT, "-1", "compression.gzip.level", "Level of gzip."),
    TopicSetting("compression.lz4.level", ConfigType.INT, "9", "compression.lz4.level", "Level of lz4."),
    TopicSetting(
        "compression.type", ConfigType.STRING, "producer", "compression.type", "Batches stay as they were sent."
    ),
    TopicSetting("compression.zstd.level", ConfigType.INT, "3", "compression.zstd.level", "Level of zstd."),
    TopicSetting(
        "delete.retention.ms",
        ConfigType.LONG,
        "86400000",
        "log.cleaner.delete.retention.ms",
        "How long tombstones are kept.",
    ),
    TopicSetting(
        "file.delete.delay.ms",
        ConfigType.LONG,
        "60000",
        "log.segment.delete.delay.ms",
        "Pause before a file is deleted.",
    ),
    TopicSetting(
        "flush.messages", ConfigType.LONG, _LONG_MAX, "log.flush.interval.messages", "Records between two syncs."
    ),
    TopicSetting("flush.ms", ConfigType.LONG, _LONG_MAX, None, "Time between two syncs."),
    TopicSetting(
        "follower.replication.throttled.replicas", ConfigType.LIST, "", None, "Followers that are slowed down."
    ),
    TopicSetting(
        "index.interval.bytes", ConfigType.INT, "4096", "log.index.interval.bytes", "Bytes between index entries."
    ),
    TopicSetting("leader.replication.throttled.replicas", ConfigType.LIST, "", None, "Leaders that are slowed down."),
    TopicSetting(
        "local.retention.bytes", ConfigType.LONG, "-2", "log.local.retention.bytes", "Bytes kept on local disks."
    ),
    TopicSetting(
        "local.retention.ms", ConfigType.LONG, "-2", "log.local.retention.ms", "How long local disks keep records."
    ),
    TopicSetting(
        "max.compaction.lag.ms",
        ConfigType.LONG,
        _LONG_MAX,
        "log.cleaner.max.compaction.lag.ms",
        "When compaction must come.",
    ),
    TopicSetting(
        "max.message.bytes", ConfigType.INT, "1048588", "message.max.bytes", "Largest record batch that is taken."
    ),
    TopicSetting(
        "message.timestamp.after.max.ms",
        ConfigType.LONG,
        "3600000",
        "log.message.timestamp.after.max.ms",
        "How far a record's time may lie in the future.",
    ),
    TopicSetting(
        "message.timestamp.before.max.ms",
        ConfigType.LONG,
        _LONG_MAX,
        "log.message.timestamp.before.max.ms",
        "How far a record's time may lie in the past.",
    ),
    TopicSetting(
        "message.timestamp.type",
        ConfigType.STRING,
        "CreateTime",
        "log.message.timestamp.type",
        "A record keeps its own time.",
    ),
    TopicSetting(
        "min.cleanable.dirty.ratio",
        ConfigType.DOUBLE,
        "0.5",
        "log.cleaner.min.cleanable.ratio",
        "When compaction is worth it.",
    ),
    TopicSetting(
        "min.compaction.lag.ms", ConfigType.LONG, "0", "log.cleaner.min.compaction.lag.ms", "When compaction may come."
    ),
    TopicSetting(
        "min.insync.replicas", ConfigType.INT, "1", "min.insync.replicas", "Replicas that must have a record."
    ),
    TopicSetting("preallocate", ConfigType.BOOLEAN, "false", "log.preallocate", "Files get their full size at once."),
    TopicSetting("remote.log.copy.disable", ConfigType.BOOLEAN, "false", None, "Nothing more goes to the remote tier."),
    TopicSetting(
        "remote.log.delete.on.disable", ConfigType.BOOLEAN, "false", None, "The remote tier is deleted when off."
    ),
    TopicSetting("remote.storage.enable", ConfigType.BOOLEAN, "false", None, "Old records go to a remote tier."),
    TopicSetting(
        "retention.bytes",
        ConfigType.LONG,
        "67108864",
        "topic.retention.bytes",
        "Record bytes that the topic may hold in memory, all its partitions together; the oldest go first.",
    ),
    TopicSetting("retention.ms", ConfigType.LONG, "604800000", None, "How long records are kept."),
    TopicSetting("segment.bytes", ConfigType.INT, "1073741824", "log.segment.bytes", "Size of a segment."),
    TopicSetting("segment.index.bytes", ConfigType.INT, "10485760", "log.index.size.max.bytes", "Size of an index."),
    TopicSetting("segment.jitter.ms", ConfigType.LONG, "0", None, "Segments end at random so much earlier."),
    TopicSetting("segment.ms", ConfigType.LONG, "604800000", None, "Time after which a segment ends."),
    TopicSetting(
        "unclean.leader.election.enable",
        ConfigType.BOOLEAN,
        "false",
        "unclean.leader.election.enable",
        "A replica that misses records may lead.",
    ),
)

NAMES = frozenset(setting.name for setting in TOPIC_SETTINGS)

INTERNAL_TOPIC_SETTINGS: Mapping[str, Mapping[str, str]] = {
    OFFSETS_TOPIC: {"cleanup.policy": "compact", "compression.type": "producer", "retention.bytes": "-1"},
    TRANSACTIONS_TOPIC: {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "retention.bytes": "-1",
        "unclean.leader.election.enable": "false",
    },
}
"""The settings of the coordinator's own topics that differ from the defaults, as in Kafka, except the segment size."""
