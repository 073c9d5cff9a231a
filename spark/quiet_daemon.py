"""Spark's daemon of Python workers, without tracebacks when the session ends. Spark starts it in place of its own.

When a session ends, or after a minute, the socket of each idle worker closes, and Spark's worker prints a traceback to
the terminal, unless a signal ends it first. That is no error, so these workers exit silently.

Workers that plan queries always have Spark's own daemon, and so do all workers of ``spark-submit`` and of a cluster.
They import ``tasks``, which changes them.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable

SPARKS_DAEMON = "pyspark.daemon"

WorkerMain = Callable[[socket.socket, bool], int]

DISCONNECTED_EXIT_CODE = 1  # the daemon does not restart a worker that returns this code

disconnects: list[OSError] = []
"""Keep the files in their frames until the process ends: Python 3.13 reports a file that it frees and cannot flush."""


def ignore_disconnect_in_sparks_daemon() -> None:
    """In a worker of Spark's own daemon, exit silently from the next request on. In other processes do nothing.

    The daemon's module is the main one. It calls its ``worker`` for each request.
    """
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", "")
    if name == SPARKS_DAEMON and main.worker.__module__ != __name__:
        setattr(main, "worker", ignore_disconnect(main.worker))  # noqa: B010 - to mypy a module has no such variable


def ignore_disconnect(worker: WorkerMain) -> WorkerMain:
    """Wrap a worker so that it returns ``DISCONNECTED_EXIT_CODE`` when Spark closes the connection."""

    def run(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError) as error:
            disconnects.append(error)
            return DISCONNECTED_EXIT_CODE

    return run


if __name__ == "__main__":
    from pyspark import daemon

    setattr(daemon, "worker", ignore_disconnect(daemon.worker))  # noqa: B010 - to mypy a function is not a variable
    daemon.manager()
