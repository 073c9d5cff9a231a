"""``callboard export``: write committed offsets as a table, or the whole log to the folders of a stopped Kafka.

Exit codes: 0 done; 1 the server cannot be reached or refused, the disk failed, or a requested group has no offsets; 2
the command line or a folder is invalid, and nothing was changed; 3 the log is damaged, and each damage was printed.
With 3 a table is written without the unreadable records, and Kafka's folders are not changed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ...client.cluster import Cluster
from ...client.errors import ClientError
from ...common.errors import StartError
from ...common.printing import Writable, csv_stream, print_error, print_lines
from ...disk.disk import Disk
from ...settings.table import parse_address
from ..main import make_app
from ..options import Groups
from ..server_options import TimeoutS
from .kafka_export import build_folders, describe_result, prepare_export, swap_folders, undo_export
from .parse import FORMATS
from .progress import track_progress
from .row_sources import find_partition_sources, read_folder_rows, read_server_rows
from .rows import Row, sort_rows, write_csv, write_json, write_safe_csv

FAILED_EXIT_CODE = 1
DAMAGED_EXIT_CODE = 3

Writer = Callable[[Iterable[Row], Writable], None]

WRITERS: dict[str, Writer] = {"csv": write_csv, "json": write_json}
assert tuple(WRITERS) == FORMATS

app = make_app()


class ProblemPrinter:
    """Prints and counts the problems of an export, on standard error."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, problem: object) -> None:
        self.count += 1
        print_error(problem)


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
    if (data is None) == (bootstrap_server is None):
        raise StartError("expected what to export: --data DIR or --bootstrap-server HOST:PORT, and only one")
    if safe_csv and (kafka_dir or form != "csv"):
        raise StartError("--safe-csv is for CSV: leave out --format json and --kafka-dir")
    if kafka_dir:
        export_log(data, kafka_dir, replace, bool(group or output))
    elif replace:
        raise StartError("--replace is for --kafka-dir; a FILE is replaced without it")
    else:
        export_table(
            data, bootstrap_server, list(dict.fromkeys(group or ())), writer_of(form, safe_csv), output, timeout
        )


def writer_of(form: str, is_safe: bool) -> Writer:
    if form not in WRITERS:
        raise StartError(f"bad --format '{form}': expected {' or '.join(FORMATS)}")
    return write_safe_csv if is_safe else WRITERS[form]


def export_table(
    data: Path | None,
    bootstrap: str | None,
    groups: Sequence[str],
    write: Writer,
    output: Path | None,
    timeout_s: float,
) -> None:
    problem_printer, seen_groups = ProblemPrinter(), _GroupRecorder()
    prints_to_terminal = output is None and sys.stdout.isatty()
    if bootstrap is not None:
        with Cluster(parse_address("--bootstrap-server", bootstrap, lowest_port=1), timeout_s) as cluster:
            names = sorted(groups or (group.group_id for group in cluster.groups()))
            rows = read_server_rows(cluster, track_progress(names, "groups", to_terminal=prints_to_terminal))
            _write(seen_groups.record(rows), write, output)
    else:
        assert data is not None
        disk = Disk()
        partitions = track_progress(
            find_partition_sources(data, disk, problem_printer), "partitions", to_terminal=prints_to_terminal
        )
        rows = read_folder_rows(partitions, frozenset(groups), disk, problem_printer)
        _write(seen_groups.record(sort_rows(rows)), write, output)
    missing = [name for name in groups if name not in seen_groups.groups]
    for name in missing:
        print_error(f"group '{name}' has no offsets")
    if problem_printer.count:
        raise typer.Exit(DAMAGED_EXIT_CODE)
    if missing:
        raise typer.Exit(FAILED_EXIT_CODE)


class _GroupRecorder:
    """Records the groups that have rows."""

    def __init__(self) -> None:
        self.groups: set[str] = set()

    def record(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self.groups.add(row.group)
            yield row


def _write(rows: Iterator[Row], write: Writer, output: Path | None) -> None:
    with _open_output(output) as out:
        write(rows, out)


@contextmanager
def _open_output(output: Path | None) -> Iterator[Writable]:
    """Standard output, or a file that appears under its name only when it is complete."""
    if output is None:
        yield csv_stream()
        sys.stdout.flush()
        return
    if output.is_dir() or not output.absolute().parent.is_dir():
        problem = "a folder" if output.is_dir() else f"no folder {output.absolute().parent}"
        raise StartError(f"bad --output '{output}': found {problem}, expected a file in a folder that is there")
    temporary = output.with_name(output.name + ".new")
    try:
        temporary.unlink(missing_ok=True)  # left by an interrupted run
        with temporary.open("x", encoding="utf-8", newline="") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(output)
    finally:
        temporary.unlink(missing_ok=True)


def export_log(data: Path | None, kafka_dirs: Sequence[Path], is_replacing: bool, has_other_options: bool) -> None:
    if data is None:
        raise StartError("--kafka-dir writes the log of a folder: expected --data DIR, not a server")
    if has_other_options:
        raise StartError("--kafka-dir takes the whole log: leave out --group and --output")
    disk, problem_printer = Disk(), ProblemPrinter()
    with prepare_export(data, [path.resolve() for path in kafka_dirs], is_replacing, disk) as plan:
        try:
            result = build_folders(track_progress(plan.swaps, "partitions"), disk, problem_printer)
            if problem_printer.count:
                raise typer.Exit(DAMAGED_EXIT_CODE)
        except BaseException:
            undo_export(plan, disk)
            raise
        backups = swap_folders(plan, disk)
    print_lines(describe_result(plan, result, backups))


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
        prefix = f"{error.filename}: " if error.filename else ""
        print_error(f"{prefix}{error.strerror or error}; check the disk and the folder's owner")
        return FAILED_EXIT_CODE
    return 0
