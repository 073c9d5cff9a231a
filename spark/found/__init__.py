"""Installed as ``pyspark_callboard``: Spark imports modules with this prefix and registers their ``DefaultSource``."""

from __future__ import annotations

from callboard.spark.source import CallboardSource as DefaultSource

__all__ = ["DefaultSource"]
