"""History: keeps every record of the offsets log in a table before compaction removes it, and queries that table.

- table.py: the table's folder, its metadata, and its progress for each log partition.
- metadata.py, progress.py: its files of JSON, and the state after a commit.
- row_folders.py, file_lists.py: the names of its folders, and the check that all files are there.
- keep.py: copies the records of closed segments into the table, each exactly once.
- merge.py: merges the files of a day and log partition.
- snapshot.py: what is left of the records at the end of a day.
- states.py: all offsets and their owners at a point in time, and the differences between two points.
- forget.py: accepts that rows are lost.
- opening.py: opens and creates tables, in folders and at URLs.
- files_table.py: a table at a URL, and how it is written to without a lock.
- creating.py: the operation that this relies on.
- write_files.py: writes the files of such a table; unnamed.py: removes those that no commit names.
- remote.py: reads a table at a URL, also a copy of one that was made in a folder.
- ranges.py: the offsets that a run copies, and their rows.
- restore.py: writes earlier offsets back through a running coordinator, and undoes that.
- changes.py: the journal of restores: the changes, their user and their reason.
"""

from __future__ import annotations

from ..extra import require_extra

require_extra()

from .keep import KeepResult, keep  # noqa: E402
from .merge import MergeResult, merge  # noqa: E402
from .opening import open_table  # noqa: E402
from .snapshot import take_snapshot  # noqa: E402
from .states import as_of, diff  # noqa: E402
from .table import HistoryTable  # noqa: E402

__all__ = [
    "HistoryTable",
    "KeepResult",
    "MergeResult",
    "as_of",
    "diff",
    "keep",
    "merge",
    "open_table",
    "take_snapshot",
]
