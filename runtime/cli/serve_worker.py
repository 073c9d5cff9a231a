"""One process of ``callboard serve --workers``.

Its configuration comes on standard input, which the parent holds open.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from socket import socket
from struct import Struct
from typing import NamedTuple

import typer

from ..common import logs
from ..common.errors import StartError
from ..common.printing import print_error
from ..node.listening import bind_health
from ..settings.table import Options, Settings
from .serve import run_node

REFUSED_EXIT_CODE = 2
STDIN = 0
_LENGTH = Struct(">I")


class WorkerConfig(NamedTuple):
    """The worker's own settings and options, and the descriptors of its sockets by listener."""

    settings: Settings
    options: Options
    shared_fds: Mapping[str, int]
    own_fds: Mapping[str, int]


def encode_config(config: WorkerConfig) -> bytes:
    data = pickle.dumps(config)
    return _LENGTH.pack(len(data)) + data


def read_config() -> WorkerConfig:
    [length] = _LENGTH.unpack(read_exactly(STDIN, _LENGTH.size))
    config: WorkerConfig = pickle.loads(read_exactly(STDIN, length))  # nosec B301 # from its parent
    return config


def read_exactly(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(fd, size - len(data))
        if not piece:
            raise EOFError("the parent ended")
        data += piece
    return data


def run(config: WorkerConfig) -> int:
    """Serve until a signal. Returns the exit code."""
    options = config.options
    logs.configure(sys.stderr, options.log_level, options.log_format)
    threading.Thread(target=stop_with_parent, name="callboard-parent", daemon=True).start()
    try:
        with ExitStack() as sockets:
            shared, own = (
                {name: sockets.enter_context(socket(fileno=fd)) for name, fd in fds.items()}
                for fds in (config.shared_fds, config.own_fds)
            )
            watch = None if options.http.metrics is None else sockets.enter_context(bind_health(options.http.metrics))
            run_node(config.settings, options, own, watch, shared)
    except StartError as error:
        print_error(error)
        return error.exit_code
    except typer.Exit as ended:
        return ended.exit_code
    return 0


def stop_with_parent() -> None:
    """Wait until standard input ends, which the parent holds open; then stop as on SIGTERM."""
    while os.read(STDIN, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(run(read_config()))
