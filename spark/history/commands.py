"""``callboard history``: keep what compaction would drop, ask how it was, and write it back.

Exit codes: 0 done; 1 a disk, Spark or the server failed; 2 the command line, the folder or the table makes no sense,
and nothing was done; 3 a log partition is damaged, which was named, and taken up to there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from shlex import join
from typing import Annotated, Any
from uuid import uuid4

import typer
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ...runtime.cli.groups.tables import Column, Table, format_count, format_number, print_facts, print_table
from ...runtime.cli.main import make_app
from ...runtime.client.cluster import Cluster, Offset
from ...runtime.client.errors import ClientError
from ...runtime.common.printing import print_error, print_json, print_line, tell_on_terminal
from ...runtime.disk.disk import Disk
from ...runtime.log.compaction.history import read_mark, remove_mark
from ...runtime.log.manifest import log_files
from ...runtime.settings.table import parse_address
from ..moments import parse_moment
from ..output import AsCsv, AsJson, Output, SafeCsv, check_output, show
from ..session import in_short, session
from .changes import ID_CHARS, RESTORE, UNDO, Change, who_am_i
from .changes import read as read_changes
from .keep import folders_of, keep, refuse_table
from .restore import Step, carry_out, describe, last_to_undo, plan_restore, plan_undo, refuse_live, step_table
from .states import as_of, damaged_files, diff
from .table import HistoryTable

FAILED_EXIT_CODE = 1
DAMAGED_EXIT_CODE = 3
HERE = "127.0.0.1:9092"

Data = Annotated[Path, typer.Option("--data", metavar="DIR", help="The data folder of a server, running or not.")]
Fresh = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="The data folder, for what the table has not taken yet.")
]
TablePath = Annotated[Path, typer.Option("--table", metavar="TABLE", help="The table that history keep has made.")]
Groups = Annotated[list[str] | None, typer.Option("--group", help="Only this group; may be repeated.")]
Bootstrap = Annotated[
    str, typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT", help="A server of the cluster.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be written.")]
Fence = Annotated[bool, typer.Option("--fence", help="Take members out of the group first, if it has some.")]
TimeoutS = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for an answer.")]
Master = Annotated[
    str | None, typer.Option(metavar="URL", help="Spark's master.  [default: all cores of this machine]")
]

app = make_app("Keep what compaction would drop, ask how offsets were, and write them back.")


@app.command("keep", short_help="Take closed segments into a table; compaction waits.")
def keep_history(
    data: Data,
    to: Annotated[Path, typer.Option("--to", metavar="TABLE", help="The table's folder; made if it is not there.")],
    format: Annotated[
        str, typer.Option(help="How Spark writes a new table: parquet, orc, or what it has jars for.")
    ] = ("parquet"),
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Move the records of closed segments into a table, each exactly once. From then on compaction waits for it."""
    folders_of(data.absolute())  # before Spark starts, which takes seconds
    refuse_table(data.absolute(), to, Disk())
    with session("callboard history keep", master) as spark:
        kept = keep(spark, data, to, format, tell=tell_on_terminal)
    if as_json:
        print_json(kept._asdict())
    else:
        what = f"{format_count(kept.records, 'record')} of {format_count(kept.partitions, 'log partition')}"
        print_line(
            f"{what} taken into {to} in {kept.seconds:.1f} s" if kept.partitions else "nothing new in closed segments"
        )
        if kept.missing:
            print_line(f"{format_count(kept.missing, 'older record')} had been dropped by compaction before")
    for trouble in kept.troubles:
        print_error(trouble)
    if kept.troubles:
        raise typer.Exit(DAMAGED_EXIT_CODE)


@app.command("off")
def turn_off(data: Data) -> None:
    """Let compaction go on without a history. The table stays as it is, and may be gone on with later."""
    folders_of(data.absolute())
    was_on = remove_mark(Disk(), data)
    print_line(f"{data}: compacted without a history from now on" if was_on else f"{data}: there was no history")


@app.command("status", short_help="Show how far history has gone.")
def show_status(data: Data, as_json: AsJson = False) -> None:
    """Show how far history has taken each log partition, and what it could take now."""
    disk, folders = Disk(), folders_of(data.absolute())
    mark = read_mark(disk, data)
    rows = []
    for number, folder in folders.items():
        files = log_files(disk, folder).files
        closed_to = files[-1].base if files and not files[-1].is_closed else None
        rows.append((number, None if mark is None else mark.taken_to.get(number, 0), closed_to))
    columns = [Column("log_partition", "log partition", True), Column("taken_to", "taken to", True)]
    table = Table([*columns, Column("closed_to", "closed to", True)], rows)
    if as_json:
        print_json({"table": mark and mark.table, "partitions": table.as_json()})
        return
    print_facts([("history", mark.table if mark else "off"), ("log partitions", format_number(len(rows)))])
    if rows:
        print_line()
        print_table(table)


