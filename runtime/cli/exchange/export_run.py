"""What ``callboard export`` does. ``typer.Exit`` ends it with an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from ...common.errors import StartError
from ...common.printing import Writable, csv_stream, print_error, print_lines
from ...disk.disk import Disk, describe_failure
from ...disk.output_file import new_output_file
from ..server_options import connect
from .kafka_export import (
    FINISHED,
    UNFINISHED,
    build_folders,
    describe_result,
    finish_export,
    prepare_export,
    swap_folders,
    undo_export,
)
from .parse import FORMATS
from .progress import track_progress
from .row_sources import find_partition_sources, read_folder_rows, read_server_rows
from .rows import Row, sort_rows, write_csv, write_json, write_safe_csv

FAILED_EXIT_CODE = 1
DAMAGED_EXIT_CODE = 3

NOT_RESTORED = (
    f"the old content of Kafka's folders could not be restored, and Kafka does not start while {UNFINISHED} is in one"
    " of them; run this command again when the disk works: it first restores them"
)
NOT_FINISHED = (
    f"everything was written, but Kafka does not start while {UNFINISHED} or {FINISHED} is in one of its folders; run"
    " this command again when the disk works"
)

Writer = Callable[[Iterable[Row], Writable], None]

WRITERS: dict[str, Writer] = {"csv": write_csv, "json": write_json}
assert tuple(WRITERS) == FORMATS


class ProblemPrinter:
    """Prints and counts the problems of an export, on standard error."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, problem: object) -> None:
        self.count += 1
        print_error(problem)


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
        with connect(bootstrap, timeout_s) as cluster:
            names = sorted(groups or (group.group_id for group in cluster.groups()))
            rows = read_server_rows(cluster, track_progress(names, "groups", to_terminal=prints_to_terminal))
            _write(seen_groups.record(rows), write, output)
    else:
        assert data is not None
        if output is not None:
            _refuse_output_in(data, output)
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


def _refuse_output_in(data: Path, output: Path) -> None:
    """Raise StartError for a file in the data folder: it could replace one of the log."""
    if Path(os.path.realpath(output)).is_relative_to(os.path.realpath(data)):
        raise StartError(
            f"bad --output '{output}': found a path in the data folder '{data}', expected one outside of it"
        )


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
    with new_output_file(output) as path, path.open("w", encoding="utf-8", newline="") as stream:
        yield stream


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
            swap_folders(plan, disk)
        except BaseException:
            try:
                undo_export(plan, disk)
            except OSError as error:
                print_error(f"{describe_failure(error)}; {NOT_RESTORED}")
            raise
        try:
            finish_export(plan, disk)
        except OSError as error:
            print_error(f"{describe_failure(error)}; {NOT_FINISHED}")
            raise typer.Exit(FAILED_EXIT_CODE) from None
    print_lines(describe_result(plan, result))
