"""A new ``callboard.json`` for a folder that has lost its own, or has a wrong one. The server must be stopped.

The numbers of partitions are not believed: every group and transactional id in the partition files and the journal must
lie where they put it.
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
    """What is to be written. ``has_old_id``: the cluster id is that of the file before."""

    info: FolderInfo
    has_old_id: bool

    def in_words(self) -> str:
        """A line for a person."""
        origin = "as it was" if self.has_old_id else "new: that of the file before could not be read"
        return f"{INFO_NAME} with {self.info.counts}, cluster id {self.info.cluster_id} ({origin})"


@contextmanager
def new_info(disk: Disk, root: Path, counts: PartitionCounts) -> Iterator[NewInfo]:
    """Check a folder, and keep servers off it until the end of the block. StartError when it does not fit, OSError."""
    if not root.is_dir():
        raise StartError(f"{root}: found no folder, expected the data folder of a server; check the path")
    names = disk.names(root)
    if not (INFO_NAME in names or JOURNAL in names or list_partition_folders(disk, root)):
        raise StartError(f"{root}: found neither {INFO_NAME} nor partitions, expected the data folder of a server")
    lock = lock_folder(disk, root)
    try:
        _refuse_newer(disk, root)
        for path, found in stored_counts(disk, root):
            refuse_different_counts(root, counts, path, found)
        _refuse_misplaced(disk, root, counts)
        old_id = _cluster_id(disk, root)
        yield NewInfo(FolderInfo(old_id or random_cluster_id(), *counts), bool(old_id))
    finally:
        lock.close()


def _refuse_newer(disk: Disk, root: Path) -> None:
    """A folder that a newer version wrote is not damaged."""
    try:
        found = parse_json(_old(disk, root))["format"]
    except (ValueError, KeyError, TypeError):
        return
    if type(found) is int and found == FORMAT + 1:
        raise StartError(
            f"{root / INFO_NAME}: found format {found}, expected at most {FORMAT}; if a newer version wrote this"
            " folder, use that version; else move this file away, then try again"
        )


def _refuse_misplaced(disk: Disk, root: Path, counts: PartitionCounts) -> None:
    for misplaced in all_misplaced(disk, root, counts):
        offsets, transactions = inferred_counts(disk, root)
        command = repair_command(root, offsets or counts.offsets, transactions or counts.transactions)
        known = f"; what fits is {command}" if offsets or transactions else ""
        raise StartError(f"{misplaced}: with {counts} it would not be found; nothing was changed{known}")


def _cluster_id(disk: Disk, root: Path) -> str:
    """That of the file before, as far as it can be read; empty if it cannot."""
    match = _ID_FIELD.search(_old(disk, root))
    found = match[1].decode() if match else ""
    return found if CLUSTER_ID.fullmatch(found) else ""


def _old(disk: Disk, root: Path) -> bytes:
    return read_file(disk, root / INFO_NAME) if INFO_NAME in disk.names(root) else b""
