"""One process of ``callboard worker``: a member of the group that runs the handler.

The supervisor starts it with its configuration as JSON. It leaves the group on SIGTERM, and when its standard input
ends, because then the supervisor has died.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import sys
import threading
from typing import NamedTuple

import callboard
from callboard import ChannelLost, CoordinatorError, MemberError, StartError

from ...client.security import NO_SECURITY, Security, command_config
from ...common import logs
from ...common.printing import print_error
from .handler import Handler, find_handler

FAILED_EXIT_CODE = 1
REFUSED_EXIT_CODE = 2
"""The configuration is wrong, so a restart is of no use."""

STDIN = 0

log = logs.get_logger("callboard.runtime")


class ChildConfig(NamedTuple):
    """``resources``: numbers of shards by name. ``has_own_coordinator``: the supervisor's process is the server."""

    handler: str
    bootstrap: str
    has_own_coordinator: bool
    group: str
    resources: dict[str, int]
    session_timeout_ms: int
    log_level: logs.Level
    log_format: logs.Format | None


def run_child(config: ChildConfig) -> int:
    """Run the handler until the member has left. Returns the exit code."""
    logs.configure(sys.stderr, config.log_level, config.log_format)
    try:
        handler = find_handler(config.handler)
        run = run_in_tasks if inspect.iscoroutinefunction(handler) else run_in_threads
    except StartError as error:
        print_error(error)
        return REFUSED_EXIT_CODE
    try:
        threading.Thread(target=leave_with_parent, name="callboard-parent", daemon=True).start()
        run(handler, config)
    except (StartError, ValueError) as error:
        print_error(error)
        return REFUSED_EXIT_CODE
    except (ChannelLost, CoordinatorError, MemberError) as error:
        log.error("the worker cannot go on", reason=str(error))
        return FAILED_EXIT_CODE
    return 0


def run_in_threads(handler: Handler, config: ChildConfig) -> None:
    """Run a function that blocks in a thread for each shard."""
    with (
        callboard.connect_in_thread(config.bootstrap, security_of(config)) as remote,
        remote.member(config.group, resources=config.resources, session_timeout_ms=config.session_timeout_ms) as member,
        callboard.leave_on_signals(member),
    ):
        member.run(handler)


def run_in_tasks(handler: Handler, config: ChildConfig) -> None:
    """Run a coroutine function as a task for each shard."""
    asyncio.run(_run_in_tasks(handler, config))


async def _run_in_tasks(handler: Handler, config: ChildConfig) -> None:
    async with (
        callboard.connect(config.bootstrap, security_of(config)) as remote,
        remote.member(config.group, resources=config.resources, session_timeout_ms=config.session_timeout_ms) as member,
    ):
        with callboard.leave_on_signals(member):
            await member.run(handler)


def security_of(config: ChildConfig) -> Security | None:
    """As of all commands for a server; none for the supervisor, whatever the environment has for other connections."""
    return NO_SECURITY if config.has_own_coordinator else command_config()


def leave_with_parent() -> None:
    """Wait until standard input ends, which the supervisor holds open; then leave as on SIGTERM."""
    while os.read(STDIN, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(run_child(ChildConfig(**json.loads(sys.argv[1]))))
