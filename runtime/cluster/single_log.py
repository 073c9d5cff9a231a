"""Refuses the data folder of a single server for a node of a cluster, which would not see its groups."""

from __future__ import annotations

from pathlib import Path

from ..common.errors import StartError
from ..disk.disk import Disk, read_file
from ..log.folder import INFO_NAME, parse_info
from ..log.journal import FOLDER, journal_names
from ..log.recovery.misplaced import list_partition_folders
from .register import Register


def refuse_log_of_single_server(disk: Disk, folder: Path, register: Register | None) -> None:
    """``register``: the cluster's, None before there is one. Raises StartError and OSError.

    A cluster that was imported from the folder has its cluster id, and everything that is in it.
    """
    if not _has_log(disk, folder):
        return
    cluster_id = parse_info(folder / INFO_NAME, read_file(disk, folder / INFO_NAME)).cluster_id
    if register is None or register.cluster_id != cluster_id:
        raise StartError(
            f"the data folder '{folder}' has the log of a single server, which a node of a cluster does not read: give "
            "the node another data folder; callboard cluster import makes a cluster of this one in an empty store"
        )


def _has_log(disk: Disk, folder: Path) -> bool:
    """Files of partitions, or a journal that was not emptied by a clean stop."""
    return bool(list_partition_folders(disk, folder) or journal_names(disk.names(folder / FOLDER)))
