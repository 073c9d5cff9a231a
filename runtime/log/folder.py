"""The data folder: its lock for one process at a time, and ``callboard.json`` with its cluster id and format.

``callboard.json`` is written once, with a checksum. The folder itself and the file ``.lock`` in it are locked while the
process runs, so the operating system frees the locks after a crash. If only ``.lock`` were locked, a second server
could start after that file was removed. A folder of a newer format is refused before anything in it is changed. A
folder of an older format is upgraded; older versions then refuse it.
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
from ..disk.disk import Disk, advice_for, is_full, is_no_file_error, read_file, replace_file, write_all
from .journal import FOLDER as JOURNAL
from .partition_counts import COUNT_FIELDS, PartitionCounts, repair_command
from .recovery.adopt import initial_counts, refuse_kafka_folder, refuse_unrecognized_files
from .recovery.clean_stop import EMPTY_NOTE, has_note, write_note
from .recovery.misplaced import check_counts, inferred_counts, list_partition_folders

FORMAT = 3
"""1: partitions and a journal. 2: also compacted segments with manifests, and the clean-stop note.

3: journal files have a salt in their names, tags in their frames, and the numbers of partitions in the first frame.
``callboard.json`` and the clean-stop note have checksums, and the note also has the numbers of partitions. The format
is raised when a folder is opened, before the first file of the new format is created. The folder may then have files
of both formats, which their names distinguish; a version that supports only format 2 refuses the folder.
"""

FORMAT_WITH_NOTE = 2
"""The first format in which a clean stop writes a note."""

FORMAT_WITH_CHECKSUM = 3
"""The first format with a checksum."""

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
"""Errors of file systems that cannot lock a folder. NFS, for example, locks only files open for writing."""

CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{22}")

log = get_logger("callboard.log")


class FolderInfo(NamedTuple):
    """The content of ``callboard.json``."""

    cluster_id: str
    offsets_partitions: int
    transactions_partitions: int  # 0 in a file of a version without transactions
    format: int = FORMAT

    @property
    def counts(self) -> PartitionCounts:
        return PartitionCounts(self.offsets_partitions, self.transactions_partitions)

    def as_fields(self) -> dict[str, Any]:
        """The fields of ``callboard.json``, in the current format."""
        return with_checksum({"format": FORMAT, "cluster_id": self.cluster_id, **self.counts.as_fields()})


def random_cluster_id(draw: Callable[[], uuid.UUID] = uuid.uuid4) -> str:
    """A UUID as 22 characters of base64url, as in Kafka. It never begins with a dash, for use in command lines."""
    while (text := base64.urlsafe_b64encode(draw().bytes)[:22].decode()).startswith("-"):
        pass
    return text


def write_empty_topics(disk: Disk, root: Path) -> None:
    """Write an empty ``topics.json`` for imported partitions, because a missing file counts as lost topics."""
    if disk.kind(root / TOPICS_NAME) == "nothing":
        replace_file(disk, root / TOPICS_NAME, b"{}\n")


class DataFolder:
    """An open data folder. The constructor creates or checks it, and locks it; ``close`` unlocks it.

    ``offsets_partitions`` and ``transactions_partitions`` apply only to a new folder. An existing folder keeps its
    stored numbers, as in Kafka, because a group's partition depends on them. They are checked before anything is
    written, see ``check_counts``. ``has_log``: False for a node of a cluster, whose log is in the cluster's store: its
    folder gets the numbers of the cluster. Raises StartError when the folder cannot be used.
    """

    def __init__(
        self,
        path: Path,
        offsets_partitions: int = DEFAULT_PARTITIONS,
        transactions_partitions: int = DEFAULT_PARTITIONS,
        *,
        disk: Disk | None = None,
        new_cluster_id: Callable[[], str] = random_cluster_id,
        has_log: bool = True,
    ) -> None:
        self.path = path
        self._disk = disk or Disk()
        self._has_log = has_log
        self.lock: FolderLock | None = None
        try:
            self._refuse_file()
            if self._read_info() is None:
                refuse_kafka_folder(self._disk, path)
                refuse_unrecognized_files(self._disk, path)
            self._create()
            self.lock = lock_folder(self._disk, path)
            self._disk.set_mode(self.lock.file_fd)  # other programs give their files the same mode, see modes.py
            requested = FolderInfo(new_cluster_id(), offsets_partitions, transactions_partitions)
            info = self._checked(requested)
        except OSError as error:
            self.close()
            if is_no_file_error(error):
                raise StartError(str(error.strerror)) from error
            file = f" ({error.filename})" if error.filename not in (None, str(path)) else ""
            raise StartError(
                f"{path}: {error.strerror or error}{file}, expected a folder to read and write; {advice_for(error)}, or"
                " give another data folder"
            ) from error
        except StartError:
            self.close()
            raise
        self.cluster_id, self.offsets_partitions, self.transactions_partitions, _ = info
        self._warn_of_other_counts(info, requested)

    def _warn_of_other_counts(self, info: FolderInfo, requested: FolderInfo) -> None:
        for name, stored, setting in zip(COUNT_FIELDS, info[1:3], requested[1:3], strict=True):
            if stored != setting:
                log.warning(
                    "stored number of partitions is used",
                    number=name,
                    stored=stored,
                    setting=setting,
                    folder=str(self.path),
                )

    def close(self) -> None:
        """Unlock the folder for other processes. A second call does nothing."""
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
                f"{self.path}: found a link to {self.path.readlink()}, which does not exist, expected a folder;"
                " mount its disk, or create that folder"
            )

    def _create(self) -> None:
        """Create the folder, with its name and those of all folders above it durable."""
        path = self.path.absolute()
        missing = [folder for folder in (path, *path.parents) if self._disk.kind(folder) == "nothing"]
        if missing:
            self._disk.make_folder(path)
            for folder in reversed(missing):
                self._disk.sync_folder(folder.parent)

    def _checked(self, requested: FolderInfo) -> FolderInfo:
        """The folder's checked description. It is written if it is missing or of an older format."""
        stored = self._read_info()
        info = stored or self._describe_new_folder(requested)
        if not self._has_log:
            info = self._with_counts_of_cluster(info, requested.counts)
        info = info._replace(transactions_partitions=info.transactions_partitions or requested.transactions_partitions)
        check_counts(self._disk, self.path, info.counts)
        if info == stored and info.format == FORMAT:
            return info
        if stored is None or info.format < FORMAT_WITH_NOTE:
            self._write_note_of_import()
        if stored is None and list_partition_folders(self._disk, self.path):
            write_empty_topics(self._disk, self.path)
        if info.format < FORMAT:
            log.info("data folder upgraded", folder=str(self.path), from_format=info.format, to_format=FORMAT)
        write_info(self._disk, self.path, info)
        return info._replace(format=FORMAT)

    def _with_counts_of_cluster(self, info: FolderInfo, counts: PartitionCounts) -> FolderInfo:
        """Raises StartError for a folder with a log of its own, which needs its numbers."""
        if info.counts == counts:
            return info
        if self._disk.kind(self.path / JOURNAL) == "folder" or list_partition_folders(self._disk, self.path):
            raise StartError(
                f"{self.path}: found the log of a single server with {info.counts}, expected the folder of a node of a "
                f"cluster with {counts}; give the node another data folder"
            )
        return info._replace(offsets_partitions=counts.offsets, transactions_partitions=counts.transactions)

    def _write_note_of_import(self) -> None:
        """Write an empty note for imported partitions; without it, the missing journal would count as damage."""
        if list_partition_folders(self._disk, self.path) and not has_note(self._disk, self.path):
            write_note(self._disk, self.path, EMPTY_NOTE)

    def _describe_new_folder(self, requested: FolderInfo) -> FolderInfo:
        """The description of a new folder or a copy of Kafka's. Raises StartError for one that lost the file."""
        offsets, transactions = initial_counts(self._disk, self.path, requested.counts)
        return requested._replace(offsets_partitions=offsets, transactions_partitions=transactions)

    def _read_info(self) -> FolderInfo | None:
        path = self.path / INFO_NAME
        if self._disk.kind(path) == "nothing":
            return None
        data = read_file(self._disk, path)
        try:
            return parse_info(path, data)
        except StartError:
            return parse_info(
                path, data, *inferred_counts(self._disk, self.path)
            )  # raises the same error, with the numbers in its advice


