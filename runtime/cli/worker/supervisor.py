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
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

from ...common.logs import get_logger
from ..service_manager import VARIABLE
from .child import REFUSED_EXIT_CODE
from .restarts import restart_delay_s

KILLED_EXIT_CODE = 1

log = get_logger("callboard.runtime")


class ProcessSpec(NamedTuple):
    """How one process is started. It reads ``first_input`` from its standard input, and inherits ``fds``."""

    command: Sequence[str]
    first_input: bytes = b""
    fds: Sequence[int] = ()


class SupervisorOptions(NamedTuple):
    """``stop_timeout_s``: how long a process may take to leave, then it is killed. ``final_codes``: exit codes after
    which all processes are stopped, because a restart is of no use. ``on_line``: gets each line that a process prints,
    with its number; None: they print to the standard output of this process.
    """

    processes: Sequence[ProcessSpec]
    restart_delay_s: float
    stop_timeout_s: float
    final_codes: Collection[int] = (REFUSED_EXIT_CODE,)
    on_line: Callable[[int, str], None] | None = None


class Supervisor:
    """``stopping``: set it to stop all processes. ``exit_code``: that of the command, once ``run`` has returned."""

    def __init__(self, options: SupervisorOptions) -> None:
        self.stopping = asyncio.Event()
        self.exit_code = 0
        self._options = options
        self._running: dict[int, Process] = {}

    async def run(self) -> None:
        """Run the processes until ``stopping`` is set or the configuration is refused."""
        async with asyncio.TaskGroup() as tasks:
            for number, spec in enumerate(self._options.processes):
                tasks.create_task(self._keep_running(number, spec))

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all processes that run."""
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.send_signal(number)

    async def _keep_running(self, number: int, spec: ProcessSpec) -> None:
        loop, delay_s = asyncio.get_running_loop(), None
        while not self.stopping.is_set():
            started = loop.time()
            code = await self._run_process(number, spec)
            if code in self._options.final_codes:
                self.exit_code = self.exit_code or code
                self.stopping.set()
            if self.stopping.is_set():
                return
            delay_s = restart_delay_s(self._options.restart_delay_s, delay_s, loop.time() - started)
            log.warning("a worker process ended and is restarted", number=number, code=code, delay_s=round(delay_s, 3))
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), delay_s)

    async def _run_process(self, number: int, spec: ProcessSpec) -> int:
        """Run one process until it ends or ``stopping`` is set; return its exit code, negative for a signal."""
        process = self._running[number] = await asyncio.create_subprocess_exec(
            *spec.command,
            stdin=PIPE,
            stdout=None if self._options.on_line is None else PIPE,
            start_new_session=True,
            pass_fds=spec.fds,
            env=_environment(),
        )
        log.info("a worker process started", number=number, pid=process.pid)
        assert process.stdin is not None
        process.stdin.write(spec.first_input)
        reading = asyncio.ensure_future(self._read_lines(number, process))
        ended, stopped = asyncio.ensure_future(process.wait()), asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await self._stop(process, number)
            return await ended
        finally:
            stopped.cancel()
            reading.cancel()
            del self._running[number]

    async def _read_lines(self, number: int, process: Process) -> None:
        if process.stdout is not None and self._options.on_line is not None:
            async for line in process.stdout:
                self._options.on_line(number, line.decode().rstrip())

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


def _environment() -> dict[str, str]:
    """Only this process tells the service manager that it is ready."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return environment | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
