"""Accepts that files of a history are lost, so that the other rows can be read again."""

from __future__ import annotations

from pathlib import Path

from ...runtime.disk.disk import Disk
from .files_table import FilesTable
from .opening import open_to_write
from .progress import HistoryProgress, Snapshot
from .row_folders import committed_folders, count_folders
from .table import HistoryTable


def forget_lost(table: str | Path, disk: Disk | None = None) -> int:
    """Commit that what is gone is no part of a table any more: folders with rows and of snapshots, at a URL files.

    Returns their number. Raises StartError for a table that is not there or is being written to.
    """
    history_table = open_to_write(table, disk)
    with history_table.exclusive_writer():
        progress = history_table.progress()
        is_of_files = isinstance(history_table, FilesTable)
        next_progress = _files_left(history_table, progress) if is_of_files else _folders_left(history_table, progress)
        lost = _size(progress) - _size(next_progress)
        if lost:
            history_table.commit(next_progress._replace(number=progress.number + 1), [])
    return lost


def _size(progress: HistoryProgress) -> int:
    return sum((progress.folders or {}).values()) + len(progress.files) + len(progress.snapshots)


def _folders_left(table: HistoryTable, progress: HistoryProgress) -> HistoryProgress:
    def is_left(snapshot: Snapshot) -> bool:
        return table.snapshot_path(snapshot).exists()

    folders = progress.folders and dict(count_folders(committed_folders(table.row_paths(), progress)))
    return progress._replace(folders=folders, snapshots=tuple(filter(is_left, progress.snapshots)))


def _files_left(table: HistoryTable, progress: HistoryProgress) -> HistoryProgress:
    assert isinstance(table, FilesTable)
    paths = {str(info.path) for info in table.location.list_all()}

    def is_left(path: str) -> bool:
        return f"{table.path}/{path}" in paths

    snapshots = tuple(snapshot for snapshot in progress.snapshots if all(map(is_left, snapshot.files)))
    files = {path: size for path, size in progress.files.items() if is_left(path)}
    return progress._replace(files=files, snapshots=snapshots)
