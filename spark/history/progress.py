"""The state of a history's table after a commit, and the fields of a commit's file."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from operator import index
from pathlib import Path
from typing import Any, NamedTuple

from ...runtime.common.errors import StartError
from .metadata import parse_fields

DAY, FROM_OFFSET, LOG_PARTITION = "day", "from_offset", "log_partition"
PARTITION_COLUMNS = (DAY, LOG_PARTITION, FROM_OFFSET)
"""The columns that are folder names."""


class ReplacedFolder(NamedTuple):
    """A folder whose rows are in a merged one. ``at_ms``: the time of the merge, in ms since 1970."""

    day: str
    log_partition: int
    from_offset: int
    at_ms: int

    @property
    def relative_path(self) -> str:
        return f"{DAY}={self.day}/{LOG_PARTITION}={self.log_partition}/{FROM_OFFSET}={self.from_offset}"


class ReplacedFile(NamedTuple):
    """A file whose rows are in a merged one, by its path in the table. ``at_ms``: as of ``ReplacedFolder``."""

    path: str
    at_ms: int


class Snapshot(NamedTuple):
    """The state at the end of a day (UTC, ISO 8601). ``number``: the commit that made it.

    ``files``: its files with the layout FILES, as of ``HistoryProgress``.
    """

    day: str
    number: int
    records: int
    files: Mapping[str, int | None] = {}


class HistoryProgress(NamedTuple):
    """The state after a commit. ``taken_to``: for each log partition the first offset that is not in the table.

    ``number`` counts the commits. ``complete_since_ms``: the history is complete from this time on, in ms since 1970;
    compaction had removed records that were superseded earlier. 0 if it is complete from the beginning. ``replaced``:
    folders that merges have replaced, and that still exist. ``snapshots``: by day. ``folders``: the number of folders
    with rows by log partition, without replaced ones; None if an older version has made the commit.

    With the layout FILES: ``files`` are those with rows, their sizes in bytes by their paths in the table (None if an
    older version has written it), and ``replaced_files`` those that merges have replaced, and that still exist.
    """

    number: int
    taken_to: dict[int, int]
    complete_since_ms: int
    at_ms: int
    replaced: tuple[ReplacedFolder, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    folders: dict[int, int] | None = None
    files: Mapping[str, int | None] = {}
    replaced_files: tuple[ReplacedFile, ...] = ()

    def snapshot_before(self, day: date) -> Snapshot | None:
        """The last snapshot of a day before this one."""
        earlier = [snapshot for snapshot in self.snapshots if date.fromisoformat(snapshot.day) < day]
        return earlier[-1] if earlier else None


NO_PROGRESS = HistoryProgress(0, {}, 0, 0)


def commit_fields(progress: HistoryProgress, added: list[dict[str, int]]) -> dict[str, Any]:
    """The fields of a commit's file."""
    taken_to = {str(number): offset for number, offset in sorted(progress.taken_to.items())}
    return {**progress._asdict(), "taken_to": taken_to, "took": added}


def parse_progress(file: Path, fields: dict[str, Any]) -> HistoryProgress:
    """Raises StartError for wrong values."""
    try:
        fields["number"] = index(fields["number"])
        fields["taken_to"] = {int(number): int(offset) for number, offset in fields["taken_to"].items()}
        if (folders := fields.setdefault("folders", None)) is not None:
            fields["folders"] = {int(number): index(count) for number, count in folders.items()}
        fields["replaced"] = tuple(ReplacedFolder(*folder) for folder in fields.get("replaced", ()))
        fields["snapshots"] = tuple(
            Snapshot(str(date.fromisoformat(snapshot[0])), *snapshot[1:3], *map(_parse_files, snapshot[3:]))
            for snapshot in fields.get("snapshots", ())
        )
        fields["files"] = _parse_files(fields.get("files", {}))
        fields["replaced_files"] = tuple(ReplacedFile(*replaced) for replaced in fields.get("replaced_files", ()))
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        raise StartError(f"{file}: found no commit of a history ({error!r}); restore a copy of this file") from None
    progress: HistoryProgress = parse_fields(file, HistoryProgress, fields)
    return progress


def _parse_files(files: dict[str, int] | list[str]) -> dict[str, int | None]:
    """Older versions have written a list, without sizes."""
    if not isinstance(files, dict):
        return dict.fromkeys(files)
    return {path: None if size is None else index(size) for path, size in files.items()}
