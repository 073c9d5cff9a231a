"""The data folder: one process at a time, and a file that says whose it is and in which format.

``callboard.json`` is written once, with a checksum. The folder itself and ``.lock`` in it are locked as long as the
process lives, so the system frees them after a crash. With ``.lock`` alone a second server could start when that file
was removed. A folder of a newer format is refused before anything in it is touched; one of an older format is taken
over, and from then on versions that do not know the newer one refuse it.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from ..common.errors import StartError
from ..common.json_files import parse_json
from ..common.logs import get_logger
from ..disk.checksum import FIELD as CHECKSUM
from ..disk.checksum import checksum_of, with_checksum
from ..disk.disk import Disk, is_full, is_symlink_error, read_file, replace_file, write_all
from .counts import COUNTS, Counts, repair_command
from .recovery.adopt import counts_of, refuse_kafkas, refuse_strangers
from .recovery.clean_stop import NO_NOTE, is_noted, leave_note
from .recovery.misplaced import check_counts, inferred_counts, partition_folders

FORMAT = 3
"""1: partitions and a journal. 2: also compacted segments with manifests, and the note of a clean stop.

3: journal files have a salt in their names, tags in their frames, and the numbers of partitions in the first one;
``callboard.json`` and the note of a clean stop have checksums, and the note has the numbers of partitions, too. The
format is raised when a folder is opened, before the first file of the new format is made: files of both formats may lie
side by side then, and are told apart by their names, but a version that knows format 2 alone refuses the folder.
"""

NOTED_FORMAT = 2
"""From this format on a clean stop leaves a note."""

CHECKED_FORMAT = 3
"""From this format on there is a checksum."""

INFO_NAME = "callboard.json"
TOPICS_NAME = "topics.json"
LOCK_NAME = ".lock"
DEFAULT_PARTITIONS = 50  # Kafka's offsets.topic.num.partitions and transaction.state.log.num.partitions

NO_FOLDER_LOCK = (
    errno.EBADF,
    errno.EINVAL,
    errno.EISDIR,
    errno.ENOLCK,
    errno.ENOSYS,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.EACCES,
)
"""What file systems answer that cannot lock a folder: NFS locks only what is open to be written."""

CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{22}")

log = get_logger("callboard.log")


class FolderInfo(NamedTuple):
    """What ``callboard.json`` holds."""

    cluster_id: str
    offsets_partitions: int
    transactions_partitions: int  # 0 in the file of a version before there were transactions
    format: int = FORMAT

    @property
    def counts(self) -> Counts:
        return Counts(self.offsets_partitions, self.transactions_partitions)

    def as_fields(self) -> dict[str, Any]:
        """As ``callboard.json`` holds it, in this version's format."""
        return with_checksum({"format": FORMAT, "cluster_id": self.cluster_id, **self.counts.as_fields()})


def random_cluster_id(draw: Callable[[], uuid.UUID] = uuid.uuid4) -> str:
    """A UUID in 22 characters of base64url, as Kafka writes it; never with a dash first, for command lines."""
    while (text := base64.urlsafe_b64encode(draw().bytes)[:22].decode()).startswith("-"):
        pass
    return text


def leave_no_topics(disk: Disk, root: Path) -> None:
    """Say that a folder with partitions from elsewhere has no topics; a served one without the file has lost them."""
    if disk.kind(root / TOPICS_NAME) == "nothing":
        replace_file(disk, root / TOPICS_NAME, b"{}\n")


