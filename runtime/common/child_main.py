"""The main function of a child process (``child_process``), and the format of its messages.

Both pipes carry pickles, each behind its length (4 bytes, big endian). The parent writes jobs to the child's standard
input; the child writes the results of each job to its standard output, and ``None`` after the last one. The child exits
when its standard input ends, also in the middle of a job, so it never outlives its parent.

It imports little, and no asyncio: that would take a fifth of the time in which a process that loads a partition starts.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
from collections.abc import Callable, Iterable
from importlib import import_module
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO

LENGTH = struct.Struct(">I")
STDIN, STDOUT, STDERR = 0, 1, 2


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
        queue.put(pickle.loads(jobs.read(*LENGTH.unpack(head))))  # nosec B301 # from its parent
    os._exit(0)  # the parent is gone: a job in progress has nobody to report to
