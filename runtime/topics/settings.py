"""The topic settings of Kafka 4.3 (TopicConfig): types, defaults and valid values.

A topic keeps and reports all settings that it is given. ``policy.py`` has those with an effect on records in memory.
The coordinator's own topics report that they are compacted.
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
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    """The valid texts of a STRING, and the valid items of a LIST; empty for any."""


TOPIC_SETTINGS = (
    TopicSetting(
        "cleanup.policy",
        ConfigType.LIST,
        "delete",
        "log.cleanup.policy",
        "Old records are deleted or compacted.",
        choices=("compact", "delete"),
    ),
    TopicSetting(
        "compression.gzip.level",
        ConfigType.INT,
        "-1",
        "compression.gzip.level",
        "Level of gzip.",
        minimum=-1,
        maximum=9,
    ),
    TopicSetting(
        "compression.lz4.level", ConfigType.INT, "9", "compression.lz4.level", "Level of lz4.", minimum=1, maximum=17
    ),
    TopicSetting(
        "compression.type",
        ConfigType.STRING,
        "producer",
        "compression.type",
        "Batches stay as they were sent.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    TopicSetting(
        "compression.zstd.level",
        ConfigType.INT,
        "3",
        "compression.zstd.level",
        "Level of zstd.",
        minimum=-131_072,
        maximum=22,
    ),
    TopicSetting(
        "delete.retention.ms",
        ConfigType.LONG,
        "86400000",
        "log.cleaner.delete.retention.ms",
        "How long tombstones are kept.",
        minimum=0,
    ),
    TopicSetting(
        "file.delete.delay.ms",
        ConfigType.LONG,
        "60000",
        "log.segment.delete.delay.ms",
        "Pause before a file is deleted.",
        minimum=0,
    ),
    TopicSetting(
        "flush.messages",
        ConfigType.LONG,
        _LONG_MAX,
        "log.flush.interval.messages",
        "Records between two syncs.",
        minimum=1,
    ),
    TopicSetting("flush.ms", ConfigType.LONG, _LONG_MAX, None, "Time between two syncs.", minimum=0),
    TopicSetting(
        "follower.replication.throttled.replicas", ConfigType.LIST, "", None, "Followers that are slowed down."
    ),
    TopicSetting(
        "index.interval.bytes",
        ConfigType.INT,
        "4096",
        "log.index.interval.bytes",
        "Bytes between index entries.",
        minimum=0,
    ),
    TopicSetting("leader.replication.throttled.replicas", ConfigType.LIST, "", None, "Leaders that are slowed down."),
    TopicSetting(
        "local.retention.bytes",
        ConfigType.LONG,
        "-2",
        "log.local.retention.bytes",
        "Bytes kept on local disks.",
        minimum=-2,
    ),
    TopicSetting(
        "local.retention.ms",
        ConfigType.LONG,
        "-2",
        "log.local.retention.ms",
        "How long local disks keep records.",
        minimum=-2,
    ),
    TopicSetting(
        "max.compaction.lag.ms",
        ConfigType.LONG,
        _LONG_MAX,
        "log.cleaner.max.compaction.lag.ms",
        "When compaction must come.",
        minimum=1,
    ),
    TopicSetting(
        "max.message.bytes",
        ConfigType.INT,
        "1048588",
        "message.max.bytes",
        "Largest record batch that is taken.",
        minimum=0,
    ),
    TopicSetting(
        "message.timestamp.after.max.ms",
        ConfigType.LONG,
        "3600000",
        "log.message.timestamp.after.max.ms",
        "How far a record's time may lie in the future.",
        minimum=0,
    ),
    TopicSetting(
        "message.timestamp.before.max.ms",
        ConfigType.LONG,
        _LONG_MAX,
        "log.message.timestamp.before.max.ms",
        "How far a record's time may lie in the past.",
        minimum=0,
    ),
    TopicSetting(
        "message.timestamp.type",
        ConfigType.STRING,
        "CreateTime",
        "log.message.timestamp.type",
        "Whether a record keeps its own time, or gets that of the append.",
        choices=("CreateTime", "LogAppendTime"),
    ),
    TopicSetting(
        "min.cleanable.dirty.ratio",
        ConfigType.DOUBLE,
        "0.5",
        "log.cleaner.min.cleanable.ratio",
        "When compaction is worth it.",
        minimum=0,
        maximum=1,
    ),
    TopicSetting(
        "min.compaction.lag.ms",
        ConfigType.LONG,
        "0",
        "log.cleaner.min.compaction.lag.ms",
        "When compaction may come.",
        minimum=0,
    ),
    TopicSetting(
        "min.insync.replicas",
        ConfigType.INT,
        "1",
        "min.insync.replicas",
        "Replicas that must have a record.",
        minimum=1,
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
    TopicSetting("retention.ms", ConfigType.LONG, "604800000", None, "How long records are kept.", minimum=-1),
    TopicSetting(
        "segment.bytes", ConfigType.INT, "1073741824", "log.segment.bytes", "Size of a segment.", minimum=1_048_576
    ),
    TopicSetting(
        "segment.index.bytes", ConfigType.INT, "10485760", "log.index.size.max.bytes", "Size of an index.", minimum=4
    ),
    TopicSetting("segment.jitter.ms", ConfigType.LONG, "0", None, "Segments end at random so much earlier.", minimum=0),
    TopicSetting("segment.ms", ConfigType.LONG, "604800000", None, "Time after which a segment ends.", minimum=1),
    TopicSetting(
        "unclean.leader.election.enable",
        ConfigType.BOOLEAN,
        "false",
        "unclean.leader.election.enable",
        "A replica that misses records may lead.",
    ),
)

BY_NAME = {setting.name: setting for setting in TOPIC_SETTINGS}

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
