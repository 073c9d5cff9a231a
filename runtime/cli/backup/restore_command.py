"""``callboard restore BACKUP DATA``: makes a data folder of a backup.

Exit codes: 0 done; 1 the disk failed; 2 the command line or a folder is invalid; 3 a file of the backup is damaged.
After 2 and 3 there is no data folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ....actors.text import format_count
from ...common.printing import print_error, print_line
from ...disk.disk import Disk
from ...disk.modes import disk_like
from ..main import make_app
from ..new_folder import check_destination, make_new_folder
from ..server_options import run_on_disk
from .contents import BackupContents, CopiedFile, read_contents

DAMAGED_EXIT_CODE = 3

app = make_app()


@app.command("restore")
def restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="A folder made by `callboard backup`.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="The data folder to create.")],
) -> None:
    """Make a data folder of a backup. Each file is checked. A folder that is not empty is refused."""
    contents = read_contents(Disk(), backup)
    check_destination(data, "DATA")
    damaged = copy_backup(backup, contents, data)
    for name, problem in damaged.items():
        print_error(f"{backup / name}: {problem}")
    if damaged:
        raise typer.Exit(DAMAGED_EXIT_CODE)
    time = datetime.fromtimestamp(contents.began_ms / 1000, UTC).isoformat(timespec="seconds")
    print_line(f"{data}: {format_count(len(contents.files), 'file')} restored, as of {time}")


def copy_backup(backup: Path, contents: BackupContents, data: Path) -> dict[str, str]:
    """Copy and check the files, durably. Returns the problem of each damaged file; if there is one, nothing is left."""
    from .copies import sync_folders  # imports crc32c, which the help does not need

    disk = disk_like(backup)
    try:
        with make_new_folder(disk, data) as folder:
            _copy_files(disk, backup, contents, folder)
            sync_folders(disk, folder)
    except _Damaged as error:
        return error.problems
    return {}


class _Damaged(Exception):
    def __init__(self, problems: dict[str, str]) -> None:
        super().__init__()
        self.problems = problems


def _copy_files(disk: Disk, backup: Path, contents: BackupContents, folder: Path) -> None:
    """Raises _Damaged after all files were looked at."""
    from .copies import copy_file

    damaged = {}
    for name, expected in contents.files.items():
        try:
            problem = describe_difference(copy_file(disk, backup / name, disk, folder / name), expected)
        except FileNotFoundError:
            problem = "found no such file"
        if problem:
            damaged[name] = problem
    if damaged:
        raise _Damaged(damaged)


def describe_difference(found: CopiedFile, expected: CopiedFile) -> str:
    """What is wrong with a file of a backup; empty if nothing is."""
    if found.size != expected.size:
        return f"found {found.size} bytes, expected {expected.size}"
    return "" if found == expected else f"found checksum {found.crc32c:08x}, expected {expected.crc32c:08x}"


def main(argv: Sequence[str]) -> int:
    return run_on_disk(app, argv, "callboard restore")
