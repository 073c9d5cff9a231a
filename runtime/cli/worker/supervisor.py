"""Keeps a number of processes running: starts them, restarts those that end, and stops all of them.

Each process has a pipe as standard input. It ends with the supervisor, also when that is killed, and the processes then
leave. They are in a session of their own, so that Ctrl-C in a terminal reaches the supervisor alone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ...common.logs import get_logger
from .child import REFUSED_EXIT_CODE
from .restarts import restart_delay_s

KILLED_EXIT_CODE = 1

log = get_logger("callboard.runtime")


class SupervisorOptions(NamedTuple):
    """``command``: starts one process. ``stop_timeout_s``: how long a process may take to leave, then it is killed."""

    command: Sequence[str]
    processes: int
    restart_delay_s: float
    stop_timeout_s: float


class Supervisor:
    """``stopping``: set it to stop all processes. ``exit_code``: that of the command, once ``run`` has returned."""

    def __init__(self, options: SupervisorOptions) -> None:
        self.stopping = asyncio.Event()
        self.exit_code = 0
        self._options = options

    async def run(self) -> None:
        """Run the processes until ``stopping`` is set or the configuration is refused."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._options.processes):
                tasks.create_task(self._keep_running(number))

    async def _keep_running(self, number: int) -> None:
        loop, delay_s = asyncio.get_running_loop(), None
        while not self.stopping.is_set():
            started = loop.time()
            code = await self._run_process(number)
            if code == REFUSED_EXIT_CODE:
                self.exit_code = REFUSED_EXIT_CODE
                self.stopping.set()
            if self.stopping.is_set():
                return
            delay_s = restart_delay_s(self._options.restart_delay_s, delay_s, loop.time() - started)
            log.warning("a worker process ended and is restarted", number=number, code=code, delay_s=round(delay_s, 3))
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), delay_s)

    async def _run_process(self, number: int) -> int:
        """Run one process until it ends or ``stopping`` is set; return its exit code, negative for a signal."""
        process = await asyncio.create_subprocess_exec(
            *self._options.command,
            stdin=PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        log.info("a worker process started", number=number, pid=process.pid)
        ended, stopped = asyncio.ensure_future(process.wait()), asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await self._stop(process, number)
            return await ended
        finally:
            stopped.cancel()

    async def _stop(self, process: Process, number: int) -> None:
        """Ask a process to leave; kill it if it takes too long."""
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), self._options.stop_timeout_s)
        except TimeoutError:
            log.error("a worker process did not leave in time and is killed", number=number, pid=process.pid)
            self.exit_code = KILLED_EXIT_CODE
            with suppress(ProcessLookupError):
                process.kill()
