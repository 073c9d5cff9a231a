"""``callboard import``: offsets from a file through a coordinator, or a whole log out of a Kafka's folders.

Exit codes: 0 done, and read back the same; 1 the server is away, or refused some groups, which were named, or the disk
failed; 2 the command line, the file or a folder makes no sense, and nothing was written; 3 what was read back differs,
or something in Kafka's log is damaged.
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
from ..groups.show import counted
from ..main import make_app
from .export import Complaints, run
from .kafka_in import Counts, ReadBackDiffers
from .kafka_in import import_log as make_folder
from .parse import FORMATS, choose_groups, read_table
from .progress import tracked
from .restore import Outcome, problems, write_all
from .source import BYTES_MAX

DIFFERENT_EXIT_CODE = 3
HERE = "127.0.0.1:9092"

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
            "--groups",
            "--group",
            metavar="A,B",
            help="Only these groups; may be repeated. For a file without groups the one that it is for.",
        ),
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", metavar="csv|json", help="[default: as the file looks]")
    ] = None,
    max_bytes: Annotated[int, typer.Option(min=1, metavar="N", help="Refuse a FILE that has more bytes.")] = BYTES_MAX,
    from_kafka_logs: Annotated[
        Path | None,
        typer.Option(metavar="KDIR", help="Instead of a file: the log folder of a stopped Kafka, or a copy of it."),
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="The data folder to make of it.")] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many partitions Kafka's __consumer_offsets has.")
    ] = None,
    transaction_partitions: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The same for __transaction_state.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for a server's answer.")] = 10.0,
) -> None:
    """Write offsets of a file into groups without members, and read them back; or make a data folder of Kafka's logs.

    The file is checked as a whole before anything is written. Groups with members are refused, the others are done.
    """
    if from_kafka_logs is not None:
        if file is not None or bootstrap_server is not None or data is None:
            raise StartError(
                "--from-kafka-logs makes a data folder: expected --data DIR with it, no FILE and no server"
            )
        import_log(from_kafka_logs, data, Counts(partitions, transaction_partitions), as_json)
        return
    if file is None:
        raise StartError("expected a FILE with offsets, or --from-kafka-logs KDIR")
    if data is not None or partitions is not None or transaction_partitions is not None:
        raise StartError("--data and the numbers of partitions are for --from-kafka-logs; a FILE goes to a server")
    import_table(file, bootstrap_server or HERE, dry_run, groups or [], form, as_json, timeout, max_bytes)


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
    of_all = groups[0] if len(groups) == 1 and "," not in groups[0] else None  # A,B are two
    wanted = choose_groups(read_table(file, Complaints(), form, of_all, max_bytes), groups)
    outcomes: list[Outcome] = []
    try:
        with Cluster(address, timeout_s) as cluster:
            outcomes.extend(write_all(cluster, wanted, tracked(sorted(wanted), "groups"), is_dry))
    finally:
        show(outcomes, is_dry, as_json)
    if any(outcome.differences for outcome in outcomes):
        raise typer.Exit(DIFFERENT_EXIT_CODE)
    refused = sum(bool(outcome.refused) for outcome in outcomes)
    if refused:
        raise ClientError(f"{refused} of {counted(len(wanted), 'group')} refused")


def show(outcomes: Sequence[Outcome], is_dry: bool, as_json: bool) -> None:
    if as_json:
        print_json({"executed": not is_dry, "groups": [outcome._asdict() for outcome in outcomes]})
    else:
        print_line(summary([outcome for outcome in outcomes if outcome.written], is_dry))
    for problem in problems(outcomes):
        print_error(problem)


def summary(done: Sequence[Outcome], is_dry: bool) -> str:
    what = f"{counted(sum(one.written for one in done), 'offset')} of {counted(len(done), 'group')}"
    news = f"{sum(one.new for one in done)} new, {sum(one.changed for one in done)} changed"
    return f"dry run: {what} would be written: {news}" if is_dry else f"{what} written and read back: {news}"


def import_log(kafka: Path, data: Path, counts: Counts, as_json: bool) -> None:
    complaints, data = Complaints(), data.resolve()
    try:
        found = make_folder(
            kafka, data, counts, Disk(file_mode_of(data)), complaints, lambda all: tracked(all, "partitions")
        )
    except (ReadBackDiffers, UnsupportedCompression) as error:
        complaints(error)
        raise typer.Exit(DIFFERENT_EXIT_CODE) from None
    if as_json:
        print_json(found.as_json())
    else:
        for line in found.in_words():
            print_line(line)
    if complaints.count:
        raise typer.Exit(DIFFERENT_EXIT_CODE)


def main(argv: Sequence[str]) -> int:
    return run(app, argv, "callboard import")
