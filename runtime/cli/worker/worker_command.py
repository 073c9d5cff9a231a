"""``callboard worker MODULE:FUNCTION``: runs a handler in several processes, which share the shards of a group.

Exit codes: 0 stopped by a signal, and every process left the group; 1 a process did not leave in time and was killed;
2 the command line, the handler or the address is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ...common import logs
from ...common.errors import StartError
from ...settings.address import parse_addresses
from ...settings.table import parse_choice
from ..main import SERVICE_CONTEXT, make_app
from ..options import NUMBER_MAX, is_in_command_line, refuse_nan
from ..serve_options import LogFormatOption, LogLevelOption
from .handler import parse_name

StopTimeout = Annotated[
    float,
    typer.Option(
        min=0, max=NUMBER_MAX, callback=refuse_nan, metavar="SECONDS", help="How long handlers may take to end."
    ),
]
RestartDelay = Annotated[
    float,
    typer.Option(
        min=0,
        max=NUMBER_MAX,
        callback=refuse_nan,
        metavar="SECONDS",
        help="Before the first restart; it doubles up to a minute.",
    ),
]

_SHARDS = re.compile(r"0*[1-9][0-9]{0,9}")

app = make_app()


@app.command("worker", context_settings=SERVICE_CONTEXT)
def worker(
    ctx: typer.Context,
    handler: Annotated[
        str, typer.Argument(metavar="MODULE:FUNCTION", help="Called with each shard; `async def`, or a function.")
    ],
    group: Annotated[str, typer.Option("--group", metavar="GROUP", help="The group whose members share the work.")],
    resource: Annotated[
        list[str], typer.Option("--resource", metavar="NAME:SHARDS", help="What to share; may be repeated.")
    ],
    processes: Annotated[int, typer.Option(min=1, max=1024, help="Number of processes.")] = 1,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            metavar="HOST:PORT",
            help="A server of the cluster, or several with commas between.  [default: a coordinator of their own]",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The data folder of their own coordinator.  [default: in memory]"),
    ] = None,
    session_timeout_ms: Annotated[
        int, typer.Option(min=1, help="After this time without a heartbeat a process has lost its shards.")
    ] = 10_000,
    stop_timeout: StopTimeout = 30.0,
    restart_delay: RestartDelay = 1.0,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
) -> None:
    """Run a handler in several processes. Each is a member of the group and calls it for each shard that it owns.

    SIGTERM and Ctrl-C stop them: tasks are cancelled, for functions `shard.is_revoked` becomes true, and each process
    leaves the group when its handlers have ended. A process that crashes is started again.
    """
    from .run import WorkerOptions, run_worker  # imports asyncio, which the help does not need

    level = parse_choice("--log-level", log_level or "info", logs.Level)
    form = None if log_format is None else parse_choice("--log-format", log_format, logs.Format)
    parse_name(handler)
    bootstrap_server, data = choose_coordinator(ctx, bootstrap_server, data)
    if bootstrap_server is not None:
        parse_addresses("--bootstrap-server", bootstrap_server)
    resources = dict(parse_resource(text) for text in resource)
    options = WorkerOptions(
        *(handler, group, resources, processes, bootstrap_server, data),
        *(session_timeout_ms, stop_timeout, restart_delay, level, form),
    )
    code = run_worker(options)
    if code:
        raise typer.Exit(code)


def choose_coordinator(
    ctx: typer.Context, bootstrap_server: str | None, data: Path | None
) -> tuple[str | None, Path | None]:
    """The server, or the folder of an own coordinator. Raises StartError if the command line has both.

    It overrides the variables. If only they have both, CALLBOARD_DATA is there for the server on this machine.
    """
    if bootstrap_server is None or data is None:
        return bootstrap_server, data
    if not is_in_command_line(ctx, "data"):
        return bootstrap_server, None
    if is_in_command_line(ctx, "bootstrap_server"):
        raise StartError("--data is for a coordinator of their own: leave out --data or --bootstrap-server")
    return None, data


def parse_resource(text: str) -> tuple[str, int]:
    """The name and the number of shards in NAME:SHARDS. Raises StartError."""
    name, separator, shards = text.rpartition(":")
    if not (name and separator and _SHARDS.fullmatch(shards)):
        raise StartError(f"bad --resource '{text}': expected NAME:SHARDS, as in jobs:12")
    return name, int(shards)


def main(argv: Sequence[str]) -> int:
    app(list(argv), prog_name="callboard worker")
    return 0
