"""A table at a URL that ``keep`` and ``merge`` write to: each commit names all files with rows.

::

    TABLE/day=2026-11-21/log_partition=7/from_offset=1200/3f...09.parquet
    TABLE/_callboard/table.json
    TABLE/_callboard/commits/%020d.json            names the files, and the end offset of each log partition
    TABLE/_callboard/snapshots/3f...10.parquet
    TABLE/_callboard/changes/%020d.json            restores from the table, one line each

There is no lock, and nothing is renamed or written to twice. Files have random names, and belong to the table once a
commit names them. The commit n + 1 follows from the commit n, and creating its file fails if there is one. So of two
writers that begin at the same commit one succeeds, and the other changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from ...runtime.common.errors import StartError
from ...runtime.disk.disk import read_file
from ..columns import ALL_COLUMNS
from .metadata import FILES_VERSION, to_json
from .progress import DAY, HistoryProgress, Snapshot, commit_fields
from .remote import RemoteTable, TableUrl, file_of_rows, read_rows, read_snapshot
from .table import FOLDER, INFO_NAME, TableInfo


class FilesTable(RemoteTable):
    """A table at a URL with the layout FILES."""

    @classmethod
    def create(cls, location: TableUrl, info: TableInfo) -> FilesTable:  # type: ignore[override]
        """Create a table where there is nothing yet. Raises StartError otherwise, or if another process creates one."""
        names = location.disk.names(location.path)
        if names:
            raise StartError(
                f"{location.shown}: found {names[0]} and no {FOLDER}/{INFO_NAME}, expected a history or nothing; choose"
                " another URL"
            )
        if not _create_info(location, info):
            raise StartError(f"{location.shown}: another process has just created a table there; run it again")
        return cls(location, info)

    @contextmanager
    def exclusive_writer(self) -> Iterator[None]:
        """There is no lock; see ``commit``. Raises StartError if the file system would overwrite a commit."""
        if _create_info(self.location, self.info):
            raise StartError(
                f"{self.name}: the file system has overwritten a file that was to be created only if there is none;"
                " use one that obeys mode='create' of fsspec's pipe_file"
            )
        yield

    def commit(self, progress: HistoryProgress, added: list[dict[str, int]]) -> None:
        """Make these files the table's. Raises StartError if another process has committed since its progress."""
        fields = {**commit_fields(progress, added), "run": uuid4().hex}
        path, data = self.commit_file(progress), to_json(FILES_VERSION, fields)
        # A request whose answer was lost is sent again, and then finds its own file.
        is_other = not (self.location.create(path, data) or self._has(path, data))
        # The oldest commits are removed first. Without the one before, this number may have been in use.
        before = self.commit_file(progress._replace(number=progress.number - 1)).name
        if is_other or (progress.number > 1 and before not in self._disk.names(self._commits)):
            raise StartError(
                f"{self.name}: another process has written to it meanwhile (commit {progress.number}); nothing of this"
                " run was committed and nothing is lost: run it again"
            )

    def _has(self, path: Path, data: bytes) -> bool:
        """Whether a file has this content. After two requests at the same time there may be no file at all."""
        try:
            return read_file(self._disk, path) == data
        except FileNotFoundError:
            return False

    def rows(
        self, spark: SparkSession, after: Snapshot | None = None, progress: HistoryProgress | None = None
    ) -> DataFrame:
        sizes = (progress or self.progress()).files
        files = map(file_of_rows, sizes)
        later = (file.path for file in files if after is None or not file.day or file.day.isoformat() > after.day)
        return rows_of_files(spark, self, {path: sizes[path] for path in later})

    def snapshot_rows(self, spark: SparkSession, snapshot: Snapshot) -> DataFrame:
        return read_snapshot(spark, self.location.url, _absolute(self, snapshot.files))

    def days(self) -> list[str]:
        return sorted({str(file_of_rows(path).day) for path in self.progress().files})

    def remove_leftovers(self, progress: HistoryProgress, *, of_merges: bool = False) -> None:
        """Nothing: a file that no commit names is not read. See ``unnamed.remove_unnamed``."""


def rows_of_files(spark: SparkSession, table: FilesTable, files: Mapping[str, int | None]) -> DataFrame:
    """The rows of some files, as in ``HistoryProgress.files``; columns as in ``rows``."""
    return read_rows(spark, table.location.url, _absolute(table, files)).select(*ALL_COLUMNS, DAY)


def _absolute(table: FilesTable, files: Mapping[str, int | None]) -> dict[str, int | None]:
    return dict(zip(table.location.absolute(files), files.values(), strict=True))


def _create_info(location: TableUrl, info: TableInfo) -> bool:
    return location.create(location.path / FOLDER / INFO_NAME, to_json(FILES_VERSION, info._asdict()))
