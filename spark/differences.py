"""Differences of offsets, which clients choose. By default Spark raises an error for one that overflows."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1


def difference(later: Column, earlier: Column) -> Column:
    """``later - earlier``, or the nearest 64-bit number; null if one is null."""
    limit = F.when(later > earlier, LONG_MAX).when(later < earlier, LONG_MIN)
    return F.coalesce(F.try_subtract(later, earlier), limit)
