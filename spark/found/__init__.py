"""Installed as ``pyspark_callboard``: Spark looks for modules of such names, and registers what it finds in them."""

from __future__ import annotations

from callboard.spark.source import CallboardSource as DefaultSource

__all__ = ["DefaultSource"]
