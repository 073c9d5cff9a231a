"""The command line with a stand-in for the node, for tests of what stands round it: signals, exit codes, log lines.

Run as a script with the program's own arguments. ``CALLBOARD_STAND_IN`` says how the node behaves: ``well``,
``refuses`` to start, ``hangs`` when it is stopped, or ``speaks``, which logs in every way there is.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import types
from typing import NamedTuple

from callboard.runtime.cli.main import main
from callboard.runtime.common.errors import StartError
from callboard.runtime.kafka.codec.kio import kio
from callboard.runtime.settings.table import Options, Settings

BEHAVIOUR = os.environ.get("CALLBOARD_STAND_IN", "well")


class Loaded(NamedTuple):
    records: int
    seconds: float


class Node:
    """Does nothing, and says on standard output what it was told to do."""

    log_failure = "Input/output error" if BEHAVIOUR == "fails" else ""

    def __init__(self, settings: Settings, options: Options) -> None:
        print(f"made with group_max_size={settings.group_max_size} sync={options.sync}", flush=True)

    async def start(self, listening_socket: socket.socket) -> None:
        if BEHAVIOUR == "refuses":
            raise StartError("the folder belongs to somebody else: choose another with --data")
        if BEHAVIOUR == "speaks":
            speak()
        kio("static.primitive")  # the part that looks for hypothesis
        loaded = [name for name in ("hypothesis", "pydantic", "rich") if sys.modules.get(name) is not None]
        print(f"started, of the slow libraries loaded: {loaded}", flush=True)

    async def wait_until_loaded(self) -> Loaded:
        return Loaded(0, 0.0)

    async def stop(self) -> None:
        print("stopping", flush=True)
        if BEHAVIOUR == "hangs":
            await asyncio.Event().wait()
        print("stopped", flush=True)


def speak() -> None:
    import structlog

    structlog.get_logger().info("spoken", partition=3)
    logging.getLogger("pykka").warning("heard from %s", "a library")
    try:
        raise ValueError("shown")
    except ValueError:
        structlog.get_logger().exception("failed")


if __name__ == "__main__":
    module = types.ModuleType("callboard.runtime.node.node")
    vars(module)["Node"] = Node
    sys.modules[module.__name__] = module
    main()
