"""The journal of restores from a table: user, time, reason, changed offsets, and the offsets before.

It is a file of JSON lines in the table's folder; at a URL each line is a file. The first line of a change is durable
before any offset is changed, so that every change can be undone, even an interrupted one. A second line records the
result. Each line has a checksum.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ...runtime.client.cluster import OffsetAndMetadata, TopicPartition
from ...runtime.common.errors import StartError
from ...runtime.disk.checksum import FIELD as CHECKSUM
from ...runtime.disk.checksum import verify_checksum, with_checksum
from ...runtime.disk.disk import Disk, read_file, write_all
from ...runtime.disk.modes import disk_like
from .files_table import FilesTable
from .table import FOLDER, HistoryTable

FILE_NAME = "changes.jsonl"
ID_CHARS = 8
POLL_INTERVAL_S = 0.01
LOCK_TIMEOUT_S = 30.0  # much longer than one line takes
RESTORE, UNDO = "restore", "undo"


class OffsetChange(NamedTuple):
    """The offset of one partition before and after a change; None for no offset."""

    topic_partition: TopicPartition
    before: OffsetAndMetadata | None
    after: OffsetAndMetadata | None


class Change(NamedTuple):
    """A restore, or an undo. The fields are the keys of the file.

    ``what``: "restore" or "undo". ``of``: the id of the change that an undo reverts. ``as_of``: the restored time, in
    ISO 8601. ``at``, ``who``: when and by whom the change was made. ``ended``: "done", or the error; empty while the
    change runs, or if it was interrupted.
    """

    change_id: str
    what: str
    group: str
    source: str
    as_of: str
    at: str
    who: str
    reason: str
    server: str
    of: str
    offsets: tuple[OffsetChange, ...]
    ended: str = ""


def current_user() -> str:
    """USER@HOST of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user id has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def record_start(table: HistoryTable, change: Change) -> None:
    """Record a change before it is made. Raises OSError; the change must then not be made."""
    offsets = [
        {"topic": offset.topic_partition[0], "partition": offset.topic_partition[1], **_values_as_json(offset)}
        for offset in change.offsets
    ]
    fields = {name: value for name, value in change._asdict().items() if name != "ended"}
    _append(table, {**fields, "offsets": offsets})


def record_end(table: HistoryTable, change_id: str, result: str) -> None:
    """Record the result of a change. Raises OSError."""
    _append(table, {"change_id": change_id, "ended": result})


def read_changes(table: HistoryTable) -> dict[str, Change]:
    """All changes by their ids, oldest first. Raises StartError if the file cannot be parsed.

    A torn last line is ignored: its change was not started.
    """
    changes: dict[str, Change] = {}
    for place, line in _read_lines(table):
        try:
            _apply_line(changes, _parse_line(line))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise StartError(f"{place} is not a change ({error!r}); restore a copy of this file") from None
    return changes


def changes_path(table: HistoryTable) -> Path:
    return table.path / FOLDER / FILE_NAME


def _parse_line(line: bytes) -> dict[str, Any]:
    """The fields of a line. Lines of older versions have no checksum. Raises ValueError and what ``dict`` raises."""
    fields = json.loads(line)
    if CHECKSUM in fields:
        verify_checksum(fields, 0)
        del fields[CHECKSUM]
    return dict(fields)


def _apply_line(changes: dict[str, Change], fields: dict[str, Any]) -> None:
    if fields.keys() == {"change_id", "ended"}:
        changes[fields["change_id"]] = changes[fields["change_id"]]._replace(ended=fields["ended"])
        return
    offsets = tuple(
        OffsetChange((item["topic"], item["partition"]), _offset(item["before"]), _offset(item["after"]))
        for item in fields.pop("offsets")
    )
    change = Change(**fields, offsets=offsets)
    changes[change.change_id] = change


def _values_as_json(offset: OffsetChange) -> Mapping[str, Any]:
    return {"before": offset.before and offset.before._asdict(), "after": offset.after and offset.after._asdict()}


def _offset(fields: dict[str, Any] | None) -> OffsetAndMetadata | None:
    return None if fields is None else OffsetAndMetadata(**fields)


def _read_lines(table: HistoryTable) -> list[tuple[str, bytes]]:
    """Each line, and where it is."""
    if isinstance(table, FilesTable):
        return [(str(path), read_file(table.location.disk, path)) for path in _line_files(table)]
    path = changes_path(table)
    lines = read_file(Disk(follows_links=True), path).split(b"\n")[:-1] if path.exists() else []
    return [(f"{path}: line {number}", line) for number, line in enumerate(lines, start=1)]


def _append(table: HistoryTable, fields: Mapping[str, Any]) -> None:
    line = json.dumps(with_checksum(fields)).encode() + b"\n"  # texts may have halves of surrogate pairs: all is ASCII
    if isinstance(table, FilesTable):
        _append_file(table, line)
    else:
        _append_line(changes_path(table), line)


def _append_file(table: FilesTable, line: bytes) -> None:
    """Create the file after the last one."""
    files = _line_files(table)
    number = int(files[-1].stem) + 1 if files else 0
    while not table.location.create(_lines_folder(table) / f"{number:020d}.json", line):
        number += 1


def _line_files(table: FilesTable) -> list[Path]:
    """In order, without those that are not complete yet."""
    folder = _lines_folder(table)
    return [folder / name for name in table.location.disk.names(folder) if not name.startswith(".")]


def _lines_folder(table: FilesTable) -> Path:
    return changes_path(table).with_suffix("")


def _append_line(path: Path, line: bytes) -> None:
    """Append one line durably. A torn last line, left by a crash, is removed first."""
    disk = disk_like(path.parent)
    fd = disk.open(path, os.O_RDWR | os.O_CREAT)
    try:
        _wait_for_lock(disk, fd, path)
        end = disk.size(fd)
        is_torn = end > 0 and disk.read(fd, 1, end - 1) != b"\n"
        if is_torn:
            content = disk.read(fd, end, 0)
            end = content.rfind(b"\n") + 1
            disk.truncate(fd, end)
        write_all(disk, fd, line, end)
        disk.sync(fd)
    finally:
        disk.close(fd)
    disk.sync_folder(path.parent)


def _wait_for_lock(disk: Disk, fd: int, path: Path) -> None:
    """Lock the file until it is closed: two restores at once must not write to the same place. Raises TimeoutError."""
    for _ in range(round(LOCK_TIMEOUT_S / POLL_INTERVAL_S)):
        with suppress(BlockingIOError):
            disk.lock(fd)
            return
        time.sleep(POLL_INTERVAL_S)
    raise TimeoutError(f"{path}: locked for {LOCK_TIMEOUT_S:.0f} s; find the process that has it open, and try again")
