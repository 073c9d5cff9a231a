"""The data folder: one process at a time, and a file that says whose it is and in which format.

``callboard.json`` is written once; ``.lock`` is held as long as the process lives, so the system frees it after a
crash. A folder of a newer format is refused before anything in it is touched; one of an older format is taken over,
and from then on versions that do not know the newer one refuse it.
"""

from __future__ import annotations

import base64
import json
import os
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from ..errors import StartError
from ..logs import get_logger
from .adopt import counts_of, refuse_kafkas, refuse_strangers
from .disk import Disk, read_file, replace_file, write_all

FORMAT = 2
"""1: partitions and a journal. 2: also compacted segments with manifests, and the note of a clean stop."""

INFO_NAME = "callboard.json"
LOCK_NAME = ".lock"
DEFAULT_PARTITIONS = 50  # Kafka's offsets.topic.num.partitions and transaction.state.log.num.partitions

_CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{22}")

log = get_logger("callboard.log")


class FolderInfo(NamedTuple):
    """What ``callboard.json`` holds."""

    cluster_id: str
    offsets_partitions: int
    transactions_partitions: int  # 0 in the file of a version before there were transactions
    format: int = FORMAT


COUNTS = ("offsets_partitions", "transactions_partitions")
"""What is fixed when a folder is made: which partition something lies in depends on their number."""


def random_cluster_id(draw: Callable[[], uuid.UUID] = uuid.uuid4) -> str:
    """A UUID in 22 characters of base64url, as Kafka writes it; never with a dash first, for command lines."""
    while (text := base64.urlsafe_b64encode(draw().bytes)[:22].decode()).startswith("-"):
        pass
    return text


class DataFolder:
    """An open data folder. Making one creates or checks and locks it; ``close`` unlocks it.

    ``offsets_partitions`` and ``transactions_partitions`` count only when the folder is new: afterwards the stored
    numbers win, as in Kafka, because a group's partition depends on them. StartError when the folder cannot be used.
    """

    def __init__(
        self,
        path: Path,
        offsets_partitions: int = DEFAULT_PARTITIONS,
        transactions_partitions: int = DEFAULT_PARTITIONS,
        *,
        disk: Disk | None = None,
        new_cluster_id: Callable[[], str] = random_cluster_id,
    ) -> None:
        self.path = path
        self._disk = disk or Disk()
        self.lock_fd = -1
        try:
            self._refuse_file()
            if self._read_info() is None:
                refuse_kafkas(self._disk, path)
                refuse_strangers(self._disk, path)
            self._make()
            self._lock()
            asked = FolderInfo(new_cluster_id(), offsets_partitions, transactions_partitions)
            info = self._read_info() or self._write_info(self._of_new_folder(asked))
            if not info.transactions_partitions or info.format < FORMAT:
                info = self._take_over(info, transactions_partitions)
        except OSError as error:
            self.close()
            raise StartError(
                f"{path}: {error.strerror or error}, expected a folder to read and write; change its owner, or choose"
                " another data folder"
            ) from error
        except StartError:
            self.close()
            raise
        self.cluster_id, self.offsets_partitions, self.transactions_partitions, _ = info
        self._tell_of_counts(info, asked)

    def _tell_of_counts(self, info: FolderInfo, asked: FolderInfo) -> None:
        for name, stored, setting in zip(COUNTS, info[1:3], asked[1:3], strict=True):
            if stored != setting:
                log.warning(
                    "stored number of partitions wins",
                    number=name,
                    stored=stored,
                    setting=setting,
                    folder=str(self.path),
                )

    def close(self) -> None:
        """Let another process have the folder. A second call does nothing."""
        if self.lock_fd != -1:
            self._disk.close(self.lock_fd)
            self.lock_fd = -1

    def __enter__(self) -> DataFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse_file(self) -> None:
        kind = self._disk.kind(self.path)
        if kind == "file":
            raise StartError(f"{self.path}: found a file, expected a folder; choose another data folder")
        if kind == "broken link":
            raise StartError(
                f"{self.path}: found a link to {self.path.readlink()}, where nothing is, expected a folder; is its disk"
                " mounted? Else make that folder"
            )

    def _make(self) -> None:
        """The folder's own name must be as durable as what will be in it, and so must those of all above it."""
        path = self.path.absolute()
        missing = [one for one in (path, *path.parents) if self._disk.kind(one) == "nothing"]
        if missing:
            self._disk.make_folder(path)
            for one in reversed(missing):
                self._disk.sync_folder(one.parent)

    def _of_new_folder(self, asked: FolderInfo) -> FolderInfo:
        """A folder without the file is new, or a copy of Kafka's; one in which we have been has lost it."""
        content = json.dumps({"format": FORMAT, **asked._asdict()})
        offsets, transactions = counts_of(self._disk, self.path, dict(zip(COUNTS, asked[1:3], strict=True)), content)
        return asked._replace(offsets_partitions=offsets, transactions_partitions=transactions)

    def _read_info(self) -> FolderInfo | None:
        path = self.path / INFO_NAME
        if self._disk.kind(path) == "nothing":
            return None
        return parse_info(path, read_file(self._disk, path))

    def _write_info(self, info: FolderInfo) -> FolderInfo:
        fields = {name: value for name, value in info._asdict().items() if name != "format"}
        replace_file(self._disk, self.path / INFO_NAME, json.dumps({"format": FORMAT, **fields}).encode() + b"\n")
        return info._replace(format=FORMAT)

    def _take_over(self, info: FolderInfo, transactions_partitions: int) -> FolderInfo:
        """From here on only versions that know this format open the folder."""
        if info.format < FORMAT:
            log.info("data folder taken over", folder=str(self.path), from_format=info.format, to_format=FORMAT)
        count = info.transactions_partitions or transactions_partitions
        return self._write_info(info._replace(transactions_partitions=count))

    def _lock(self) -> None:
        self.lock_fd = lock_folder(self._disk, self.path)
        self._disk.set_mode(self.lock_fd)  # programs beside the server follow it: see modes.py


