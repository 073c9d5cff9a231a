"""The names of the folders with rows of a table, and which of them a commit covers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import date
from pathlib import Path

from ...runtime.common.errors import StartError
from .file_lists import WITHOUT_COPY
from .progress import DAY, FROM_OFFSET, LOG_PARTITION, HistoryProgress

ROW_FOLDERS_OF_DAY = f"{LOG_PARTITION}=*/{FROM_OFFSET}=*"
_ROW_FOLDER = re.compile(rf"{DAY}=([^/]*)/{LOG_PARTITION}=([0-9]+)/{FROM_OFFSET}=(-?[0-9]+)")
NO_DAY = "__HIVE_DEFAULT_PARTITION__"
"""The day of records without a valid time, as Spark names the folder."""


def parse_day(text: str) -> date | None:
    """The day in a folder's name; None for records without a valid time, which have no day."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def is_row_folder(path: str) -> bool:
    """Whether a path in a table is that of a folder with rows."""
    return _ROW_FOLDER.fullmatch(path) is not None


def parse_row_folder(path: Path) -> tuple[str, int, int]:
    """The day, log partition and first offset of a folder with rows. Raises StartError for a foreign name."""
    match = _ROW_FOLDER.fullmatch("/".join(path.parts[-3:]))
    if match is None or (match[1] != NO_DAY and parse_day(match[1]) is None):
        raise StartError(
            f"{path}: found a folder that callboard history has not written, expected names as"
            f" {DAY}=2026-11-21/{LOG_PARTITION}=7/{FROM_OFFSET}=1200; move it away"
        )
    return match[1], int(match[2]), int(match[3])


def is_merged(path: Path) -> bool:
    """Whether a merge has written a folder of rows."""
    return path.name.partition("=")[2].startswith("-")


def is_covered(path: Path, progress: HistoryProgress) -> bool:
    """Whether a commit covers the rows in a folder, which start at its ``from_offset``, or are those of a merge."""
    _, number, first = parse_row_folder(path)
    return -first <= progress.number if first < 0 else first < progress.taken_to.get(number, 0)


def committed_folders(paths: Iterable[Path], progress: HistoryProgress) -> list[Path]:
    """Those whose rows belong to the history."""
    replaced = {folder.relative_path for folder in progress.replaced}
    return [path for path in paths if is_covered(path, progress) and "/".join(path.parts[-3:]) not in replaced]


def next_folders(paths: Iterable[Path], newest: HistoryProgress, following: HistoryProgress) -> dict[int, int]:
    """The ``folders`` of the commit that follows the newest one: those of its progress, and the new ones of ``paths``.

    Folders that are gone still count.
    """
    paths = list(paths)
    before, now = (count_folders(committed_folders(paths, progress)) for progress in (newest, following))
    expected = before if following.folders is None else Counter(following.folders)
    return {number: expected[number] + now[number] - before[number] for number in sorted({*expected, *now})}


def check_count(committed: Iterable[Path], progress: HistoryProgress, table: str) -> None:
    """Raise StartError if the folders with committed rows of all days are more or fewer than there were."""
    counts = count_folders(committed)
    for number, expected in sorted((progress.folders or {}).items()):
        if (found := counts[number]) != expected:
            change = f"put copies of others back, {WITHOUT_COPY}" if found < expected else "move foreign ones away"
            raise StartError(
                f"{table}: found {found} folders {DAY}=*/{LOG_PARTITION}={number}/* with committed rows, expected"
                f" {expected} by commit {progress.number}; {change}"
            )


def count_folders(paths: Iterable[Path]) -> Counter[int]:
    """The number of folders by log partition."""
    return Counter(parse_row_folder(path)[1] for path in paths)
