"""``callboard import``: write offsets from a file through a coordinator, or make a data folder of Kafka's log.

Exit codes: 0 done, and the same values were read back; 1 the server cannot be reached, refused some groups (they are
named), or the disk failed; 2 the command line, the file or a folder is invalid, and nothing was written; 3 other values
were read back, or Kafka's log is damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ...common.errors import StartError
from ..main import make_app
from ..options import is_in_command_line
from ..server_options import DEFAULT_SERVER, TimeoutS
from .export import run
from .text_source import BYTES_MAX

app = make_app()


@app.command("import")
def import_(
    ctx: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="CSV or JSON of `callboard export`, or Kafka's CSV of offsets; - for standard input.",
        ),
    ] = None,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            metavar="HOST:PORT",
            envvar="CALLBOARD_BOOTSTRAP_SERVER",
            help="A server of the cluster.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing, show what would be written.")] = False,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="GROUP",
            help="Only these groups; may be repeated. For a file without groups: the group to write to.",
        ),
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", metavar="csv|json", help="[default: detected from the content]")
    ] = None,
    max_bytes: Annotated[int, typer.Option(min=1, metavar="N", help="Refuse a FILE with more bytes.")] = BYTES_MAX,
    kafka_dir: Annotated[
        Path | None,
        typer.Option(metavar="KDIR", help="Instead of a file: the log folder of a stopped Kafka, or a copy of it."),
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="The data folder to create.")] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many partitions Kafka's __consumer_offsets has.")
    ] = None,
    transaction_partitions: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The same for __transaction_state.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """Write the offsets in a file to groups without members, and read them back; or make a data folder of Kafka's logs.

    The whole file is checked before anything is written. Groups with members are refused, the others are written.
    """
    from . import import_run  # imports more than the help needs

    if kafka_dir is not None:
        if file is not None or is_in_command_line(ctx, "bootstrap_server") or data is None:
            raise StartError("--kafka-dir makes a data folder: expected --data DIR with it, no FILE and no server")
        import_run.import_log(kafka_dir, data, partitions, transaction_partitions, as_json=as_json)
        return
    if file is None:
        raise StartError("expected a FILE with offsets, or --kafka-dir KDIR")
    if data is not None or partitions is not None or transaction_partitions is not None:
        raise StartError("--data and the numbers of partitions are for --kafka-dir; a FILE goes to a server")
    import_run.import_table(
        file, bootstrap_server or DEFAULT_SERVER, dry_run, groups or [], form, as_json, timeout, max_bytes
    )


def main(argv: Sequence[str]) -> int:
    return run(app, argv, "callboard import")
