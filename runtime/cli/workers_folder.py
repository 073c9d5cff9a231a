"""The folders of ``serve --workers`` in the data folder."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from ..common.errors import StartError
from ..disk.disk import Disk, advice_for
from ..settings.table import Options

STORE = "cluster"
SINGLE_SERVER_FILE = "callboard.json"
SINGLE_SERVER_USERS = "security.json"


def has_workers(data: Path) -> bool:
    """Whether a data folder is one of workers, so that it is served by workers even if only one is asked for.

    False for a folder that cannot be looked into: who opens it says why.
    """
    return os.path.isdir(data / STORE)


def worker_folder(options: Options, number: int) -> Path:
    return options.data / f"worker-{number}"


def make_store(disk: Disk, data: Path) -> None:
    """Create the folder of the store, unless it is there. Raises StartError."""
    try:
        disk.make_folder(data / STORE)
    except OSError as error:
        raise StartError(
            f"{error.filename}: {error.strerror}, expected a folder to read and write; {advice_for(error)}, or give"
            " another data folder"
        ) from error


def store_url(data: Path) -> str:
    return f"local://{quote(str((data / STORE).absolute()))}"


def check_folder(options: Options) -> None:
    """Raises StartError for the folder of a server without workers, whose log and users they would not see."""
    if os.path.exists(options.data / SINGLE_SERVER_FILE):
        raise StartError(
            f"the data folder '{options.data}' is one of a server without workers: start it without --workers, or "
            f"export it (callboard export --data {options.data}), start the workers with another --data, and import "
            "the file there (callboard import FILE)"
        )
    users = options.data / SINGLE_SERVER_USERS
    if os.path.exists(users):
        store = "URL" if options.cluster.url else store_url(options.data)
        raise StartError(
            f"'{users}' has users or ACLs, which workers do not read: remove it, and add users while the workers run, "
            f"with callboard users add --cluster {store}"
        )
