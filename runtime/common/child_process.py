"""A child process that runs jobs for its parent: loading and compaction, which would hold the interpreter's lock.

This is the parent's side. ``child_main`` has the child's, and the format of the messages.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from . import child_main
from .child_main import LENGTH, pack

PROGRAM = "from {module} import serve; serve({target!r})"


class ChildEnded(Exception):
    """The child process ended, or could not be reached, before it had sent all results of a job."""


class ChildProcess:
    """The parent's side. ``target``: ``"package.module:function"``; the function maps a job to its results.

    Jobs and results must be picklable; a result must not be None.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._process: Process | None = None

    async def start(self) -> None:
        """Raises OSError if no process can be started."""
        program = PROGRAM.format(module=child_main.__name__, target=self._target)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdin=PIPE, stdout=PIPE, env=environment
        )

    async def results(self, job: Any) -> AsyncIterator[Any]:
        """Run a job; yields its results as they arrive, with a turn of the loop between two. Raises ChildEnded."""
        try:
            process = self._process
            assert process is not None and process.stdin is not None and process.stdout is not None
            process.stdin.write(pack(job))
            while (result := await _receive(process.stdout)) is not None:
                yield result
                await asyncio.sleep(0)  # results that are already buffered must not hold the loop
        except (OSError, EOFError, RuntimeError) as error:  # uvloop raises RuntimeError for a closed pipe
            raise ChildEnded(repr(error)) from error

    def kill(self) -> None:
        """End the process now. May be called at any time, from any thread."""
        process = self._process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()

    async def stop(self) -> None:
        """``kill``, and wait for the end."""
        self.kill()
        process, self._process = self._process, None
        if process is not None:
            await process.wait()


async def _receive(stream: asyncio.StreamReader) -> Any:
    (size,) = LENGTH.unpack(await stream.readexactly(LENGTH.size))
    return pickle.loads(await stream.readexactly(size))  # nosec B301 # from its own child
