"""Runs a node until a signal, for ``callboard serve``.

The port is bound first, then the data folder is opened. A second server that is started by mistake therefore fails at
the port and does not touch the folder of the first.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from ...actors.text import format_count
from ..common import logs
from ..common.errors import StartError
from ..common.printing import print_error, print_line
from ..common.stop_request import StopRequest
from ..disk.disk import Disk
from ..node.connection_limit import raise_limit
from ..node.listening import NO_SOCKETS, Sockets, bind, bind_health, listening_addresses
from ..settings.listeners import format_listeners
from ..settings.table import Options, Settings
from .serve_web import bind_web, serving_web
from .service_manager import READY, STOPPING, notify

if TYPE_CHECKING:
    from ..node.environment import Environment
    from ..node.node import Node

log = logs.get_logger("callboard.runtime.cli")

GC_THRESHOLDS = (6_000, 0, 2_000)  # see serve_until_stopped
SWITCH_INTERVAL_S = 0.0005  # see run_node
FORCED_EXIT_CODE = 1
FAILED_EXIT_CODE = 3  # a clean stop after the disk had failed: an operator must check the disk
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
STATS_SIGNAL = signal.SIGUSR1
RELOAD_SIGNAL = signal.SIGHUP


def run_server(settings: Settings, options: Options) -> None:
    """Listen, configure the log lines, and run a node until a signal. Raises StartError if a port is taken."""
    with ExitStack() as sockets:
        listening_sockets = {listener.name: sockets.enter_context(bind(listener)) for listener in options.listeners}
        metrics, web = options.http
        watch_socket = None if metrics is None else sockets.enter_context(bind_health(metrics))
        web_socket = None if web is None else sockets.enter_context(bind_web(web))
        logs.configure(sys.stderr, options.log_level, options.log_format)
        run_node(settings, options, listening_sockets, watch_socket, web_socket=web_socket)


def run_node(
    settings: Settings,
    options: Options,
    listening_sockets: Sockets,
    watch_socket: socket.socket | None = None,
    shared_sockets: Sockets = NO_SOCKETS,
    web_socket: socket.socket | None = None,
) -> None:
    """Run a node until a signal. The process belongs to the node alone, so process-wide settings are changed here.

    ``shared_sockets``: those that other processes accept from, too.
    """
    # The event loop and the threads of the log compete for the GIL, and commits wait for both. By default each may hold
    # it for 5 ms, the time of thirty syncs.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    raise_limit()
    if options.log_level == "debug":
        from ..common.python_build import python_build  # imports sysconfig, which a start does not need

        log.debug("starting", python=python_build())
    import uvloop  # serves a third more requests than asyncio's loop

    from ..node.node import Node

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        log_failure = runner.run(
            serve_until_signal(Node, settings, options, listening_sockets, watch_socket, shared_sockets, web_socket)
        )
    if log_failure:
        print_error(f"stopped, after its log had failed: {log_failure}", flush=True)
        raise typer.Exit(FAILED_EXIT_CODE)


class NotInCluster(StartError):
    """The node cannot be in its cluster."""

    def __init__(self, text: str, cause: Exception) -> None:
        super().__init__(text)
        self.exit_code: int = getattr(cause, "exit_code", StartError.exit_code)


class Serving:
    """``node``: the node that serves; None while it is being opened. ``refusal``: why it cannot be in its cluster."""

    def __init__(self) -> None:
        self.node: Node | None = None
        self.refusal: Exception | None = None
        self.stopping = asyncio.Event()

    def refuse(self, error: Exception) -> None:
        self.refusal = error
        self.stopping.set()


async def serve_until_signal(
    node_class: type[Node],
    settings: Settings,
    options: Options,
    listening_sockets: Sockets,
    watch_socket: socket.socket | None,
    shared_sockets: Sockets,
    web_socket: socket.socket | None = None,
) -> str:
    """Start, print the ready line, wait for a signal, stop. Returns why the log has failed; "" if it has not.

    A signal during the start takes effect after it. The server also stops when another process takes its data folder.
    Raises StartError, after the stop, if its cluster has refused it.
    """
    serving = Serving()
    stopping, request = serving.stopping, StopRequest()
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal, number, stopping, request)
    loop.add_signal_handler(STATS_SIGNAL, show_stats, serving)
    if any(listener.has_tls for listener in options.listeners):
        loop.add_signal_handler(RELOAD_SIGNAL, reload_certificates, serving)
    environment = server_environment(settings, options, listening_sockets, serving.refuse)
    with (
        serving_health(serving, watch_socket, loop, options),
        serving_web(lambda: serving.node, web_socket, options.http.web, loop),
    ):
        node = await node_class.open(settings, options, environment, listening_sockets, on_folder_lost=stopping.set)
        serving.node = node
        await serve_until_stopped(node, ready_address(options, listening_sockets), shared_sockets, stopping)
        if serving.refusal is not None:
            raise NotInCluster(f"the cluster cannot be used: {serving.refusal}", serving.refusal)
        return node.log_failure


def ready_address(options: Options, listening_sockets: Sockets) -> str:
    """The address that the server listens on; several in Kafka's form, with names."""
    addresses = listening_addresses(options, listening_sockets)
    return format_listeners(addresses) if len(addresses) > 1 else str(*addresses.values())


