"""Removes what killed or slower writers have left at a table's URL, and old commits."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from .files_table import FilesTable
from .progress import HistoryProgress

GRACE = timedelta(hours=1)
"""How long files stay that no commit names, and old commits."""

COMMITS_KEPT = 100
SUFFIX = ".parquet"


def remove_unnamed(table: FilesTable) -> None:
    """Remove files that no commit names, and old commits, if they are older than the newest commit by ``GRACE``.

    A writer that began before the newest commit cannot commit any more, and others have written their files later than
    that commit. Times are those of the store. A file system without times keeps all files.
    """
    progress = table.progress()
    times = {Path(info.path): info.mtime for info in table.location.list_all()}
    newest = table.commit_file(progress)
    if (committed_at := times.get(newest)) is None:
        return
    old = sorted(path for path, time in times.items() if time is not None and time < committed_at - GRACE)
    commits = sorted(path for path in times if path.parent == newest.parent)[:-COMMITS_KEPT]
    named = set(table.location.absolute(named_files(progress)))
    for path in old:
        if path in commits or (path.suffix == SUFFIX and str(path) not in named):
            table.location.remove(str(path))


def named_files(progress: HistoryProgress) -> list[str]:
    """All files that a commit names, by their paths in the table."""
    replaced = [file.path for file in progress.replaced_files]
    return [*progress.files, *replaced, *(path for snapshot in progress.snapshots for path in snapshot.files)]