class DataFolder:
    """An open data folder. Making one creates or checks and locks it; ``close`` unlocks it.

    ``offsets_partitions`` and ``transactions_partitions`` count only when the folder is new: afterwards the stored
    numbers win, as in Kafka, because a group's partition depends on them. They are checked before anything is written,
    see ``check_counts``. StartError when the folder cannot be used.
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
        self.lock: FolderLock | None = None
        try:
            self._refuse_file()
            if self._read_info() is None:
                refuse_kafkas(self._disk, path)
                refuse_strangers(self._disk, path)
            self._make()
            self.lock = lock_folder(self._disk, path)
            self._disk.set_mode(self.lock.file_fd)  # programs beside the server follow it: see modes.py
            asked = FolderInfo(new_cluster_id(), offsets_partitions, transactions_partitions)
            info = self._checked(asked)
        except OSError as error:
            self.close()
            if is_symlink_error(error):
                raise StartError(str(error.strerror)) from error
            advice = "make room" if is_full(error) else "change its owner"
            file = f" ({error.filename})" if error.filename not in (None, str(path)) else ""
            raise StartError(
                f"{path}: {error.strerror or error}{file}, expected a folder to read and write; {advice}, or choose"
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
        if self.lock is not None:
            self.lock.close()

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

    def _checked(self, asked: FolderInfo) -> FolderInfo:
        """The folder's description, written anew where it is missing or of an older format."""
        stored = self._read_info()
        info = stored or self._of_new_folder(asked)
        info = info._replace(transactions_partitions=info.transactions_partitions or asked.transactions_partitions)
        check_counts(self._disk, self.path, info.counts)
        if info == stored and info.format == FORMAT:
            return info
        if stored is None or info.format < NOTED_FORMAT:
            self._note_taken_over()
        if stored is None and partition_folders(self._disk, self.path):
            leave_no_topics(self._disk, self.path)
        if info.format < FORMAT:
            log.info("data folder taken over", folder=str(self.path), from_format=info.format, to_format=FORMAT)
        write_info(self._disk, self.path, info)
        return info._replace(format=FORMAT)

    def _note_taken_over(self) -> None:
        """Partition folders from elsewhere have neither a journal nor a note; of ours that would be damage."""
        if partition_folders(self._disk, self.path) and not is_noted(self._disk, self.path):
            leave_note(self._disk, self.path, NO_NOTE)

    def _of_new_folder(self, asked: FolderInfo) -> FolderInfo:
        """A folder without the file is new, or a copy of Kafka's; one in which we have been has lost it."""
        offsets, transactions = counts_of(self._disk, self.path, asked.counts)
        return asked._replace(offsets_partitions=offsets, transactions_partitions=transactions)

    def _read_info(self) -> FolderInfo | None:
        path = self.path / INFO_NAME
        if self._disk.kind(path) == "nothing":
            return None
        data = read_file(self._disk, path)
        try:
            return parse_info(path, data)
        except StartError:
            return parse_info(path, data, *inferred_counts(self._disk, self.path))  # the same error, with the numbers


class FolderLock:
    """Keeps other processes out of a data folder until ``close``.

    ``is_folder_locked``: the folder itself is locked, too; then nobody can be in it even if ``.lock`` was removed.
    ``folder_fd`` and ``file_fd``: the open folder, and ``.lock`` in it.
    """

    def __init__(self, disk: Disk, path: Path, folder_fd: int, file_fd: int, is_folder_locked: bool) -> None:
        self.is_folder_locked = is_folder_locked
        self.folder_fd = folder_fd
        self.file_fd = file_fd
        self._disk = disk
        self._path = path

    @property
    def fds(self) -> tuple[int, int]:
        return self.folder_fd, self.file_fd

    def loss(self) -> str:
        """Why the folder may not be this process's any more; empty as long as ``.lock`` names the locked file."""
        path = self._path / LOCK_NAME
        try:
            if self._disk.is_named(self.file_fd, path):
                return ""
            reason = "it was removed, moved or replaced while the folder was in use"
        except OSError as error:
            reason = str(error)
        return f"{path}: {reason}; another server may start in this folder, so this one stops"

    def close(self) -> None:
        """A second call does nothing."""
        for fd in self.fds:
            if fd != -1:
                self._disk.close(fd)
        self.folder_fd = self.file_fd = -1


