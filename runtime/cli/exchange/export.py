"""``callboard export``: committed offsets as a table, or the whole log into the folders of a stopped Kafka.

Exit codes: 0 done; 1 the server is away or said no, the disk failed, or a group that was asked for has no offsets; 2
the command line or a folder makes no sense, and nothing was changed; 3 something in the log is damaged, which was
named. A table is then written without what could not be read, a Kafka's folders are left as they were.
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
from .kafka_out import give_up, in_words, make_all, prepared, put_in_place
from .parse import FORMATS
from .progress import tracked
from .rows import Row, in_order, write_csv, write_json, write_safe_csv
from .table import rows_of_folder, rows_of_server, sources

FAILED_EXIT_CODE = 1
DAMAGED_EXIT_CODE = 3

Writer = Callable[[Iterable[Row], Writable], None]

WRITERS: dict[str, Writer] = {"csv": write_csv, "json": write_json}
assert tuple(WRITERS) == FORMATS

app = make_app()


class Complaints:
    """What could not be read: each is said once, on standard error."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, what: object) -> None:
        self.count += 1
        print_error(what)


@app.command("export")
def export(
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A data folder, of a server that runs or not, or of Kafka.")
    ] = None,
    bootstrap_server: Annotated[
        str | None,
        typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT", help="Or any server of Kafka's protocol."),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(metavar="G", help="Only this group; may be repeated.  [default: all]")
    ] = None,
    form: Annotated[str, typer.Option("--format", metavar="csv|json", help="How to write them.")] = "csv",
    safe_csv: Annotated[
        bool,
        typer.Option(
            "--safe-csv",
            help="CSV for spreadsheets: an apostrophe before what looks like a formula.",
        ),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to.  [default: standard output]")
    ] = None,
    kafka_dir: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="KDIR",
            help="Instead of a table: lay the whole log into this log folder of a stopped Kafka; repeat it for each of"
            " its log.dirs.",
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="With --kafka-dir: also where Kafka has offsets, which are kept beside.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for a server's answer.")] = 10.0,
) -> None:
    """Write committed offsets as a table: group, topic, partition, offset, leader_epoch, metadata, commit_time.

    A folder is only read, also while a server runs on it. Transactions that are open have committed nothing.
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
    complaints, seen = Complaints(), _Seen()
    is_shown = output is None and sys.stdout.isatty()
    if bootstrap is not None:
        with Cluster(parse_address("--bootstrap-server", bootstrap, lowest_port=1), timeout_s) as cluster:
            names = sorted(groups or (one.group_id for one in cluster.groups()))
            rows = rows_of_server(cluster, tracked(names, "groups", to_terminal=is_shown))
            _write(seen.watch(rows), write, output)
    else:
        assert data is not None
        disk = Disk()
        partitions = tracked(sources(data, disk, complaints), "partitions", to_terminal=is_shown)
        rows = rows_of_folder(partitions, frozenset(groups), disk, complaints)
        _write(seen.watch(in_order(rows)), write, output)
    missing = [name for name in groups if name not in seen.groups]
    for name in missing:
        print_error(f"group '{name}' has no offsets")
    if complaints.count:
        raise typer.Exit(DAMAGED_EXIT_CODE)
    if missing:
        raise typer.Exit(FAILED_EXIT_CODE)


class _Seen:
    """The groups that have rows."""

    def __init__(self) -> None:
        self.groups: set[str] = set()

    def watch(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self.groups.add(row.group)
            yield row


def _write(rows: Iterator[Row], write: Writer, output: Path | None) -> None:
    with _opened(output) as out:
        write(rows, out)


@contextmanager
def _opened(output: Path | None) -> Iterator[Writable]:
    """Standard output; or a file, which is there when it is whole."""
    if output is None:
        yield csv_stream()
        sys.stdout.flush()
        return
    if output.is_dir() or not output.absolute().parent.is_dir():
        what = "a folder" if output.is_dir() else f"no folder {output.absolute().parent}"
        raise StartError(f"bad --output '{output}': found {what}, expected a file in a folder that is there")
    side = output.with_name(output.name + ".new")
    try:
        side.unlink(missing_ok=True)  # what an interrupted run has left
        with side.open("x", encoding="utf-8", newline="") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        side.replace(output)
    finally:
        side.unlink(missing_ok=True)


def export_log(data: Path | None, kafka_dirs: Sequence[Path], is_replacing: bool, has_more: bool) -> None:
    if data is None:
        raise StartError("--kafka-dir lays in the log of a folder: expected --data DIR, not a server")
    if has_more:
        raise StartError("--kafka-dir takes the whole log: leave out --group and --output")
    disk, complaints = Disk(), Complaints()
    with prepared(data, [path.resolve() for path in kafka_dirs], is_replacing, disk) as plan:
        try:
            made = make_all(tracked(plan.places, "partitions"), disk, complaints)
            if complaints.count:
                raise typer.Exit(DAMAGED_EXIT_CODE)
        except BaseException:
            give_up(plan, disk)
            raise
        kept = put_in_place(plan, disk)
    print_lines(in_words(plan, made, kept))


def main(argv: Sequence[str]) -> int:
    return run(app, argv, "callboard export")


def run(command: typer.Typer, argv: Sequence[str], name: str) -> int:
    """Run it; what a person can mend is one line on standard error."""
    try:
        command(list(argv), prog_name=name)
    except ClientError as error:
        print_error(error)
        return FAILED_EXIT_CODE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print_error(f"{where}{error.strerror or error}; check the disk and the folder's owner")
        return FAILED_EXIT_CODE
    return 0
