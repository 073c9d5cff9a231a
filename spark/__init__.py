"""The offsets log in Spark: a data source, compaction, history and analysis.

Requires the extra ``pip install 'callboard[spark]'``, and Java 17.
"""

from __future__ import annotations

try:
    from .offsets import read_groups, read_offsets
    from .source import register
except ModuleNotFoundError as error:
    library = (error.name or "").partition(".")[0]
    if library not in ("pyspark", "pyarrow", "numpy"):
        raise
    raise ModuleNotFoundError(
        f"callboard.spark needs {library}, which is not installed; install it with: pip install 'callboard[spark]'",
        name=library,
    ) from error

__all__ = ["read_groups", "read_offsets", "register"]
