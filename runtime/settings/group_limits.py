"""The settings that limit the number of groups, the offsets of each, and their commits. Kafka has none of them."""

from __future__ import annotations

from dataclasses import dataclass

from .rows import INT_MAX, row


@dataclass(frozen=True)
class GroupLimitRows:
    """A part of ``table.Settings``. Without slots, since several bases of a class cannot have them."""

    groups_max: int = row(
        INT_MAX,
        "The maximum number of groups; new ones are refused above it: members with GROUP_MAX_SIZE_REACHED, commits with"
        " INVALID_COMMIT_OFFSET_SIZE. Not in Kafka.",
        1,
        INT_MAX,
    )
    offsets_max_per_group: int = row(
        INT_MAX,
        "The maximum number of offsets of a group; those of further partitions are refused with"
        " INVALID_COMMIT_OFFSET_SIZE. Not in Kafka.",
        1,
        INT_MAX,
    )
    offset_commit_rate_per_group: float = row(
        0.0,
        "OffsetCommits of a group a second, over at least ten seconds; clients of a group above it are throttled. 0: no"
        " limit. Not in Kafka.",
        0,
        INT_MAX,
    )
