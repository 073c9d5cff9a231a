"""How far a history has taken the log: compaction goes no further, so nothing is dropped before it is kept.

One small file in the data folder says it for all partitions. As long as it is there, a partition that it does not name
has nothing taken, and one that was taken up to an offset is compacted up to there. Whoever puts it there then waits for
compactions that are about to count; those that come later look for it at that instant, under the same lock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...common.json_files import parse_json
from ...disk.checksum import refuse_wrong, with_checksum
from ...disk.disk import Disk, read_file, replace_file
from ..manifest import FOLDER, ManifestError
from ..partition import TOPIC
from .publish import try_lock

FILE_NAME = "history.json"
VERSION = 2
"""1: without a checksum. 2: with one."""

PAUSE_S = 0.05
PATIENCE_S = 120.0  # longer than a manifest is put, or old files are published and collected


class HistoryMark(NamedTuple):
    """Where the history lies, whose id is ``table_id``, and the first offset of each partition that it has not."""

    table: str
    table_id: str
    taken_to: dict[int, int]


def read_history_mark(disk: Disk, data: Path) -> HistoryMark | None:
    """What is said in a data folder; None when there is no history. ManifestError when that cannot be told. OSError."""
    path = data / FILE_NAME
    try:
        content = read_file(disk, path)
    except FileNotFoundError:
        return None
    try:
        fields = parse_json(content)
        version = fields["version"]
        if version in (1, VERSION):
            refuse_wrong(fields, VERSION)
            taken_to = {int(number): int(offset) for number, offset in fields["taken_to"].items()}
            return HistoryMark(str(fields["table"]), str(fields["table_id"]), taken_to)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestError(
            f"{path}: found no mark of a history ({error!r}), expected version {VERSION} of one; remove the file to"
            " have the log compacted without a history, or to keep one again"
        ) from None
    raise ManifestError(f"{path}: found version {version}, expected {VERSION}; use the newer version of Callboard")


def write_history_mark(disk: Disk, data: Path, mark: HistoryMark) -> None:
    """Say how far the log was taken, durably. OSError."""
    taken_to = {str(number): offset for number, offset in sorted(mark.taken_to.items())}
    fields = {"version": VERSION, **mark._asdict(), "taken_to": taken_to}
    replace_file(disk, data / FILE_NAME, json.dumps(with_checksum(fields), indent=1).encode() + b"\n")


def wait_for_compactions(disk: Disk, folders: Iterable[Path], pause: Callable[[float], None] = time.sleep) -> None:
    """Wait for those that were about to count when the mark came: after this none counts that goes further.

    ``folders``: those of the partitions; ``pause`` waits for so many seconds. TimeoutError, OSError.
    """
    for folder in folders:
        _wait(disk, folder, pause)


def remove_history_mark(disk: Disk, data: Path) -> bool:
    """From now on the log is compacted without a history; False when it was already. OSError."""
    with suppress(FileNotFoundError):
        disk.remove(data / FILE_NAME)
        disk.sync_folder(data)
        return True
    return False


def taken_to(disk: Disk, folder: Path) -> int | None:
    """The first offset of a partition's folder that is not to be compacted yet; None without a history."""
    topic, _, number = folder.name.rpartition("-")
    mark = read_history_mark(disk, folder.parent) if topic == TOPIC and number.isdecimal() else None
    return None if mark is None else mark.taken_to.get(int(number), 0)


def _wait(disk: Disk, folder: Path, pause: Callable[[float], None]) -> None:
    for _ in range(round(PATIENCE_S / PAUSE_S)):
        if FOLDER not in disk.names(folder):
            return
        with try_lock(disk, folder) as alone:
            if alone:
                return
        pause(PAUSE_S)
    raise TimeoutError(f"{folder / FOLDER}: locked for {PATIENCE_S:.0f} s; look what compacts there, and try again")
