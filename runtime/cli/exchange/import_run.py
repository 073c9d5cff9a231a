"""What ``callboard import`` does. ``typer.Exit`` ends it with an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from ....actors.text import format_count
from ...client.errors import ClientError
from ...common.errors import StartError
from ...common.printing import print_error, print_json, print_line
from ...disk.disk import Disk
from ...disk.modes import file_mode_of
from ...log.format.errors import UnsupportedCompression
from ..server_options import connect
from .export_run import ProblemPrinter
from .kafka_import import KafkaPartitionCounts, ReadBackDiffers
from .kafka_import import import_log as build_data_folder
from .parse import FORMATS, choose_groups, read_table
from .progress import track_progress
from .restore import GroupImportResult, describe_problems, import_groups

DIFFERENT_EXIT_CODE = 3


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
    cluster = connect(bootstrap, timeout_s)  # which checks the address; it connects later
    default_group = groups[0] if len(groups) == 1 else None
    offsets = choose_groups(read_table(file, ProblemPrinter(), form, default_group, max_bytes), groups)
    outcomes: list[GroupImportResult] = []
    try:
        with cluster:
            outcomes.extend(import_groups(cluster, offsets, track_progress(sorted(offsets), "groups"), is_dry))
    except (ClientError, KeyboardInterrupt):
        if outcomes:
            print_results(outcomes, is_dry, as_json)
        raise
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


def import_log(
    kafka: Path, data: Path, partitions: int | None, transaction_partitions: int | None, *, as_json: bool
) -> None:
    problem_printer, data = ProblemPrinter(), data.resolve()
    try:
        result = build_data_folder(
            kafka,
            data,
            KafkaPartitionCounts(partitions, transaction_partitions),
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
