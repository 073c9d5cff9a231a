"""The history mark: how far the history table has copied the log. Compaction goes no further, so it loses no record.

One small file in the data folder holds the mark of all partitions. While it exists, a partition is compacted up to the
offset that the history has copied; a partition that is missing in the file has not been copied at all. After creating
the file, its writer waits for compactions that are about to take effect; later ones read the file under the same lock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...common.json_files import parse_json
from ...disk.checksum import verify_checksum, with_checksum
from ...disk.disk import Disk, read_file, replace_file
from ..manifest import FOLDER, ManifestError
from ..partition import TOPIC
from .publish import try_lock

FILE_NAME = "history.json"
VERSION = 2
"""1: without a checksum. 2: with one."""

POLL_INTERVAL_S = 0.05
LOCK_TIMEOUT_S = 120.0  # longer than creating a manifest, or publishing and collecting files, takes


class HistoryMark(NamedTuple):
    """The path of the history table, its id, and for each partition the first offset that it does not have."""

    table: str
    table_id: str
    taken_to: dict[int, int]


def read_history_mark(disk: Disk, data: Path) -> HistoryMark | None:
    """The mark in a data folder; None without a history. Raises ManifestError if the file is invalid, and OSError."""
    path = data / FILE_NAME
    try:
        content = read_file(disk, path)
    except FileNotFoundError:
        return None
    try:
        fields = parse_json(content)
        version = fields["version"]
        if version in (1, VERSION):
            verify_checksum(fields, VERSION)
            taken_to = {int(number): int(offset) for number, offset in fields["taken_to"].items()}
            return HistoryMark(str(fields["table"]), str(fields["table_id"]), taken_to)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestError(
            f"{path}: found no mark of a history ({error!r}), expected version {VERSION} of one; remove the file to"
            " have the log compacted without a history, or to start a history again"
        ) from None
    raise ManifestError(f"{path}: found version {version}, expected {VERSION}; use the newer version of Callboard")


def write_history_mark(disk: Disk, data: Path, mark: HistoryMark) -> None:
    """Write the mark durably. Raises OSError."""
    taken_to = {str(number): offset for number, offset in sorted(mark.taken_to.items())}
    fields = {"version": VERSION, **mark._asdict(), "taken_to": taken_to}
    replace_file(disk, data / FILE_NAME, json.dumps(with_checksum(fields), indent=1).encode() + b"\n")


def wait_for_compactions(disk: Disk, folders: Iterable[Path], pause: Callable[[float], None] = time.sleep) -> None:
    """Wait for compactions that were about to take effect when the mark was written: later ones respect it.

    ``folders``: the partition folders. ``pause`` sleeps for a number of seconds. Raises TimeoutError and OSError.
    """
    for folder in folders:
        _wait_for_lock(disk, folder, pause)


def remove_history_mark(disk: Disk, data: Path) -> bool:
    """Remove the mark, so the log is compacted without a history; False if there is none. Raises OSError."""
    with suppress(FileNotFoundError):
        disk.remove(data / FILE_NAME)
        disk.sync_folder(data)
        return True
    return False


def history_limit(disk: Disk, folder: Path) -> int | None:
    """The first offset of a partition that must not be compacted yet; None without a history."""
    topic, _, number = folder.name.rpartition("-")
    is_partition = topic == TOPIC and number.isascii() and number.isdecimal()
    mark = read_history_mark(disk, folder.parent) if is_partition else None
    return None if mark is None else mark.taken_to.get(int(number), 0)


def _wait_for_lock(disk: Disk, folder: Path, pause: Callable[[float], None]) -> None:
    for _ in range(round(LOCK_TIMEOUT_S / POLL_INTERVAL_S)):
        if FOLDER not in disk.names(folder):
            return
        with try_lock(disk, folder) as is_locked:
            if is_locked:
                return
        pause(POLL_INTERVAL_S)
    raise TimeoutError(
        f"{folder / FOLDER}: locked for {LOCK_TIMEOUT_S:.0f} s; find the process that compacts there, and try again"
    )
