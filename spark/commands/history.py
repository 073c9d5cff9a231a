"""``callboard history``: keeps records that compaction would remove, shows earlier offsets, and restores them.

Exit codes: 0 done; 1 a disk, Spark or the server failed; 2 the command line, the folder or the table is invalid, and
nothing was done; 3 a log partition is damaged; it was named, and copied up to the damage.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from ...actors.text import format_count
from ...runtime.cli.main import make_app
from ...runtime.cli.options import DataFolder, Groups, Reason
from ...runtime.cli.server_options import DEFAULT_SERVER, Bootstrap, TimeoutS, connect
from ...runtime.cli.tables import Column, Table, format_number, print_facts, print_table
from ...runtime.client.errors import ClientError
from ...runtime.common.printing import print_error, print_hint, print_json, print_line
from ...runtime.settings.address import parse_address
from ..output import AsCsv, AsJson, Output, SafeCsv, check_output, output_frame
from ..session import session
from ..time_options import parse_time
from .running import DAMAGED_EXIT_CODE, Master, TableLocation, run_app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ...runtime.client.cluster import Cluster
    from ..history.changes import Change
    from ..history.restore import RestoreStep
    from ..history.table import HistoryTable

NotInTable = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="The data folder, to add records not in the table yet.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the changes.")]
Fence = Annotated[bool, typer.Option("--fence", help="Remove the members from the group first.")]

app = make_app("Keep records that compaction would remove, show earlier offsets, and restore them.")


@app.command("keep", short_help="Copy closed segments to a table; compaction waits for it.")
def keep_history(
    data: DataFolder,
    table: Annotated[
        str, typer.Option("--table", metavar="TABLE", help="The table's folder or URL; created if it is missing.")
    ],
    format: Annotated[
        str, typer.Option(help="The format of a new table: parquet, orc, or one that Spark has jars for.")
    ] = ("parquet"),
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Copy the records of closed segments to a table, each exactly once. From then on compaction waits for it."""
    from ...runtime.disk.disk import Disk
    from ..history.keep import check_table, keep, log_partition_folders, nothing_new
    from ..history.opening import table_name
    from ..history.snapshot import take_snapshot

    log_partition_folders(data.absolute())  # validated before Spark starts, which takes seconds
    check_table(data.absolute(), table, Disk())
    location = table_name(table)
    result = nothing_new(data.absolute(), table)
    if result is None:
        with session("callboard history keep", master) as spark:
            result = keep(spark, data, table, format, report_progress=print_hint)
            if snapshot := take_snapshot(spark, table, data):
                print_hint(f"snapshot of {snapshot.day}: {format_count(snapshot.records, 'record')}")
    if as_json:
        fields = result._asdict()
        print_json({"troubles" if name == "problems" else name: value for name, value in fields.items()})
    else:
        copied = f"{format_count(result.records, 'record')} of {format_count(result.partitions, 'log partition')}"
        print_line(
            f"{copied} copied to {location} in {result.seconds:.1f} s"
            if result.partitions
            else "nothing new in closed segments"
        )
        if result.missing:
            print_line(f"{format_count(result.missing, 'older record')} had already been removed by compaction")
    for problem in result.problems:
        print_error(problem)
    if result.problems:
        raise typer.Exit(DAMAGED_EXIT_CODE)


@app.command("merge", short_help="Merge the small files of a table.")
def merge_history(table: TableLocation, master: Master = None, as_json: AsJson = False) -> None:
    """Merge the files of each day before today (UTC). Queries may run meanwhile; old files stay for an hour."""
    from ..files import is_url
    from ..history.merge import merge
    from ..history.opening import open_to_write

    open_to_write(table)  # reports a wrong table before Spark starts, which takes seconds
    with session("callboard history merge", master) as spark:
        result = merge(spark, table)
    if as_json:
        print_json(result._asdict())
        return
    kind = "file" if is_url(table) else "folder"
    print_line(
        f"{format_count(result.records, 'record')} of {format_count(result.replaced, kind)} merged into {result.merged}"
        if result.merged
        else "nothing to merge"
    )
    if result.removed:
        print_line(f"{format_count(result.removed, kind)} of earlier merges removed")


@app.command("forget", short_help="Go on without rows that are lost.")
def forget_rows(table: TableLocation) -> None:
    """Accept that files with rows are gone. Without it, queries are refused until copies of them are back."""
    from ..files import is_url
    from ..history.forget import forget_lost

    lost = forget_lost(table)
    kind = "file" if is_url(table) else "folder"
    print_line(f"{format_count(lost, f'lost {kind}')} forgotten" if lost else "nothing is lost")


@app.command("off")
def turn_off(data: DataFolder) -> None:
    """Let compaction continue without a history. The table stays as it is, and can be used again later."""
    from ...runtime.disk.disk import Disk
    from ...runtime.log.compaction.history import remove_history_mark
    from ..history.keep import log_partition_folders

    log_partition_folders(data.absolute())
    was_on = remove_history_mark(Disk(), data)
    print_line(f"{data}: history is off; compaction no longer waits" if was_on else f"{data}: there was no history")


