"""``callboard serve --workers N``: N processes that share the partitions, behind one address.

Each worker is a node of a cluster whose store is in the data folder, and listens on ports of its own, one for each
listener. All of them accept connections from the bootstrap address, and tell clients which worker owns their group.
This process holds the sockets, so that connections wait while a worker is restarted.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from socket import socket

import typer

from ..common import logs
from ..common.errors import StartError
from ..common.printing import print_error, print_line
from ..common.stop_request import StopRequest
from ..disk.disk import Disk
from ..node.listening import Sockets, bind
from ..settings.address import Address
from ..settings.audit import STDOUT
from ..settings.http_options import HttpOptions
from ..settings.listeners import Listener
from ..settings.table import Options, Settings
from .serve import FAILED_EXIT_CODE, FORCED_EXIT_CODE, RELOAD_SIGNAL, STATS_SIGNAL, STOP_SIGNALS, ready_address
from .serve_worker import REFUSED_EXIT_CODE, WorkerConfig, encode_config
from .service_manager import READY, STOPPING, notify
from .worker.supervisor import ProcessSpec, Supervisor, SupervisorOptions
from .workers_folder import check_folder, make_store, store_url, worker_folder

RESTART_DELAY_S = 0.1
STOP_TIMEOUT_S = 30.0
SESSION_TIMEOUT_MS = 10_000
"""For a worker that hangs. One that ends is noticed at once, so this need not be short."""


def run_workers(settings: Settings, options: Options) -> None:
    """Run workers until a signal. Raises StartError if a port is taken, typer.Exit if a worker could not go on."""
    check_folder(options)
    with ExitStack() as sockets:
        shared = {listener.name: sockets.enter_context(bind(listener)) for listener in options.listeners}
        own = [
            {name: sockets.enter_context(own_socket) for name, own_socket in bind_own(options, number)}
            for number in range(1, options.cluster.workers + 1)
        ]
        logs.configure(sys.stderr, options.log_level, options.log_format)
        make_store(Disk(options.file_mode), options.data)
        settings = worker_settings(settings, options)
        specs = [worker_process(settings, options, number, shared, each) for number, each in enumerate(own, start=1)]
        has_tls = any(listener.has_tls for listener in options.listeners)
        passed_on = (STATS_SIGNAL, RELOAD_SIGNAL) if has_tls else (STATS_SIGNAL,)
        code = asyncio.run(supervise(specs, ready_address(options, shared), passed_on))
    if code:
        raise typer.Exit(code)


def bind_own(options: Options, number: int) -> Iterator[tuple[str, socket]]:
    """The sockets of a worker by listener, on the hosts of the bootstrap addresses.

    The first ports are those of all workers for the first listener.
    """
    first_port = options.cluster.worker_ports and options.cluster.worker_ports[0]
    for place, listener in enumerate(options.listeners):
        port = 0 if first_port is None else first_port + place * options.cluster.workers + number - 1
        yield listener.name, bind(listener._replace(listen=Address(listener.listen.host, port)), "--worker-ports")


def worker_settings(settings: Settings, options: Options) -> Settings:
    """The settings of all workers. Raises StartError."""
    if settings.audit == STDOUT:
        raise StartError("audit=stdout: expected audit=file, because the workers have one standard output")
    is_given = "cluster_session_timeout_ms" in options.given or options.cluster.url
    return settings if is_given else replace(settings, cluster_session_timeout_ms=SESSION_TIMEOUT_MS)


def worker_process(settings: Settings, options: Options, number: int, shared: Sockets, own: Sockets) -> ProcessSpec:
    ports = {name: own_socket.getsockname()[1] for name, own_socket in own.items()}
    shared_fds, own_fds = descriptors(shared), descriptors(own)
    config = WorkerConfig(settings, worker_options(options, number, ports), shared_fds, own_fds)
    command = (sys.executable, "-m", f"{__package__}.serve_worker")
    return ProcessSpec(command, encode_config(config), (*shared_fds.values(), *own_fds.values()))


def descriptors(sockets: Sockets) -> dict[str, int]:
    return {name: each.fileno() for name, each in sockets.items()}


def worker_options(options: Options, number: int, ports: Mapping[str, int]) -> Options:
    """The options of one worker, which is a server of its own. ``ports``: its own, by listener. Raises StartError."""
    cluster, metrics = options.cluster, options.http.metrics
    if metrics is not None and metrics.port == 0:
        raise StartError(
            f"bad metrics '{metrics}': expected a port, because the workers have this one and those that follow it"
        )
    return replace(
        options,
        listeners=tuple(worker_listener(listener, ports[listener.name]) for listener in options.listeners),
        data=worker_folder(options, number),
        http=HttpOptions(None if metrics is None else Address(metrics.host, metrics.port + number - 1)),
        cluster=cluster._replace(
            url=cluster.url or store_url(options.data),
            node_name=f"{cluster.node_name or 'worker'}-{number}",
            is_exclusive=not cluster.url,
        ),
    )


def worker_listener(listener: Listener, port: int) -> Listener:
    """A listener on the worker's own port."""
    advertised = None if listener.advertised is None else Address(listener.advertised.host, port)
    return listener._replace(listen=Address(listener.listen.host, port), advertised=advertised)


async def supervise(specs: Sequence[ProcessSpec], address: str, passed_on: Sequence[signal.Signals]) -> int:
    """Run the workers until a signal. ``passed_on``: signals that they get, too. Returns the exit code."""
    ready: set[int] = set()

    def on_line(number: int, line: str) -> None:
        """The first line of a worker says that it is ready."""
        if number not in ready:
            ready.add(number)
            if len(ready) == len(specs):
                print_line(f"callboard ready on {address}", flush=True)
                notify(READY)

    final_codes = (REFUSED_EXIT_CODE, FAILED_EXIT_CODE)
    supervisor = Supervisor(SupervisorOptions(specs, RESTART_DELAY_S, STOP_TIMEOUT_S, final_codes, on_line))
    loop, request = asyncio.get_running_loop(), StopRequest()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal, number, supervisor, request)
    for number in passed_on:
        loop.add_signal_handler(number, supervisor.send, number)
    await supervisor.run()
    return supervisor.exit_code


def on_signal(number: signal.Signals, supervisor: Supervisor, request: StopRequest) -> None:
    """The first request stops the workers cleanly; a second one ends all processes at once."""
    if request.is_second():
        print_error(f"received a second {number.name}: exiting at once", flush=True)
        supervisor.send(number)
        os._exit(FORCED_EXIT_CODE)
    notify(STOPPING)
    supervisor.stopping.set()
