"""Makes a new ``callboard.json`` for a folder with a missing or wrong one. The server must be stopped.

The given numbers of partitions are checked: every group and transactional id in the partition files and the journal
must be in the partition that follows from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ...common.errors import StartError
from ...common.json_files import parse_json
from ...disk.disk import Disk, read_file
from ...log.folder import CLUSTER_ID, FORMAT, INFO_NAME, FolderInfo, lock_folder, random_cluster_id
from ...log.journal import FOLDER as JOURNAL
from ...log.partition_counts import PartitionCounts, refuse_different_counts, repair_command
from ...log.recovery.misplaced import all_misplaced, inferred_counts, list_partition_folders, stored_counts

_ID_FIELD = re.compile(rb'"cluster_id": ?"([A-Za-z0-9_-]{22})"')


class NewInfo(NamedTuple):
    """The new content. ``keeps_cluster_id``: the cluster id is that of the old file."""

    info: FolderInfo
    keeps_cluster_id: bool

    def describe(self) -> str:
        """A line of output."""
        origin = "unchanged" if self.keeps_cluster_id else "new: the old one could not be read"
        return f"{INFO_NAME} with {self.info.counts}, cluster id {self.info.cluster_id} ({origin})"


@contextmanager
def prepare_info(disk: Disk, root: Path, counts: PartitionCounts) -> Iterator[NewInfo]:
    """Check a folder, and lock it until the end of the block. StartError when the counts do not fit, OSError."""
    if not root.is_dir():
        raise StartError(f"{root}: found no folder, expected the data folder of a server; check the path")
    names = disk.names(root)
    if not (INFO_NAME in names or JOURNAL in names or list_partition_folders(disk, root)):
        raise StartError(f"{root}: found neither {INFO_NAME} nor partitions, expected the data folder of a server")
    lock = lock_folder(disk, root)
    try:
        _refuse_newer(disk, root)
        for path, count in stored_counts(disk, root):
            refuse_different_counts(root, counts, path, count)
        _refuse_misplaced(disk, root, counts)
        old_id = _cluster_id(disk, root)
        yield NewInfo(FolderInfo(old_id or random_cluster_id(), *counts), bool(old_id))
    finally:
        lock.close()


def _refuse_newer(disk: Disk, root: Path) -> None:
    """Raise StartError for a folder of a newer version: it is not damaged."""
    try:
        file_format = parse_json(_read_old_info(disk, root))["format"]
    except (ValueError, KeyError, TypeError):
        return
    if type(file_format) is int and file_format == FORMAT + 1:
        raise StartError(
            f"{root / INFO_NAME}: found format {file_format}, expected at most {FORMAT}; if a newer version wrote this"
            " folder, use that version; else move this file away, then try again"
        )


def _refuse_misplaced(disk: Disk, root: Path, counts: PartitionCounts) -> None:
    for misplaced in all_misplaced(disk, root, counts):
        offsets, transactions = inferred_counts(disk, root)
        command = repair_command(root, offsets or counts.offsets, transactions or counts.transactions)
        advice = f"; use {command}" if offsets or transactions else ""
        raise StartError(f"{misplaced}: with {counts} it would not be found; nothing was changed{advice}")


def _cluster_id(disk: Disk, root: Path) -> str:
    """The cluster id in the old file; empty if it cannot be read."""
    match = _ID_FIELD.search(_read_old_info(disk, root))
    cluster_id = match[1].decode() if match else ""
    return cluster_id if CLUSTER_ID.fullmatch(cluster_id) else ""


def _read_old_info(disk: Disk, root: Path) -> bytes:
    return read_file(disk, root / INFO_NAME) if INFO_NAME in disk.names(root) else b""