@app.command("as-of", short_help="Show all offsets as they were at a time.")
def show_as_of(
    table: TablePath,
    at: Annotated[str, typer.Option("--at", metavar="ISO|7d", help="The time, or how long ago; UTC without a zone.")],
    group: Groups = None,
    data: Fresh = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    safe_csv: SafeCsv = False,
    output: Output = None,
    master: Master = None,
) -> None:
    """Show all offsets of a group, or of all, as they were at a time, and who owned their partitions."""
    check_output(output, as_json, as_csv, safe_csv)
    moment, made = parse_moment("--at", at, datetime.now(UTC)), HistoryTable.open(table)
    warn_of_limits(made, moment, data)
    with session("callboard history as-of", master) as spark, telling_of_damage(spark, made, data, group):
        frame = as_of(spark, made, moment, groups=group, data=data).orderBy("group", "topic", "partition")
        show(frame, as_json, as_csv, output, f"nothing was committed at {moment.isoformat()}", safe_csv)


@app.command("diff")
def show_diff(
    table: TablePath,
    since: Annotated[str, typer.Option("--from", metavar="ISO|7d", help="The first time, or how long ago.")],
    until: Annotated[str, typer.Option("--to", metavar="ISO|7d", help="The second; 0s is now.")] = "0s",
    group: Groups = None,
    data: Fresh = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    safe_csv: SafeCsv = False,
    output: Output = None,
    master: Master = None,
) -> None:
    """Show which offsets are different at a second time."""
    check_output(output, as_json, as_csv, safe_csv)
    now, made = datetime.now(UTC), HistoryTable.open(table)
    before, after = parse_moment("--from", since, now), parse_moment("--to", until, now)
    warn_of_limits(made, before, data)
    with session("callboard history diff", master) as spark, telling_of_damage(spark, made, data, group):
        frame = diff(spark, made, before, after, groups=group, data=data)
        show(frame, as_json, as_csv, output, "nothing is different", safe_csv)


@app.command("restore", short_help="Write a group's offsets back as they were.")
def restore_offsets(
    table: TablePath,
    group: Annotated[str, typer.Option("--group", help="Whose offsets.")],
    at: Annotated[str, typer.Option("--at", metavar="ISO|7d", help="As they were at this time, or so long ago.")],
    to: Annotated[str | None, typer.Option("--to", metavar="GROUP", help="Write them to this group instead.")] = None,
    reason: Annotated[str, typer.Option(help="Why, for the notes beside the table.")] = "",
    data: Fresh = None,
    bootstrap_server: Bootstrap = HERE,
    dry_run: DryRun = False,
    fence: Fence = False,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
    master: Master = None,
) -> None:
    """Write a group's offsets back as they were at a time, through a running server."""
    moment, made, target = parse_moment("--at", at, datetime.now(UTC)), HistoryTable.open(table), to or group
    address = parse_address("--bootstrap-server", bootstrap_server, lowest_port=1)
    with Cluster(address, timeout) as cluster:  # before Spark starts, which takes seconds
        if fence or dry_run:
            describe(cluster, target)  # only to see that there is a server
        else:
            refuse_live(cluster, target)
    warn_of_limits(made, moment, data)
    end = ", and nothing was written"
    with session("callboard history restore", master) as spark, telling_of_damage(spark, made, data, [group], end):
        rows = as_of(spark, made, moment, groups=[group], data=data).collect()
    if not rows:
        raise ClientError(f"group '{group}' had no offsets at {moment.isoformat()}")
    wanted = {(row.topic, row.partition): Offset(row.offset, epoch_of(row.leader_epoch), row.metadata) for row in rows}
    change = new_change(RESTORE, target, group, moment.isoformat(), reason, str(address))
    with Cluster(address, timeout) as cluster:
        steps = plan_restore(wanted, cluster.committed(target))
        change_offsets(cluster, made, change, steps, fence, dry_run, as_json)


