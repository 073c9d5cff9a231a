"""What the settings of a topic mean for its records in memory. Pure."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ..settings.table import LONG_MAX
from .setting_values import Overrides, list_items
from .settings import BY_NAME


class PolicyDefaults(Protocol):
    """The server's settings that are the defaults of topics."""

    @property
    def topic_retention_bytes(self) -> int: ...

    @property
    def message_max_bytes(self) -> int: ...


class TopicPolicy(NamedTuple):
    """The settings of a topic. LONG_MAX: no limit.

    ``overrides``: those that it was given. ``retention_bytes`` limits all partitions together,
    ``partition_retention_bytes`` each of them: as in Kafka, the limit that a topic was given is for a partition.
    """

    overrides: Overrides
    message_max_bytes: int
    retention_bytes: int
    partition_retention_bytes: int


def policy_of(overrides: Overrides, defaults: PolicyDefaults) -> TopicPolicy:
    """The policy of a topic with valid ``overrides``. A topic that is only compacted drops no records by size."""
    own_limit = overrides.get("retention.bytes")
    deletes = "delete" in list_items(overrides.get("cleanup.policy", BY_NAME["cleanup.policy"].default))
    return TopicPolicy(
        overrides,
        int(overrides.get("max.message.bytes", defaults.message_max_bytes)),
        defaults.topic_retention_bytes if deletes and own_limit is None else LONG_MAX,
        _limit(own_limit) if deletes else LONG_MAX,
    )


def _limit(text: str | None) -> int:
    """A limit whose negative values mean that there is none."""
    return LONG_MAX if text is None or int(text) < 0 else int(text)
