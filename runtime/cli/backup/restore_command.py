"""``callboard restore BACKUP DATA``: makes a data folder of a backup.

Exit codes: 0 done; 1 the disk failed; 2 the command line or a folder is invalid; 3 a file of the backup is damaged.
After 2 and 3 there is no data folder.
"""

from __future__ import annotations

import shutil
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
from ..server_options import run_on_disk
from .backup_command import check_destination
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
    from .copies import copy_file, sync_folders  # imports crc32c, which the help does not need

    disk, temporary = disk_like(backup), data.with_name(data.name + ".incomplete")
    shutil.rmtree(temporary, ignore_errors=True)
    disk.make_folder(temporary)
    damaged = {}
    for name, expected in contents.files.items():
        try:
            problem = describe_difference(copy_file(disk, backup / name, disk, temporary / name), expected)
        except FileNotFoundError:
            problem = "found no such file"
        if problem:
            damaged[name] = problem
    if damaged:
        shutil.rmtree(temporary)
        return damaged
    sync_folders(disk, temporary)
    disk.rename(temporary, data)
    disk.sync_folder(data.absolute().parent)
    return {}


def describe_difference(found: CopiedFile, expected: CopiedFile) -> str:
    """What is wrong with a file of a backup; empty if nothing is."""
    if found.size != expected.size:
        return f"found {found.size} bytes, expected {expected.size}"
    return "" if found == expected else f"found checksum {found.crc32c:08x}, expected {expected.crc32c:08x}"


def main(argv: Sequence[str]) -> int:
    return run_on_disk(app, argv, "callboard restore")
