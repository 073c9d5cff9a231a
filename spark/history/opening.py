"""Opens and creates tables, in folders and at URLs."""

from __future__ import annotations

from pathlib import Path

from ...runtime.common.errors import StartError
from ...runtime.disk.disk import Disk
from ..files import is_url
from .files_table import FilesTable
from .remote import RemoteTable, TableUrl
from .table import FILES, FOLDER, INFO_NAME, HistoryTable, TableInfo, read_info, refuse_url

FORMAT = "parquet"
"""Of tables at URLs."""


def open_table(table: HistoryTable | str | Path, disk: Disk | None = None) -> HistoryTable:
    """The table in a folder or at a URL. ``disk`` is for folders.

    Raises StartError if there is none, or one that cannot be read.
    """
    if isinstance(table, HistoryTable):
        return table
    return _open_url(str(table)) if is_url(str(table)) else HistoryTable.open(table, disk)


def open_to_write(table: str | Path, disk: Disk | None = None) -> HistoryTable:
    """The same for a table that is going to change. Raises StartError for a copy, too."""
    opened = open_table(table, disk)
    if isinstance(opened, RemoteTable) and not isinstance(opened, FilesTable):
        raise StartError(
            f"{opened.name}: found a copy of a table that was made in a folder, which can only be read; give the"
            " folder, or another URL, where history keep makes a table"
        )
    return opened


def create_table(table: str | Path, info: TableInfo, disk: Disk) -> HistoryTable:
    """Create a table in a folder that is empty or does not exist, or at a URL. Raises StartError otherwise."""
    if not is_url(str(table)):
        return HistoryTable.create(Path(table), info, disk)
    if info.format != FORMAT:
        raise StartError(f"bad --format '{info.format}': expected {FORMAT}, the format of a table at a URL")
    return FilesTable.create(TableUrl(str(table)), info._replace(layout=FILES))


def table_exists(table: str | Path) -> bool:
    """Whether there is a table in a folder or at a URL. Raises StartError for a URL that cannot be opened."""
    if not is_url(str(table)):
        refuse_url(table)
        return (Path(table) / FOLDER / INFO_NAME).exists()
    location = TableUrl(str(table))
    return INFO_NAME in location.disk.names(location.path / FOLDER)


def table_name(table: str | Path) -> str:
    """The ``name`` of a table that may not exist yet."""
    return TableUrl(str(table)).shown if is_url(str(table)) else str(Path(table).absolute())


def _open_url(url: str) -> RemoteTable:
    location = TableUrl(url)
    info = read_info(location.path, location.disk, location.shown)
    if info.format != FORMAT:
        raise StartError(
            f"{location.shown}: found a table in the format {info.format}, expected {FORMAT}; read others in a local or"
            " shared folder"
        )
    return FilesTable(location, info) if info.layout == FILES else RemoteTable(location, info)
