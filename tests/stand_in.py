"""The command line with a placeholder for the node, for tests of signals, exit codes and log lines.

Run it as a script with the program's arguments. ``CALLBOARD_STAND_IN`` selects the behaviour of the node: ``well``,
``refuses`` (to start), ``hangs`` (in the stop), ``fails`` (its log has failed), or ``speaks`` (logs in all ways).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import types
from collections.abc import Callable
from typing import NamedTuple, Self

from callboard.runtime.cli.main import main
from callboard.runtime.common.errors import StartError
from callboard.runtime.kafka.codec.kio import kio
from callboard.runtime.settings.table import Options, Settings

BEHAVIOUR = os.environ.get("CALLBOARD_STAND_IN", "well")


class Loaded(NamedTuple):
    records: int
    seconds: float


class Listeners:
    """They accept connections."""

    def __init__(self) -> None:
        self.is_accepting = asyncio.Event()
        self.is_accepting.set()


class Node:
    """Prints the calls of its methods on standard output."""

    listeners = Listeners()
    log_failure = "Input/output error" if BEHAVIOUR == "fails" else ""

    @classmethod
    async def open(
        cls,
        settings: Settings,
        options: Options,
        _environment: None,
        _listening_sockets: object,
        *,
        on_folder_lost: Callable[[], None],
    ) -> Self:
        del on_folder_lost
        print(f"made with group_max_size={settings.group_max_size} sync={options.sync}", flush=True)
        if BEHAVIOUR == "refuses":
            raise StartError("the folder belongs to somebody else: choose another with --data")
        if BEHAVIOUR == "speaks":
            speak()
        kio("static.primitive")  # this part of kio tries to import hypothesis
        loaded = [name for name in ("hypothesis", "pydantic", "rich") if sys.modules.get(name) is not None]
        print(f"started, of the slow libraries loaded: {loaded}", flush=True)
        return cls()

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
