"""``callboard log dump|stats|verify|repair``: show, check and repair the log in a data folder.

Exit codes: 0 no problems; 1 the disk could not be read; 2 the command line or the folder is invalid, and nothing was
done; 3 the log is damaged, and the damage was printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from ...common.printing import print_error
from ..main import make_app
from ..options import DataFolder, Groups

DISK_EXIT_CODE = 1

Log = Annotated[
    str | None, typer.Option("--log", metavar="offsets|transactions", help="Only this log.  [default: both]")
]
Partitions = Annotated[
    list[int] | None, typer.Option("--partition", metavar="N", help="Only this log partition; may be repeated.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

app = make_app("Show, check and repair an offsets log. All but repair only read, also while a server runs.")


@app.command("dump")
def dump_records(
    data: DataFolder,
    group: Groups = None,
    since: Annotated[str | None, typer.Option(metavar="ISO|7d", help="Only records of this time or later.")] = None,
    until: Annotated[str | None, typer.Option(metavar="ISO|7d", help="Only records before this time.")] = None,
    log: Log = None,
    partition: Partitions = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line, for programs.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with records that a server appends, until Ctrl-C.")
    ] = False,
) -> None:
    """Print the records, oldest first within each partition; damage is printed on standard error."""
    from . import actions  # imports more than the help needs

    actions.dump_records(data, group, since, until, log, partition, as_json=as_json, follow=follow)


@app.command("stats")
def print_stats(
    data: DataFolder,
    log: Log = None,
    partition: Partitions = None,
    top: Annotated[int, typer.Option(min=0, max=10_000, help="How many of the hottest keys to show.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show live and dead records, the keys that are written most often, and the time to load the log."""
    from . import actions  # imports more than the help needs

    actions.print_stats(data, log, partition, top, as_json=as_json)


@app.command("verify")
def verify_log(
    data: DataFolder,
    log: Log = None,
    partition: Partitions = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only checksums, offsets, partitions and the newest record of each key.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check every checksum and record, and that reading, loading and compacting give the same result."""
    from . import actions  # imports more than the help needs

    actions.verify_log(data, log, partition, is_quick=quick, as_json=as_json)


@app.command("repair")
def repair_log(
    data: DataFolder,
    log: Log = None,
    partition: Partitions = None,
    partitions_: Annotated[
        int | None,
        typer.Option("--partitions", min=1, metavar="N", help="Write a new callboard.json, for N partitions."),
    ] = None,
    transaction_partitions: Annotated[
        int | None, typer.Option(min=1, metavar="M", help="With --partitions: the number of transaction partitions.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Change the files. Without it, only show the changes.")
    ] = False,
) -> None:
    """Remove unreadable records while the server is stopped; the original files are kept.

    With --partitions and --transaction-partitions: write a new callboard.json, if every group and transactional id is
    in the partition that these numbers give.
    """
    from . import actions  # imports more than the help needs

    if partitions_ is None and transaction_partitions is None:
        actions.repair_log(data, log, partition, execute=execute)
    else:
        is_whole = log is None and not partition
        actions.write_new_info(data, partitions_, transaction_partitions, execute=execute, is_whole=is_whole)


def main(argv: Sequence[str]) -> int:
    try:
        app(list(argv), prog_name="callboard log")
    except OSError as error:
        from ...disk.disk import describe_failure  # not for the help

        print_error(describe_failure(error))
        return DISK_EXIT_CODE
    return 0