def lock_folder(disk: Disk, path: Path) -> int:
    """Keep other processes out of a data folder until the descriptor is closed; the file says who does. StartError."""
    fd = disk.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT)
    try:
        disk.lock(fd)
        disk.truncate(fd, 0)
        write_all(disk, fd, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        holder = disk.read(fd, 20, 0).decode(errors="replace").strip() or "unknown"
        disk.close(fd)
        if holder == str(os.getpid()):
            found = "this one; stop the other coordinator in it"
        else:
            found = "expected no other process; stop that one"
        raise StartError(f"{path}: in use by process {holder}, {found}, or choose another data folder") from None
    except OSError:
        disk.close(fd)
        raise
    return fd


def parse_info(path: Path, data: bytes) -> FolderInfo:
    """The content of ``callboard.json``; StartError when it is not ours, or of a newer format."""
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise StartError(f"{path}: found no JSON ({error}), expected {_expected()}; {_advice()}") from None
    found = fields.get("format") if isinstance(fields, dict) else None
    if type(found) is int and found > FORMAT:
        raise StartError(
            f"{path}: found format {found}, expected at most {FORMAT}; a newer version wrote this folder, start that"
            " version, or choose another data folder"
        )
    if type(found) is not int or not _is_complete(fields):
        raise StartError(f"{path}: found {str(fields)[:200]}, expected {_expected()}; {_advice()}")
    counts = fields["offsets_partitions"], fields.get("transactions_partitions", 0)
    return FolderInfo(fields["cluster_id"], *counts, found)


def _is_complete(fields: dict[str, Any]) -> bool:
    cluster_id, partitions = fields.get("cluster_id"), fields.get("offsets_partitions")
    transactions = fields.get("transactions_partitions", 0)
    known_id = isinstance(cluster_id, str) and _CLUSTER_ID.fullmatch(cluster_id) is not None
    known_counts = type(partitions) is int and partitions > 0 and type(transactions) is int and transactions >= 0
    return 1 <= fields["format"] <= FORMAT and known_id and known_counts


def _expected() -> str:
    return f'{{"format": {FORMAT}, "cluster_id": 22 characters, "offsets_partitions": a number}}'


def _advice() -> str:
    return "put back the file as it was, or choose another data folder"
