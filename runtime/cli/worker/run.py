"""Runs the supervisor of ``callboard worker``, and the processes' own coordinator if they need one."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from callboard import Coordinator

from ...common import logs
from .child import ChildConfig
from .supervisor import ProcessSpec, Supervisor, SupervisorOptions

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
CHILD_MODULE = f"{__package__}.child"


class WorkerOptions(NamedTuple):
    """The options of the command. ``data``: of an own coordinator; None keeps it in memory."""

    handler: str
    group: str
    resources: dict[str, int]
    processes: int
    bootstrap: str | None
    data: Path | None
    session_timeout_ms: int
    stop_timeout_s: float
    restart_delay_s: float
    log_level: logs.Level
    log_format: logs.Format | None


def run_worker(options: WorkerOptions) -> int:
    """Run until a signal; return the exit code. Raises StartError."""
    logs.configure(sys.stderr, options.log_level, options.log_format)
    return asyncio.run(_run_worker(options))


async def _run_worker(options: WorkerOptions) -> int:
    async with _coordinator_address(options) as bootstrap:
        supervisor = Supervisor(supervisor_options(options, bootstrap))
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, supervisor.stopping.set)
        await supervisor.run()
        return supervisor.exit_code


@asynccontextmanager
async def _coordinator_address(options: WorkerOptions) -> AsyncIterator[str]:
    """The address of a server, or of a coordinator in this process that the worker processes share."""
    if options.bootstrap is not None:
        yield options.bootstrap
        return
    async with Coordinator(options.data, "127.0.0.1:0") as coordinator:
        yield coordinator.bootstrap


def supervisor_options(options: WorkerOptions, bootstrap: str) -> SupervisorOptions:
    config = ChildConfig(
        handler=options.handler,
        bootstrap=bootstrap,
        has_own_coordinator=options.bootstrap is None,
        group=options.group,
        resources=options.resources,
        session_timeout_ms=options.session_timeout_ms,
        log_level=options.log_level,
        log_format=options.log_format,
    )
    command = (sys.executable, "-m", CHILD_MODULE, json.dumps(config._asdict()))
    processes = [ProcessSpec(command)] * options.processes
    return SupervisorOptions(processes, options.restart_delay_s, options.stop_timeout_s)
