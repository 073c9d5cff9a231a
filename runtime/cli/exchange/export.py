"""``callboard export``: write committed offsets as a table, or the whole log to the folders of a stopped Kafka.

Exit codes: 0 done; 1 the server cannot be reached or refused, the disk failed, or a requested group has no offsets; 2
the command line or a folder is invalid, and nothing was changed; 3 the log is damaged, and each damage was printed.
With 3 a table is written without the unreadable records, and Kafka's folders are not changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ...client.errors import ClientError
from ...common.errors import StartError
from ...common.printing import print_error
from ..main import make_app
from ..options import Groups
from ..server_options import TimeoutS

FAILED_EXIT_CODE = 1

app = make_app()


@app.command("export")
def export(
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A data folder of a server, running or not, or of Kafka.")
    ] = None,
    bootstrap_server: Annotated[
        str | None,
        typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT", help="Or any server of Kafka's protocol."),
    ] = None,
    group: Groups = None,
    form: Annotated[str, typer.Option("--format", metavar="csv|json", help="The format of the table.")] = "csv",
    safe_csv: Annotated[
        bool,
        typer.Option(
            "--safe-csv",
            help="CSV for spreadsheets: an apostrophe before what looks like a formula.",
        ),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="File to write.  [default: standard output]")
    ] = None,
    kafka_dir: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="KDIR",
            help="Instead of a table: write the whole log to this log folder of a stopped Kafka; repeat it for each"
            " of its log.dirs.",
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="With --kafka-dir: replace offsets of Kafka, which are kept in another folder."),
    ] = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """Write committed offsets as a table: group, topic, partition, offset, leader_epoch, metadata, commit_time.

    A folder is only read; a server may be running on it. Offsets of open transactions are not exported.
    """
    from . import export_run  # imports more than the help needs

    if (data is None) == (bootstrap_server is None):
        raise StartError("expected what to export: --data DIR or --bootstrap-server HOST:PORT, and only one")
    if safe_csv and (kafka_dir or form != "csv"):
        raise StartError("--safe-csv is for CSV: leave out --format json and --kafka-dir")
    if kafka_dir:
        export_run.export_log(data, kafka_dir, replace, bool(group or output))
    elif replace:
        raise StartError("--replace is for --kafka-dir; a FILE is replaced without it")
    else:
        write = export_run.writer_of(form, safe_csv)
        export_run.export_table(data, bootstrap_server, list(dict.fromkeys(group or ())), write, output, timeout)


def main(argv: Sequence[str]) -> int:
    return run(app, argv, "callboard export")


def run(command: typer.Typer, argv: Sequence[str], name: str) -> int:
    """Run a command. Errors of the connection and the disk are printed as one line on standard error."""
    try:
        command(list(argv), prog_name=name)
    except ClientError as error:
        print_error(error)
        return FAILED_EXIT_CODE
    except OSError as error:
        from ...disk.disk import describe_failure  # not for the help

        print_error(describe_failure(error))
        return FAILED_EXIT_CODE
    return 0