def lock_folder(disk: Disk, path: Path) -> FolderLock:
    """Keep other processes out of a data folder; ``.lock`` in it says who does. StartError when one is in it."""
    lock = FolderLock(disk, path, disk.open_folder(path), -1, False)
    try:
        lock.is_folder_locked = _lock_itself(disk, lock.folder_fd, path)
        lock.file_fd = disk.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT)
        disk.lock(lock.file_fd)
        _note_holder(disk, lock.file_fd)
    except BlockingIOError:
        lock.close()
        raise _in_use(disk, path) from None
    except OSError:
        lock.close()
        raise
    return lock


def _lock_itself(disk: Disk, fd: int, path: Path) -> bool:
    try:
        disk.lock(fd)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in NO_FOLDER_LOCK:
            raise
        log.info("this file system cannot lock a folder, so .lock alone counts", folder=str(path), reason=str(error))
        return False
    return True


def _note_holder(disk: Disk, fd: int) -> None:
    """Only people read it, so a full disk does not matter."""
    try:
        disk.truncate(fd, 0)
        write_all(disk, fd, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        if not is_full(error):
            raise


def _in_use(disk: Disk, path: Path) -> StartError:
    holder = "unknown"
    if LOCK_NAME in disk.names(path):
        holder = read_file(disk, path / LOCK_NAME)[:20].decode(errors="replace").strip() or holder
    if holder == str(os.getpid()):
        found = "this one; stop the other coordinator in it"
    else:
        found = "expected no other process; stop that one"
    return StartError(f"{path}: in use by process {holder}, {found}, or choose another data folder")


def write_info(disk: Disk, root: Path, info: FolderInfo) -> None:
    """Write ``callboard.json``, durably. OSError."""
    replace_file(disk, root / INFO_NAME, json.dumps(info.as_fields()).encode() + b"\n")


def parse_info(path: Path, data: bytes, offsets: int | None = None, transactions: int | None = None) -> FolderInfo:
    """The content of ``callboard.json``; StartError when it is damaged, not ours, or of a newer format.

    ``offsets`` and ``transactions``: the numbers of partitions, where something else tells, for the error's advice.
    """
    advice = (
        f"put back the file as it was, or write a new one with {repair_command(path.parent, offsets, transactions)}"
    )
    try:
        fields = parse_json(data)
    except ValueError as error:
        raise StartError(f"{path}: found no JSON ({error}), expected {_expected()}; {advice}") from None
    found = fields.get("format") if isinstance(fields, dict) else None
    if type(found) is int and found > FORMAT:
        raise StartError(
            f"{path}: found format {found}, expected at most {FORMAT}; a newer version wrote this folder, start that"
            " version, or choose another data folder"
        )
    if type(found) is not int or not _is_complete(fields):
        raise StartError(f"{path}: found {str(fields)[:300]}, expected {_expected()}; {advice}")
    if found >= CHECKED_FORMAT or CHECKSUM in fields:
        _refuse_damaged(path, fields, advice)
    counts = fields["offsets_partitions"], fields.get("transactions_partitions", 0)
    return FolderInfo(fields["cluster_id"], *counts, found)


def _refuse_damaged(path: Path, fields: dict[str, Any], advice: str) -> None:
    found, expected = fields.get(CHECKSUM), checksum_of(fields)
    if found != expected:
        raise StartError(
            f"{path}: found {str(fields)[:300]}, expected {CHECKSUM} {expected!r} of these values; {advice}"
        )


def _is_complete(fields: dict[str, Any]) -> bool:
    cluster_id, partitions = fields.get("cluster_id"), fields.get("offsets_partitions")
    transactions = fields.get("transactions_partitions", 0)
    known_id = isinstance(cluster_id, str) and CLUSTER_ID.fullmatch(cluster_id) is not None
    known_counts = type(partitions) is int and partitions > 0 and type(transactions) is int and transactions >= 0
    return 1 <= fields["format"] <= FORMAT and known_id and known_counts


def _expected() -> str:
    return (
        f'{{"format": {FORMAT}, "cluster_id": 22 characters, "offsets_partitions": a number,'
        f' "transactions_partitions": a number, "{CHECKSUM}": 8 hexadecimal digits}}'
    )