def create_data_folder(
    path: Path, counts: PartitionCounts, disk: Disk, new_cluster_id: Callable[[], str] = random_cluster_id
) -> None:
    """Make an empty folder a data folder, for a command that fills it. Raises OSError if the disk fails; StartError."""
    try:
        DataFolder(path, *counts, disk=disk, new_cluster_id=new_cluster_id).close()
    except StartError as error:
        if isinstance(error.__cause__, OSError):  # no fault of the folder, whose name the user does not know
            raise error.__cause__ from None
        raise


class FolderLock:
    """The lock of a data folder, held until ``close``.

    ``is_folder_locked``: the folder itself is locked too, so no other process can use it even if ``.lock`` was removed.
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

    def loss_reason(self) -> str:
        """Why another process may own the folder now; empty as long as ``.lock`` is the locked file."""
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
    """Lock a data folder and write this process's id to ``.lock``. Raises StartError when another process has it."""
    lock = FolderLock(disk, path, disk.open_folder(path), -1, False)
    try:
        lock.is_folder_locked = _lock_folder_itself(disk, lock.folder_fd, path)
        lock.file_fd = disk.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT)
        disk.lock(lock.file_fd)
        _write_holder(disk, lock.file_fd)
    except BlockingIOError:
        lock.close()
        raise _in_use_error(disk, path) from None
    except OSError:
        lock.close()
        raise
    return lock