@app.command("status", short_help="Show the progress of the history.")
def show_status(data: DataFolder, as_json: AsJson = False) -> None:
    """Show up to which offset each log partition is in the table, and up to which it could be now."""
    from ...runtime.disk.disk import Disk
    from ...runtime.log.compaction.history import read_history_mark
    from ...runtime.log.manifest import log_files
    from ..history.keep import log_partition_folders

    disk, folders = Disk(), log_partition_folders(data.absolute())
    mark = read_history_mark(disk, data)
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
    table: TableLocation,
    at: Annotated[str, typer.Option("--at", metavar="ISO|7d", help="The time, or an age; UTC without a zone.")],
    group: Groups = None,
    data: NotInTable = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    safe_csv: SafeCsv = False,
    output: Output = None,
    master: Master = None,
) -> None:
    """Show the offsets of a group, or of all groups, as they were at a time, with the owners of the partitions."""
    from ..history.opening import open_table
    from ..history.states import as_of

    check_output(output, as_json, as_csv, safe_csv)
    time, history_table = parse_time("--at", at, datetime.now(UTC)), open_table(table)
    warn_of_limits(history_table, time, data)
    with (
        session("callboard history as-of", master) as spark,
        report_damage_afterwards(spark, history_table, data, group),
    ):
        frame = as_of(spark, history_table, time, groups=group, data=data).orderBy("group", "topic", "partition")
        output_frame(frame, as_json, as_csv, output, f"nothing was committed at {time.isoformat()}", safe_csv)


@app.command("diff")
def show_diff(
    table: TableLocation,
    since: Annotated[str, typer.Option("--since", metavar="ISO|7d", help="The first time, or an age.")],
    until: Annotated[str, typer.Option("--until", metavar="ISO|7d", help="The second time; 0s is now.")] = "0s",
    group: Groups = None,
    data: NotInTable = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    safe_csv: SafeCsv = False,
    output: Output = None,
    master: Master = None,
) -> None:
    """Show the offsets that differ between two times."""
    from ..history.opening import open_table
    from ..history.states import diff

    check_output(output, as_json, as_csv, safe_csv)
    now, history_table = datetime.now(UTC), open_table(table)
    before, after = parse_time("--since", since, now), parse_time("--until", until, now)
    warn_of_limits(history_table, before, data)
    with (
        session("callboard history diff", master) as spark,
        report_damage_afterwards(spark, history_table, data, group),
    ):
        frame = diff(spark, history_table, before, after, groups=group, data=data)
        output_frame(frame, as_json, as_csv, output, "nothing is different", safe_csv)


@app.command("restore", short_help="Restore a group's earlier offsets.")
def restore_offsets(
    table: TableLocation,
    group: Annotated[str, typer.Option("--group", metavar="GROUP", help="The group to restore.")],
    at: Annotated[str, typer.Option("--at", metavar="ISO|7d", help="The time of the offsets, or an age.")],
    to_group: Annotated[
        str | None, typer.Option("--to-group", metavar="GROUP", help="Write them to this group instead.")
    ] = None,
    reason: Reason = "",
    data: NotInTable = None,
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    dry_run: DryRun = False,
    fence: Fence = False,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
    master: Master = None,
) -> None:
    """Write a group's offsets as they were at a time, through a running server."""
    from ...runtime.client.cluster import OffsetAndMetadata
    from ..history.changes import RESTORE
    from ..history.opening import open_to_write
    from ..history.restore import check_no_members, describe_group, plan_restore
    from ..history.states import as_of

    time, history_table, target = parse_time("--at", at, datetime.now(UTC)), open_to_write(table), to_group or group
    address = parse_address("--bootstrap-server", bootstrap_server, lowest_port=1)
    with connect(bootstrap_server, timeout) as cluster:  # before Spark starts, which takes seconds
        if fence or dry_run:
            describe_group(cluster, target)  # checks that the server responds
        else:
            check_no_members(cluster, target)
    warn_of_limits(history_table, time, data)
    with (
        session("callboard history restore", master) as spark,
        report_damage_afterwards(spark, history_table, data, [group], ", and nothing was written"),
    ):
        rows = as_of(spark, history_table, time, groups=[group], data=data).collect()
    if not rows:
        raise ClientError(f"group '{group}' had no offsets at {time.isoformat()}")
    target_offsets = {
        (row.topic, row.partition): OffsetAndMetadata(row.offset, protocol_epoch(row.leader_epoch), row.metadata)
        for row in rows
    }
    change = new_change(RESTORE, target, group, time.isoformat(), reason, str(address))
    with connect(bootstrap_server, timeout) as cluster:
        steps = plan_restore(target_offsets, cluster.committed(target))
        change_offsets(cluster, history_table, change, steps, fence, dry_run, as_json)


