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

from ...client.cluster import Cluster
from ...client.errors import ClientError
from ...common.errors import StartError
from ...common.printing import print_error, print_json, print_line
from ...disk.disk import Disk
from ...disk.modes import file_mode_of
from ...log.format.errors import UnsupportedCompression
from ...settings.table import parse_address
from ..groups.tables import format_count
from ..main import make_app
from ..server_options import DEFAULT_SERVER, TimeoutS
from .export import ProblemPrinter, run
from .kafka_import import KafkaPartitionCounts, ReadBackDiffers
from .kafka_import import import_log as build_data_folder
from .parse import FORMATS, choose_groups, read_table
from .progress import track_progress
from .restore import GroupImportResult, describe_problems, import_groups
from .text_source import BYTES_MAX

DIFFERENT_EXIT_CODE = 3

app = make_app()


@app.command("import")
def import_(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="CSV or JSON of `callboard export`, or Kafka's CSV of offsets; - for standard input.",
        ),
    ] = None,
    bootstrap_server: Annotated[
        str | None, typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT", help="A server of the cluster.")
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
    if kafka_dir is not None:
        if file is not None or bootstrap_server is not None or data is None:
            raise StartError("--kafka-dir makes a data folder: expected --data DIR with it, no FILE and no server")
        import_log(kafka_dir, data, KafkaPartitionCounts(partitions, transaction_partitions), as_json)
        return
    if file is None:
        raise StartError("expected a FILE with offsets, or --kafka-dir KDIR")
    if data is not None or partitions is not None or transaction_partitions is not None:
        raise StartError("--data and the numbers of partitions are for --kafka-dir; a FILE goes to a server")
    import_table(file, bootstrap_server or DEFAULT_SERVER, dry_run, groups or [], form, as_json, timeout, max_bytes)


def import_table(
    file: Path,
    bootstrap: str,
    is_dry: bool,
    groups: Sequence[str],
    form: str | None,
    as_json: bool,
    timeout_s: float,
    max_bytes: int,
) -> None:
    if form is not None and form not in FORMATS:
        raise StartError(f"bad --format '{form}': expected {' or '.join(FORMATS)}")
    address = parse_address("--bootstrap-server", bootstrap, lowest_port=1)
    default_group = groups[0] if len(groups) == 1 else None
    offsets = choose_groups(read_table(file, ProblemPrinter(), form, default_group, max_bytes), groups)
    outcomes: list[GroupImportResult] = []
    try:
        with Cluster(address, timeout_s) as cluster:
            outcomes.extend(import_groups(cluster, offsets, track_progress(sorted(offsets), "groups"), is_dry))
    finally:
        print_results(outcomes, is_dry, as_json)
    if any(outcome.differences for outcome in outcomes):
        raise typer.Exit(DIFFERENT_EXIT_CODE)
    refused = sum(bool(outcome.refused) for outcome in outcomes)
    if refused:
        raise ClientError(f"{refused} of {format_count(len(offsets), 'group')} refused")


def print_results(outcomes: Sequence[GroupImportResult], is_dry: bool, as_json: bool) -> None:
    if as_json:
        print_json({"executed": not is_dry, "groups": [outcome._asdict() for outcome in outcomes]})
    else:
        print_line(summary([outcome for outcome in outcomes if outcome.written], is_dry))
    for problem in describe_problems(outcomes):
        print_error(problem)


def summary(written: Sequence[GroupImportResult], is_dry: bool) -> str:
    offsets = format_count(sum(outcome.written for outcome in written), "offset")
    totals = f"{offsets} of {format_count(len(written), 'group')}"
    change_counts = (
        f"{sum(outcome.new for outcome in written)} new, {sum(outcome.changed for outcome in written)} changed"
    )
    return (
        f"dry run: {totals} would be written: {change_counts}"
        if is_dry
        else f"{totals} written and read back: {change_counts}"
    )


def import_log(kafka: Path, data: Path, counts: KafkaPartitionCounts, as_json: bool) -> None:
    problem_printer, data = ProblemPrinter(), data.resolve()
    try:
        result = build_data_folder(
            kafka,
            data,
            counts,
            Disk(file_mode_of(data)),
            problem_printer,
            lambda all: track_progress(all, "partitions"),
        )
    except (ReadBackDiffers, UnsupportedCompression) as error:
        problem_printer(error)
        raise typer.Exit(DIFFERENT_EXIT_CODE) from None
    if as_json:
        print_json(result.as_json())
    else:
        for line in result.describe():
            print_line(line)
    if problem_printer.count:
        raise typer.Exit(DIFFERENT_EXIT_CODE)


def main(argv: Sequence[str]) -> int:
    return run(app, argv, "callboard import")