def _lock_folder_itself(disk: Disk, fd: int, path: Path) -> bool:
    try:
        disk.lock(fd)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in NO_FOLDER_LOCK:
            raise
        log.info("file system cannot lock a folder, so only .lock is locked", folder=str(path), reason=str(error))
        return False
    return True


def _write_holder(disk: Disk, fd: int) -> None:
    """Write the process id for people to read; a full disk does not matter."""
    try:
        disk.truncate(fd, 0)
        write_all(disk, fd, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        if not is_full(error):
            raise


def _in_use_error(disk: Disk, path: Path) -> StartError:
    holder = "unknown"
    if LOCK_NAME in disk.names(path):
        holder = read_file(disk, path / LOCK_NAME)[:20].decode(errors="replace").strip() or holder
    if holder == str(os.getpid()):
        advice = "this one; stop the other coordinator in it"
    else:
        advice = "expected no other process; stop that one"
    return StartError(f"{path}: in use by process {holder}, {advice}, or choose another data folder")


def write_info(disk: Disk, root: Path, info: FolderInfo) -> None:
    """Write ``callboard.json``, durably. Raises OSError."""
    replace_file(disk, root / INFO_NAME, json.dumps(info.as_fields()).encode() + b"\n")


def parse_info(path: Path, data: bytes, offsets: int | None = None, transactions: int | None = None) -> FolderInfo:
    """The content of ``callboard.json``; StartError when it is damaged, not Callboard's, or of a newer format.

    ``offsets`` and ``transactions``: the numbers of partitions, where other files have them, for the error's advice.
    """
    advice = (
        f"put back the file as it was, or write a new one with {repair_command(path.parent, offsets, transactions)}"
    )
    try:
        fields = parse_json(data)
    except ValueError as error:
        raise StartError(f"{path}: found no JSON ({error}), expected {_expected()}; {advice}") from None
    format = fields.get("format") if isinstance(fields, dict) else None
    if type(format) is int and format > FORMAT:
        raise StartError(
            f"{path}: found format {format}, expected at most {FORMAT}; a newer version wrote this folder, start that"
            " version, or choose another data folder"
        )
    if type(format) is not int or not _is_complete(fields):
        raise StartError(f"{path}: found {str(fields)[:300]}, expected {_expected()}; {advice}")
    if format >= FORMAT_WITH_CHECKSUM or CHECKSUM in fields:
        _refuse_damaged(path, fields, advice)
    counts = fields["offsets_partitions"], fields.get("transactions_partitions", 0)
    return FolderInfo(fields["cluster_id"], *counts, format)


def _refuse_damaged(path: Path, fields: dict[str, Any], advice: str) -> None:
    stored, expected = fields.get(CHECKSUM), checksum_of(fields)
    if stored != expected:
        raise StartError(
            f"{path}: found {str(fields)[:300]}, expected {CHECKSUM} {expected!r} of these values; {advice}"
        )


def _is_complete(fields: dict[str, Any]) -> bool:
    cluster_id, partitions = fields.get("cluster_id"), fields.get("offsets_partitions")
    transactions = fields.get("transactions_partitions", 0)
    is_id_valid = isinstance(cluster_id, str) and CLUSTER_ID.fullmatch(cluster_id) is not None
    are_counts_valid = type(partitions) is int and partitions > 0 and type(transactions) is int and transactions >= 0
    return 1 <= fields["format"] <= FORMAT and is_id_valid and are_counts_valid


def _expected() -> str:
    return (
        f'{{"format": {FORMAT}, "cluster_id": 22 characters, "offsets_partitions": a number,'
        f' "transactions_partitions": a number, "{CHECKSUM}": 8 hexadecimal digits}}'
    )
