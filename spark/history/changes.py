"""The notes of what was restored from a table: who did it, when and why, and what was there before.

JSON lines beside the table. The first line of a change is written, durably, before anything is changed, so that it can
be taken back however it ended; a second one says how that was.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...runtime.client.cluster import OffsetAndMetadata, TopicPartition
from ...runtime.common.errors import StartError
from ...runtime.disk.disk import write_all
from ...runtime.disk.modes import disk_like
from .table import FOLDER, HistoryTable

FILE_NAME = "changes.jsonl"
ID_CHARS = 8
RESTORE, UNDO = "restore", "undo"


class Written(NamedTuple):
    """One partition of a change; None for no offset."""

    place: TopicPartition
    before: OffsetAndMetadata | None
    after: OffsetAndMetadata | None


class Change(NamedTuple):
    """A restore, or its undo. ``of``: of what it is the undo. ``as_of``: the time that was restored, in ISO 8601.

    ``ended``: empty while it is under way, or where it died; otherwise "done", or what went wrong.
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
    offsets: tuple[Written, ...]
    ended: str = ""


def who_am_i() -> str:
    """User and machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def begin(table: HistoryTable, change: Change) -> None:
    """Note a change that is about to be made. OSError; then it must not be made."""
    offsets = [{"topic": one.place[0], "partition": one.place[1], **_values(one)} for one in change.offsets]
    fields = {name: value for name, value in change._asdict().items() if name != "ended"}
    _append(path_of(table), {**fields, "offsets": offsets})


def finish(table: HistoryTable, change_id: str, ended: str) -> None:
    """Note how it ended. OSError."""
    _append(path_of(table), {"change_id": change_id, "ended": ended})


def read(table: HistoryTable) -> dict[str, Change]:
    """All changes by their ids, oldest first. StartError for a file that is none of ours.

    A line that a crash has cut off at the end is passed over: its change was not begun.
    """
    path, found = path_of(table), dict[str, Change]()
    lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
    for number, line in enumerate(lines[:-1], start=1):
        try:
            _take(found, json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise StartError(f"{path}: line {number} is no note of a change ({error!r}); put back a copy") from None
    return found


def path_of(table: HistoryTable) -> Path:
    return table.path / FOLDER / FILE_NAME


def _take(found: dict[str, Change], fields: dict[str, Any]) -> None:
    if "ended" in fields:
        found[fields["change_id"]] = found[fields["change_id"]]._replace(ended=fields["ended"])
        return
    offsets = tuple(
        Written((one["topic"], one["partition"]), _offset(one["before"]), _offset(one["after"]))
        for one in fields.pop("offsets")
    )
    change = Change(**fields, offsets=offsets)
    found[change.change_id] = change


def _values(one: Written) -> Mapping[str, Any]:
    return {"before": one.before and one.before._asdict(), "after": one.after and one.after._asdict()}


def _offset(fields: dict[str, Any] | None) -> OffsetAndMetadata | None:
    return None if fields is None else OffsetAndMetadata(**fields)


def _append(path: Path, fields: Mapping[str, Any]) -> None:
    """One line, durable. What a crash has left of the last one is ended first."""
    disk, line = disk_like(path.parent), json.dumps(fields, ensure_ascii=False).encode() + b"\n"
    fd = disk.open(path, os.O_RDWR | os.O_CREAT)
    try:
        end = disk.size(fd)
        is_torn = end > 0 and disk.read(fd, 1, end - 1) != b"\n"
        if is_torn:
            whole = disk.read(fd, end, 0)
            end = whole.rfind(b"\n") + 1
            disk.truncate(fd, end)
        write_all(disk, fd, line, end)
        disk.sync(fd)
    finally:
        disk.close(fd)
    disk.sync_folder(path.parent)