async def serve_until_stopped(node: Node, address: str, shared_sockets: Sockets, stopping: asyncio.Event) -> None:
    # Loaded objects stay, so the garbage collector need not scan them again. Nearly everything else is freed by
    # reference counts, so collections may be rare: at the default of 700 they take a twelfth of a heartbeat's time.
    # A collection stops all requests. One of the middle generation examines at most 12,000 new objects, in some 4 ms;
    # with 50,000 objects of groups and members it took 20 ms. The youngest generation is larger than the objects of 200
    # commits in flight: with 2,000 objects, these were examined several times.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    announcing = asyncio.get_running_loop().create_task(announce(node, address, shared_sockets, stopping))
    await stopping.wait()
    announcing.cancel()
    notify(STOPPING)
    await node.stop()


def server_environment(
    settings: Settings, options: Options, listening_sockets: Sockets, on_refused: Callable[[Exception], None]
) -> Environment:
    """The environment of a node, with the assignors of installed packages. Raises StartError.

    For a node that is alone nothing of clusters is imported.
    """
    from ..node.environment import Environment
    from ..node.server_assignors import installed_assignors

    assignors = installed_assignors()
    if not options.cluster.url:
        return Environment(disk=Disk(options.file_mode), assignors=assignors)
    from ..embed.cluster_environment import connect

    return replace(connect(settings, options, listening_sockets, on_refused), assignors=assignors)


@contextmanager
def serving_health(
    serving: Serving,
    watch_socket: socket.socket | None,
    loop: asyncio.AbstractEventLoop,
    options: Options,
) -> Iterator[None]:
    """Serve health and metrics from before the node is opened until after its end."""
    if watch_socket is None:
        yield
        return
    from ..node.health import HealthServer
    from ..node.metrics import pages  # imports prometheus_client, which is not needed without --metrics

    shown = options.metric_options
    served = pages(lambda: serving.node, lag_groups=shown.lag_groups, has_groups=shown.has_groups)
    server = HealthServer(watch_socket, served, loop)
    server.start()
    try:
        yield
    finally:
        server.close()


async def announce(node: Node, address: str, shared_sockets: Sockets, stopping: asyncio.Event) -> None:
    """Print the ready line when clients are answered, and a second line when all groups are loaded.

    The second one is left out if the log is empty. In a cluster the node may have to wait for the store before it is
    ready.
    """
    await node.listeners.is_accepting.wait()
    if shared_sockets:
        await node.accept_from(shared_sockets)
    print_line(f"callboard ready on {address}", flush=True)
    notify(READY)
    await announce_when_loaded(node, stopping)


async def announce_when_loaded(node: Node, stopping: asyncio.Event) -> None:
    """Print a line when all groups are loaded, unless the log is empty.

    Stops the server when loading fails because a group is in the wrong partition.
    """
    loaded = await node.wait_until_loaded()
    if loaded.failure:
        stopping.set()
        return
    gc.freeze()
    if loaded.records:
        print_line(f"callboard loaded {format_count(loaded.records, 'record')} in {loaded.seconds:.2f} s", flush=True)


def on_signal(number: signal.Signals, stopping: asyncio.Event, request: StopRequest) -> None:
    """The first request stops the node cleanly; a second one ends the process at once."""
    if request.is_second():
        print_error(f"received a second {number.name}: exiting at once", flush=True)
        os._exit(FORCED_EXIT_CODE)
    stopping.set()


def reload_certificates(serving: Serving) -> None:
    """Read keys and certificates again, on ``kill -HUP``."""
    if serving.node is not None:
        serving.node.listeners.reload_certificates()


def show_stats(serving: Serving) -> None:
    """Print a table of actor statistics on standard error, on ``kill -USR1``."""
    from ..engine.top import print_stats  # imports rich, which is needed only here

    if serving.node is not None:
        print_stats(serving.node.actors.system, sys.stderr)