@app.command("undo", short_help="Take a restore back.")
def undo_change(
    table: TablePath,
    change_id: Annotated[str | None, typer.Option("--id", help="Which.  [default: the last restore]")] = None,
    reason: Annotated[str, typer.Option(help="Why, for the notes beside the table.")] = "",
    bootstrap_server: Bootstrap = HERE,
    dry_run: DryRun = False,
    fence: Fence = False,
    force: Annotated[bool, typer.Option("--force", help="Even if somebody has committed since.")] = False,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """Take a restore back: its group gets the offsets that it had before."""
    made = HistoryTable.open(table)
    address = parse_address("--bootstrap-server", bootstrap_server, lowest_port=1)
    old = last_to_undo(read_changes(made), change_id)
    change = new_change(UNDO, old.group, old.group, old.as_of, reason, str(address))._replace(of=old.change_id)
    with Cluster(address, timeout) as cluster:
        if not (fence or dry_run):
            refuse_live(cluster, old.group)
        steps = plan_undo(old, cluster.committed(old.group), force)
        change_offsets(cluster, made, change, steps, fence, dry_run, as_json)


def epoch_of(leader_epoch: int | None) -> int:
    """As the protocol has it."""
    return -1 if leader_epoch is None else leader_epoch


def new_change(what: str, group: str, source: str, as_of: str, reason: str, server: str) -> Change:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return Change(uuid4().hex[:ID_CHARS], what, group, source, as_of, now, who_am_i(), reason, server, "", ())


def change_offsets(
    cluster: Cluster,
    table: HistoryTable,
    change: Change,
    steps: Sequence[Step],
    fence: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Show a plan, and carry it out unless it is a dry run. ClientError."""
    change = change._replace(offsets=tuple(step.written for step in steps if step.is_written))
    if not dry_run and change.offsets:
        carry_out(cluster, table, change, fence)
    shown, is_made = step_table(steps), bool(change.offsets) and not dry_run
    if as_json:
        print_json({"id": change.change_id if is_made else None, "group": change.group, "offsets": shown.as_json()})
        return
    print_table(shown)
    print_line(in_words(table, change, is_made))


def in_words(table: HistoryTable, change: Change, is_made: bool) -> str:
    """What was done, or would be; and how it can be taken back, as it can be typed."""
    deleted = sum(one.after is None for one in change.offsets)
    parts = (len(change.offsets) - deleted, "written"), (deleted, "deleted")
    what = " and ".join(f"{format_count(count, 'offset')} {verb}" for count, verb in parts if count)
    if not what:
        return f"group '{change.group}' has these offsets already"
    if not is_made:
        return f"dry run: of group '{change.group}' it would be {what}"
    undo = ("--table", str(table.path), "--id", change.change_id, "--bootstrap-server", change.server)
    return f"of group '{change.group}' {what}, and read back; to take it back: callboard history undo {join(undo)}"


@contextmanager
def telling_of_damage(
    spark: SparkSession, table: HistoryTable, data: Path | None, groups: Sequence[str] | None, end: str = ""
) -> Iterator[None]:
    """Behind the block, which answers, name what is damaged, and exit with the code for that."""
    yield
    files = damaged_files(spark, table, data, groups) if data is not None else []
    for file in files:
        print_error(f"{file}: damaged, so what it had may be missing{end}; see callboard log")
    if files:
        raise typer.Exit(DAMAGED_EXIT_CODE)


def warn_of_limits(table: HistoryTable, moment: datetime, data: Path | None) -> None:
    """A line where the answer may not be whole. StartError for a data folder that is none."""
    if data is not None:
        for folder in folders_of(data.absolute()).values():
            log_files(Disk(), folder)  # which refuses what a newer version has compacted
    progress, at_ms = table.progress(), moment.timestamp() * 1000
    if at_ms < progress.complete_since_ms:
        complete = datetime.fromtimestamp(progress.complete_since_ms / 1000, UTC).isoformat(timespec="seconds")
        print_error(
            f"history is whole from {complete} on; of what was superseded before, compaction has left"
            " nothing, so offsets may be missing in the answer"
        )
    if data is None and at_ms >= progress.at_ms:
        print_error("the answer is from the table alone, which has nothing of open segments; --data DIR adds them")


def call(app: Any, argv: Sequence[str], name: str) -> int:
    """Run a Typer; what fails is one line on standard error. Returns the exit code."""
    try:
        app(list(argv), prog_name=name)
    except (ClientError, OSError) as error:
        print_error(error)
    except (PySparkException, Py4JError) as error:
        print_error(f"Spark: {in_short(error)}")
    else:
        return 0
    return FAILED_EXIT_CODE


def main(argv: Sequence[str]) -> int:
    hidden: Any = None
    sys.modules.setdefault("hypothesis", hidden)  # kio imports it where it is installed, for what no command needs
    return call(app, argv, "callboard history")
