"""The settings of the flight recorder's files."""

from __future__ import annotations

from dataclasses import dataclass

from .rows import LONG_MAX, row


@dataclass(frozen=True)
class RecorderRows:
    """A part of ``table.Settings``. Without slots, since several bases of a class cannot have them."""

    events_retention_bytes: int = row(
        67_108_864,
        "Records of rebalances are kept in the folder events of the data folder, up to so many bytes; then the oldest"
        " are deleted. 0: none are written. Not in Kafka.",
        0,
        LONG_MAX,
    )
    events_retention_ms: int = row(
        604_800_000, "Records of rebalances are deleted after this time. Not in Kafka.", 1, LONG_MAX
    )
