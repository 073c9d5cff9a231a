"""``callboard backup DATA DEST``: a consistent copy of a data folder, while a server runs on it or not.

Exit codes: 0 done; 1 the disk failed; 2 the command line or a folder is invalid, and there is no backup.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ....actors.text import format_count
from ...common.printing import print_hint, print_json, print_line
from ...disk.disk import Disk
from ...disk.modes import disk_like
from ...engine.clock import wall_clock_ms
from ..main import make_app
from ..new_folder import check_destination
from ..server_options import AsJson, run_on_disk

app = make_app()


@app.command("backup")
def backup(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="The data folder of a server, running or not.")],
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="The folder to create.")],
    as_json: AsJson = False,
) -> None:
    """Copy a data folder, also while a server runs on it: groups, offsets, transactions, topics and changed settings.

    Everything that was acknowledged before the command began is in the copy. `callboard restore` checks it and makes a
    data folder of it; the copy is a data folder itself, so that `callboard log` and `export` can read it.
    """
    from .snapshot import make_backup  # imports more than the help needs

    check_destination(destination, "DEST")
    contents = make_backup(
        Disk(), data, disk_like(data), destination, wall_clock_ms, lambda name: print_hint(f"copying {name}")
    )
    if as_json:
        print_json({**contents._asdict(), "files": {name: file._asdict() for name, file in contents.files.items()}})
        return
    counts = f"{format_count(len(contents.files), 'file')}, {format_count(contents.size, 'byte')}"
    print_line(f"{destination}: {counts}; has everything that was acknowledged before the backup began")


def main(argv: Sequence[str]) -> int:
    return run_on_disk(app, argv, "callboard backup")
