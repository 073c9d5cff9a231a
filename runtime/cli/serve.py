"""``callboard serve``: what stands round the node, from the arguments to the exit code.

The order is: arguments and settings, then the port, then the data folder. So a program that is started twice by
mistake stops at the port and leaves the folder of the first one alone. Whatever is refused is refused in one line, with
exit code 2.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..common import logs
from ..common.printing import print_error, print_line
from ..node.connection_limit import raise_limit
from ..node.listening import bind, bind_health
from ..settings import table as config
from ..settings.table import Address, Options, Settings
from .main import make_app

if TYPE_CHECKING:
    from ..node.node import Node

GC_THRESHOLD = 20_000  # see serve_until_signal
SWITCH_INTERVAL_S = 0.0005  # see run_node
FORCED_EXIT_CODE = 1
FAILED_EXIT_CODE = 3  # stopped as it should, but the disk had failed before: whoever starts it must look
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
STATS_SIGNAL = signal.SIGUSR1

DynamicSettingsOption = Annotated[
    str | None,
    typer.Option(
        metavar="local|all|none",
        help="Whose IncrementalAlterConfigs may change settings of the broker: clients on this machine, all clients, "
        "nobody.  [default: local]",
    ),
]
FileModeOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODE",
        help="Octal permissions of new files in the data folder; 0640 lets the group read them, as Spark may need."
        "  [default: 0600]",
    ),
]
UnsafeSettingsOption = Annotated[
    bool,
    typer.Option(
        "--unsafe-settings", help="Allow values that delete offsets early or keep the server busy, as for tests."
    ),
]
IgnoreSavedSettingsOption = Annotated[
    bool,
    typer.Option("--ignore-saved-settings", help="Start without the changed settings that the data folder keeps."),
]

app = make_app()


@app.command("serve")
def serve(
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.  [default: 127.0.0.1:9092]"),
    ] = None,
    advertised: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where clients reach this server, if not where it listens."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="The data folder; made if missing.  [default: ./data]")
    ] = None,
    sync: Annotated[
        str | None,
        typer.Option(
            metavar="always|interval|none",
            help="Answer a commit after its sync; after its write, synced by log_flush_interval_ms; or never sync.  "
            "[default: always]",
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:PARTITIONS", help="A topic to make at start if missing; may be repeated."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting (see `callboard settings`); may be repeated."),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Where to serve /metrics, /healthz and /readyz over HTTP; not at all without it."
        ),
    ] = None,
    file_mode: FileModeOption = None,
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE.toml",
            help="A file with the same: listen, advertised, data, sync, metrics, dynamic_settings, file_mode, "
            "[topics], [settings]. Options win over it.",
        ),
    ] = None,
    dynamic_settings: DynamicSettingsOption = None,
    unsafe_settings: UnsafeSettingsOption = False,
    ignore_saved_settings: IgnoreSavedSettingsOption = False,
) -> None:
    """Serve Kafka clients: groups, offsets, and small topics in memory.

    Prints one line on standard output when it listens, and one when it has loaded its log, if there was one; groups
    that are not loaded yet are refused meanwhile. Logs go to standard error. SIGTERM and Ctrl-C stop it cleanly;
    SIGUSR1 shows what its actors do.
    """
    settings, options = config.load(
        *(listen, advertised, data, sync, topic or (), set_ or (), config_file, metrics),
        dynamic_settings=dynamic_settings,
        unsafe_settings=unsafe_settings,
        ignore_saved_settings=ignore_saved_settings,
        file_mode=file_mode,
    )
    with ExitStack() as sockets:
        listening_socket = sockets.enter_context(bind(options))
        watch_socket = None if options.metrics is None else sockets.enter_context(bind_health(options.metrics))
        run_node(settings, options, listening_socket, watch_socket)


def run_node(
    settings: Settings, options: Options, listening_socket: socket.socket, watch_socket: socket.socket | None = None
) -> None:
    """Run a node until a signal. This process is the node's alone, so its global switches are set here."""
    logs.configure(sys.stderr)
    # After its sync the log's thread needs the interpreter at once: every waiting commit waits for that. By default
    # the busy loop may keep it for 5 ms, which is the time of thirty syncs.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    raise_limit()
    import uvloop  # a third more requests than with asyncio's loop

    from ..node.node import Node

    node = Node(settings, options)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_until_signal(node, options, listening_socket, watch_socket))
    if node.log_failure:
        print_error(f"stopped, after its log had failed: {node.log_failure}", flush=True)
        raise typer.Exit(FAILED_EXIT_CODE)


async def serve_until_signal(
    node: Node, options: Options, listening_socket: socket.socket, watch_socket: socket.socket | None
) -> None:
    """Start, say so, wait for a signal, stop. A signal that comes during the start is obeyed after it.

    A server that loses its data folder to somebody else stops by itself.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal, number, stopping)
    loop.add_signal_handler(STATS_SIGNAL, show_stats, node)
    node.on_folder_lost = stopping.set
    with watching(node, watch_socket, loop):
        await serve_on(node, options, listening_socket, stopping)


async def serve_on(node: Node, options: Options, listening_socket: socket.socket, stopping: asyncio.Event) -> None:
    host, port = listening_socket.getsockname()[:2]
    await node.start(listening_socket)
    # What was loaded stays: it need not be looked at by every collection. The rest is freed by reference counts, so
    # collections may be rare: at the default of 700 they are a twelfth of the time of a heartbeat.
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 50)
    print_line(f"callboard ready on {Address(options.listen_host or host, port)}", flush=True)
    telling = asyncio.get_running_loop().create_task(tell_when_loaded(node, stopping))
    await stopping.wait()
    telling.cancel()
    await node.stop()


@contextmanager
def watching(node: Node, watch_socket: socket.socket | None, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """From before the start until after the end, so that whoever watches hears of both."""
    if watch_socket is None:
        yield
        return
    from ..node.health import HealthServer
    from ..node.metrics import pages  # prometheus_client, which a server that nobody watches does not need

    server = HealthServer(watch_socket, pages(node), loop)
    server.start()
    try:
        yield
    finally:
        server.close()


async def tell_when_loaded(node: Node, stopping: asyncio.Event) -> None:
    """A second line, unless the log is empty: now all groups are served, and not some of them.

    When a group lies in a partition to which it does not belong, the server stops instead.
    """
    loaded = await node.wait_until_loaded()
    if loaded.failure:
        stopping.set()
        return
    gc.freeze()
    if loaded.records:
        print_line(f"callboard loaded {loaded.records:,} records in {loaded.seconds:.2f} s", flush=True)


def on_signal(number: signal.Signals, stopping: asyncio.Event) -> None:
    """The first signal stops the node cleanly; one more, by an impatient person, ends the process at once."""
    if stopping.is_set():
        print_error(f"a second {number.name}: ended at once", flush=True)
        os._exit(FORCED_EXIT_CODE)
    stopping.set()


def show_stats(node: Node) -> None:
    """What the actors do, as a table on standard error, for whoever asks with ``kill -USR1``."""
    from ..engine.top import print_stats  # rich, which a server that is never asked does not need

    if hasattr(node, "system"):  # not while it still loads
        print_stats(node.system, sys.stderr)


def main(argv: Sequence[str]) -> int:
    app(list(argv), prog_name="callboard serve")
    return 0
