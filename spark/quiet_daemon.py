"""Spark's daemon of Python workers, without its last words: Spark starts this module instead of its own.

When a session of ours ends, workers that still wait for work find their socket gone, and each prints a traceback for
the person at the terminal, who has done nothing wrong. Nobody is left to be told anything, so they end without a word.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from pyspark import daemon

Worker = Callable[[socket.socket, bool], int]

GONE = 1  # the code after which the daemon lets a worker go


def quiet(worker: Worker) -> Worker:
    """The same worker, for which the end of Spark is the end."""

    def run(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return GONE

    return run


if __name__ == "__main__":
    setattr(daemon, "worker", quiet(daemon.worker))  # noqa: B010 - to mypy a function is not a variable
    daemon.manager()
