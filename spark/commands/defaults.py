"""Defaults of the questions about an offsets log."""

from __future__ import annotations

FORECAST_DAYS = 14
GAP_MINUTES = 10.0
RETENTION_MINUTES = 10_080
"""Kafka's offsets.retention.minutes."""

STORM_GENERATIONS = 3
STORM_MINUTES = 1.0
WITHIN_DAYS = 7.0
ZOMBIE_DAYS = 7.0