@app.command("undo", short_help="Undo a restore.")
def undo_change(
    table: TableLocation,
    change_id: Annotated[str | None, typer.Option("--id", help="The change.  [default: the last restore]")] = None,
    reason: Reason = "",
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    dry_run: DryRun = False,
    fence: Fence = False,
    force: Annotated[bool, typer.Option("--force", help="Undo it even if other commits were made since.")] = False,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """Undo a restore: give its group the offsets that it had before."""
    from ..history.changes import UNDO, read_changes
    from ..history.opening import open_to_write
    from ..history.restore import check_no_members, find_change_to_undo, plan_undo

    history_table = open_to_write(table)
    address = parse_address("--bootstrap-server", bootstrap_server, lowest_port=1)
    old = find_change_to_undo(read_changes(history_table), change_id)
    change = new_change(UNDO, old.group, old.group, old.as_of, reason, str(address))._replace(of=old.change_id)
    with connect(bootstrap_server, timeout) as cluster:
        if not (fence or dry_run):
            check_no_members(cluster, old.group)
        steps = plan_undo(old, cluster.committed(old.group), force)
        change_offsets(cluster, history_table, change, steps, fence, dry_run, as_json)


def protocol_epoch(leader_epoch: int | None) -> int:
    """The leader epoch for the protocol, where -1 means none."""
    return -1 if leader_epoch is None else leader_epoch


def new_change(kind: str, group: str, source: str, as_of: str, reason: str, server: str) -> Change:
    from ..history.changes import ID_CHARS, Change, current_user

    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return Change(uuid4().hex[:ID_CHARS], kind, group, source, as_of, now, current_user(), reason, server, "", ())


def change_offsets(
    cluster: Cluster,
    table: HistoryTable,
    change: Change,
    steps: Sequence[RestoreStep],
    fence: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Apply a plan unless it is a dry run, and print it. Raises ClientError."""
    from ..history.restore import apply_change, plan_table

    change = change._replace(offsets=tuple(step.change for step in steps if step.is_changed))
    if not dry_run and change.offsets:
        apply_change(cluster, table, change, fence)
    plan, is_made = plan_table(steps), bool(change.offsets) and not dry_run
    if as_json:
        print_json({"id": change.change_id if is_made else None, "group": change.group, "offsets": plan.as_json()})
        return
    print_table(plan)
    print_line(summary_line(table, change, is_made))


def summary_line(table: HistoryTable, change: Change, is_made: bool) -> str:
    """The changes, actual or planned, and the command that undoes them."""
    deleted = sum(offset.after is None for offset in change.offsets)
    parts = (len(change.offsets) - deleted, "written"), (deleted, "deleted")
    counts = " and ".join(f"{format_count(count, 'offset')} {participle}" for count, participle in parts if count)
    if not counts:
        return f"group '{change.group}' already has these offsets"
    if not is_made:
        return f"dry run: group '{change.group}': {counts}"
    undo = ("--table", table.name, "--id", change.change_id, "--bootstrap-server", change.server)
    return f"group '{change.group}': {counts}, and verified; to undo this: callboard history undo {join(undo)}"


@contextmanager
def report_damage_afterwards(
    spark: SparkSession, table: HistoryTable, data: Path | None, groups: Sequence[str] | None, end: str = ""
) -> Iterator[None]:
    """After the block, report damaged files in ``data`` and exit with ``DAMAGED_EXIT_CODE`` if there are any."""
    from ..history.states import damaged_files

    yield
    files = damaged_files(spark, table, data, groups) if data is not None else []
    for file in files:
        print_error(f"{file}: damaged; its records may be missing in the result{end}; see callboard log")
    if files:
        raise typer.Exit(DAMAGED_EXIT_CODE)


def warn_of_limits(table: HistoryTable, time: datetime, data: Path | None) -> None:
    """Print a warning if the result may be incomplete. Raises StartError for an invalid data folder."""
    from ...runtime.disk.disk import Disk
    from ...runtime.log.manifest import log_files
    from ..history.keep import log_partition_folders

    if data is not None:
        for folder in log_partition_folders(data.absolute()).values():
            log_files(Disk(), folder)  # raises for a log that was compacted by a newer version
    progress, at_ms = table.progress(), time.timestamp() * 1000
    if at_ms < progress.complete_since_ms:
        complete = datetime.fromtimestamp(progress.complete_since_ms / 1000, UTC).isoformat(timespec="seconds")
        print_error(
            f"the history is complete from {complete} on; compaction had removed records that were superseded before,"
            " so offsets may be missing in the result"
        )
    if data is None and at_ms >= progress.at_ms:
        print_error("the result does not include the open segments, which are not in the table; --data DIR adds them")


def main(argv: Sequence[str]) -> int:
    hidden: Any = None
    sys.modules.setdefault("hypothesis", hidden)  # kio imports it if it is installed; no command needs it
    return run_app(app, argv, "callboard history")
