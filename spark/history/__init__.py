"""History: keeps every record of the offsets log in a table before compaction removes it, and queries that table.

- table.py: the table's folder, its metadata, and its progress for each log partition.
- keep.py: copies the records of closed segments into the table, each exactly once.
- merge.py: merges the files of a day and log partition.
- snapshot.py: what is left of the records at the end of a day.
- states.py: all offsets and their owners at a point in time, and the differences between two points.
- remote.py: a copy of a table in an object store, for queries.
- restore.py: writes earlier offsets back through a running coordinator, and undoes that.
- changes.py: the journal of restores: the changes, their user and their reason.
"""

from __future__ import annotations

from ..extra import require_extra

require_extra()

from .keep import KeepResult, keep  # noqa: E402
from .merge import MergeResult, merge  # noqa: E402
from .snapshot import take_snapshot  # noqa: E402
from .states import as_of, diff  # noqa: E402
from .table import HistoryTable  # noqa: E402

__all__ = ["HistoryTable", "KeepResult", "MergeResult", "as_of", "diff", "keep", "merge", "take_snapshot"]
