"""What the settings of a topic mean for its records in memory. Pure."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ..settings.rows import LONG_MAX, list_items
from .produced_times import TimestampLimits
from .setting_values import Overrides
from .settings import BY_NAME


class PolicyDefaults(Protocol):
    """The server's settings that are the defaults of topics."""

    @property
    def topic_retention_bytes(self) -> int: ...

    @property
    def message_max_bytes(self) -> int: ...


class CompactionDefaults(Protocol):
    """The server's settings that are the defaults of compacted topics. They can change at any time."""

    @property
    def log_cleaner_delete_retention_ms(self) -> int: ...

    @property
    def log_cleaner_min_cleanable_ratio(self) -> float: ...


class TopicPolicy(NamedTuple):
    """The settings of a topic. LONG_MAX: no limit.

    ``overrides``: those that it was given. ``retention_bytes`` limits all partitions together,
    ``partition_retention_bytes`` each of them: as in Kafka, the limit that a topic was given is for a partition.
    """

    overrides: Overrides
    message_max_bytes: int
    retention_bytes: int
    partition_retention_bytes: int
    retention_ms: int
    is_compacted: bool
    timestamps: TimestampLimits = TimestampLimits()


class CompactionPolicy(NamedTuple):
    """The settings of a compacted topic. Times in ms; ``min_dirty_ratio`` from 0 to 1."""

    min_lag_ms: int
    delete_retention_ms: int
    min_dirty_ratio: float


def policy_of(overrides: Overrides, defaults: PolicyDefaults) -> TopicPolicy:
    """The policy of a topic with valid ``overrides``. One that is only compacted drops no records by size or time."""
    own_limit = overrides.get("retention.bytes")
    cleanup = list_items(_text(overrides, "cleanup.policy"))
    deletes = "delete" in cleanup
    return TopicPolicy(
        overrides,
        int(overrides.get("max.message.bytes", defaults.message_max_bytes)),
        defaults.topic_retention_bytes if deletes and own_limit is None else LONG_MAX,
        _limit(own_limit) if deletes else LONG_MAX,
        _limit(_text(overrides, "retention.ms")) if deletes else LONG_MAX,
        "compact" in cleanup,
        TimestampLimits(
            _text(overrides, "message.timestamp.type") == "LogAppendTime",
            int(_text(overrides, "message.timestamp.before.max.ms")),
            int(_text(overrides, "message.timestamp.after.max.ms")),
        ),
    )


def compaction_policy_of(overrides: Overrides, defaults: CompactionDefaults) -> CompactionPolicy:
    """How to compact a topic with valid ``overrides``."""
    return CompactionPolicy(
        int(_text(overrides, "min.compaction.lag.ms")),
        int(overrides.get("delete.retention.ms", defaults.log_cleaner_delete_retention_ms)),
        float(overrides.get("min.cleanable.dirty.ratio", defaults.log_cleaner_min_cleanable_ratio)),
    )


def _text(overrides: Overrides, name: str) -> str:
    return overrides.get(name, BY_NAME[name].default)


def _limit(text: str | None) -> int:
    """A limit whose negative values mean that there is none."""
    return LONG_MAX if text is None or int(text) < 0 else int(text)
