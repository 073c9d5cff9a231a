"""The settings of groups of the consumer protocol (KIP-848), and which of them limit each other, as in Kafka."""

from __future__ import annotations

from dataclasses import dataclass

from .rows import INT_MAX, row, text_row

POLICIES = ("bidirectional", "downgrade", "upgrade", "disabled")


@dataclass(frozen=True, slots=True)
class ConsumerGroupRows:
    """A part of ``table.Settings``."""

    group_consumer_session_timeout_ms: int = row(
        45_000,
        "A member of the consumer protocol (KIP-848) is removed after this time without a heartbeat.",
        2,
        INT_MAX,
    )
    group_consumer_min_session_timeout_ms: int = row(
        45_000, "The shortest session timeout that a group of the consumer protocol may have.", 1, INT_MAX
    )
    group_consumer_max_session_timeout_ms: int = row(
        60_000, "The longest session timeout that a group of the consumer protocol may have.", 2, INT_MAX
    )
    group_consumer_heartbeat_interval_ms: int = row(
        5000, "Members of the consumer protocol are told to send a heartbeat so often.", 1, INT_MAX - 1
    )
    group_consumer_min_heartbeat_interval_ms: int = row(
        5000, "The shortest heartbeat interval that a group of the consumer protocol may have.", 1, INT_MAX - 1
    )
    group_consumer_max_heartbeat_interval_ms: int = row(
        15_000, "The longest heartbeat interval that a group of the consumer protocol may have.", 1, INT_MAX
    )
    group_consumer_max_size: int = row(
        INT_MAX, "The maximum number of members of a group of the consumer protocol.", 1, INT_MAX
    )
    group_consumer_assignment_interval_ms: int = row(
        1000,
        "A group of the consumer protocol gets a new target assignment at most once in this time (KIP-1263); 0 is no"
        " limit.",
        0,
        INT_MAX,
    )
    group_consumer_min_assignment_interval_ms: int = row(
        0, "The shortest assignment interval that a group of the consumer protocol may have.", 0, INT_MAX
    )
    group_consumer_max_assignment_interval_ms: int = row(
        15_000, "The longest assignment interval that a group of the consumer protocol may have.", 0, INT_MAX
    )
    group_consumer_regex_refresh_interval_ms: int = row(
        600_000, "The topics of a regular expression are looked up again after this time.", 10_000, INT_MAX
    )
    group_consumer_assignors: str = text_row(
        "uniform,range",
        "The assignors of groups of the consumer protocol. The first is the default of members that name none. Those of"
        " the program and of installed packages follow, unless they are named here.",
    )
    group_consumer_migration_policy: str = text_row(
        "bidirectional",
        "Whether a group that has members may change to the consumer protocol (upgrade), to the classic protocol"
        " (downgrade), both (bidirectional), or neither (disabled).",
        POLICIES,
    )


ORDERED = (
    ("group_min_session_timeout_ms", "group_max_session_timeout_ms"),
    *(
        pair
        for name in ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms")
        for low, own, high in [(f"group_consumer_min_{name}", f"group_consumer_{name}", f"group_consumer_max_{name}")]
        for pair in ((low, high), (low, own), (own, high))
    ),
)
"""Pairs of settings of which the first must not be above the second."""

BELOW = ("group_consumer_heartbeat_interval_ms", "group_consumer_session_timeout_ms")
"""The first must be below the second."""
