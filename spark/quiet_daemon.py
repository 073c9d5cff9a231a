"""Spark's daemon of Python workers, without tracebacks when the session ends. Spark starts it in place of its own.

When a session ends, the socket of each idle worker closes, and Spark's worker prints a traceback to the terminal. That
is no error, so these workers exit silently.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from pyspark import daemon

WorkerMain = Callable[[socket.socket, bool], int]

DISCONNECTED_EXIT_CODE = 1  # the daemon does not restart a worker that returns this code


def ignore_disconnect(worker: WorkerMain) -> WorkerMain:
    """Wrap a worker so that it returns ``DISCONNECTED_EXIT_CODE`` when Spark closes the connection."""

    def run(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return DISCONNECTED_EXIT_CODE

    return run


if __name__ == "__main__":
    setattr(daemon, "worker", ignore_disconnect(daemon.worker))  # noqa: B010 - to mypy a function is not a variable
    daemon.manager()
