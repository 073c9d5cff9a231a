"""``callboard compact``: keeps only the newest record of each key of the offsets log, while a server runs or not.

Exit codes: 0 done; 1 a disk or the store failed; 2 the command line, the folder or the cluster is invalid, and nothing
was done; 3 a partition is damaged; the damage was printed and the partition was not changed. After 1 and 3 the other
partitions are compacted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.errors import StartError
from ..log.compaction.defaults import (
    DELETE_RETENTION_MS,
    GRACE_MS,
    KEYS_BYTES_MAX,
    MIN_CLEANABLE_DIRTY_RATIO,
    SEGMENT_BYTES,
)
from .main import SERVICE_CONTEXT, make_app
from .options import NUMBER_MAX, is_in_command_line, refuse_nan
from .server_options import run_on_disk

if TYPE_CHECKING:
    from .compact_run import Choice

MS_PER_MINUTE = 60_000

OptionalDataFolder = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", envvar="CALLBOARD_DATA", help="The data folder of a server, running or not."),
]
ClusterStore = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="URL",
        envvar="CALLBOARD_CLUSTER",
        help="The store of a cluster, whose nodes may run or not, instead of a data folder.",
    ),
]

CleanableRatio = Annotated[
    float,
    typer.Option(
        min=0, max=1, callback=refuse_nan, help="Compact partitions with a larger fraction of uncompacted bytes."
    ),
]
GraceMinutes = Annotated[
    float,
    typer.Option(
        min=0,
        max=NUMBER_MAX,
        callback=refuse_nan,
        help="How long replaced files are kept, for programs that read them.",
    ),
]

app = make_app()


@app.command("compact", context_settings=SERVICE_CONTEXT)
def compact(
    context: typer.Context,
    data: OptionalDataFolder = None,
    cluster: ClusterStore = None,
    partitions: Annotated[
        str | None,
        typer.Option(
            "--partition",
            metavar="N,A-B,...",
            envvar="CALLBOARD_PARTITION",
            help="Only these; __transaction_state-N by name.  [default: all]",
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Number of processes.  [default: one for each processor]")
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Run it on Spark, a task for each partition.")] = False,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark's master.  [default: spark-submit's, or this machine]")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Run once and end.  [default]")] = False,
    every: Annotated[str | None, typer.Option(metavar="10m", help="Run repeatedly, at this interval.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, change nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Compact also partitions below the ratio.")] = False,
    as_json: Annotated[bool, typer.Option("--json", envvar="CALLBOARD_JSON", help="Print JSON, for programs.")] = False,
    min_cleanable_ratio: CleanableRatio = MIN_CLEANABLE_DIRTY_RATIO,
    delete_retention_ms: Annotated[
        int, typer.Option(min=0, help="How long tombstones are kept.")
    ] = DELETE_RETENTION_MS,
    segment_bytes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Size of the compacted files.")
    ] = SEGMENT_BYTES,
    grace_minutes: GraceMinutes = GRACE_MS / MS_PER_MINUTE,
    memory: Annotated[
        str,
        typer.Option(
            metavar="512M", help="Memory for keys: of all processes together, or of each Spark task. More go to disk."
        ),
    ] = f"{KEYS_BYTES_MAX >> 20}M",
    nice: Annotated[int, typer.Option(min=0, max=19, help="Niceness of the process.")] = 0,
) -> None:
    """Keep the newest record of each key of the offsets log, as Kafka's log cleaner does.

    The server may keep writing, and several compactions may run at once. Only closed segments are compacted.
    """
    from . import compact_run  # imports more than the help needs

    os.nice(nice)
    choice = compact_run.Choice(
        chosen_log(context, data, cluster),
        partitions,
        ratio=-1.0 if force else min_cleanable_ratio,
        delete_retention_ms=delete_retention_ms,
        segment_bytes=segment_bytes,
        grace_ms=round(grace_minutes * MS_PER_MINUTE),
        memory_bytes=compact_run.parse_memory(memory),
    )
    every_s = compact_run.parse_every(every, once)
    raise typer.Exit(run(choice, every_s, dry_run, as_json, lambda part: part.make_runner(processes, spark, master)))


def run(choice: Choice, every_s: int | None, is_dry: bool, as_json: bool, make_runner: Callable[[Any], Any]) -> int:
    """Returns the exit code."""
    from . import compact_run

    part: Any = compact_run
    if isinstance(choice.log, str):
        from . import compact_cluster

        part = compact_cluster
    jobs = part.find_jobs(choice)  # refuse invalid arguments before Spark starts
    if is_dry:
        part.print_plans(jobs, as_json)
        return 0
    runner = make_runner(part)
    return compact_run.repeat(lambda: part.compact(part.find_jobs(choice), runner, as_json), every_s)


def chosen_log(context: typer.Context, data: Path | None, cluster: str | None) -> Path | str:
    """The folder or the URL. If the environment has both, or one, the command line decides."""
    if data is not None and cluster:
        is_data_given = is_in_command_line(context, "data")
        if is_data_given == is_in_command_line(context, "cluster"):
            raise StartError(f"found both --data {data} and --cluster: a cluster's log is in its store only; give one")
        return data if is_data_given else cluster
    if cluster or data is not None:
        return cluster or data or ""
    raise StartError("give the folder of the log, --data DIR, or the store of a cluster, --cluster URL")


def main(argv: Sequence[str]) -> int:
    return run_on_disk(app, argv, "callboard compact")
