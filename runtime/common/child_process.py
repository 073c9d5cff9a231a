"""A child process that runs jobs for its parent: loading and compaction, which would hold the interpreter's lock.

Both pipes carry pickles, each behind its length (4 bytes, big endian). The parent writes jobs to the child's standard
input; the child writes the results of each job to its standard output, and ``None`` after the last one. The child exits
when its standard input ends, also in the middle of a job, so it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import struct
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from importlib import import_module
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO

LENGTH = struct.Struct(">I")
PROGRAM = "from {module} import serve; serve({target!r})"
STDIN, STDOUT, STDERR = 0, 1, 2


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
        program = PROGRAM.format(module=__name__, target=self._target)
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
    return pickle.loads(await stream.readexactly(size))


def pack(message: Any) -> bytes:
    """A job or result as it is sent."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


def serve(target: str) -> None:
    """The child's main function: run jobs until standard input ends.

    The parent ends this process. Signals to the whole process group, as from a terminal, are ignored.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    jobs, results = os.fdopen(os.dup(STDIN), "rb"), os.fdopen(os.dup(STDOUT), "wb")
    os.dup2(STDERR, STDOUT)  # nothing but results goes to the parent
    queue: SimpleQueue[Any] = SimpleQueue()
    Thread(target=_read_jobs, args=(jobs, queue), daemon=True).start()
    module, _, name = target.partition(":")
    run: Callable[[Any], Iterable[Any]] = getattr(import_module(module), name)
    while True:
        run_job(run, queue.get(), results)


def run_job(run: Callable[[Any], Iterable[Any]], job: Any, results: BinaryIO) -> None:
    for result in run(job):
        _send(result, results)
    _send(None, results)


def _send(result: Any, results: BinaryIO) -> None:
    results.write(pack(result))
    results.flush()


def _read_jobs(jobs: BinaryIO, queue: SimpleQueue[Any]) -> None:
    while head := jobs.read(LENGTH.size):
        queue.put(pickle.loads(jobs.read(*LENGTH.unpack(head))))
    os._exit(0)  # the parent is gone: a job in progress has nobody to report to
