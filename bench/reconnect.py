"""``callboard bench reconnect``: many clients with TLS that connect at once, as after a restart of a server.

Each of them makes a handshake, mutual with ``--mutual``, and has one request answered. Meanwhile the bystander sends
heartbeats to another group over a listener without TLS, and records how long they take.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import uvloop

from callboard.bench.harness import (
    BenchError,
    Server,
    add_output,
    machine,
    print_table,
    process_cpu_s,
    quantile,
    summarise,
    write_json,
)
from callboard.bench.members_bystander import Bystander, Wait
from callboard.bench.tls_files import TlsFiles, client_context, make_tls_files
from callboard.bench.wire import api

LISTENERS = re.compile(r"(\w+)://([\d.]+):(\d+)")
SIZE_BYTES = 4
PAUSE_S = 0.5
PURPOSE = "Measure how long heartbeats take while many clients with TLS connect at once."
COLUMNS = ("clients", "all served\ns", "server CPU\nms/client", "heartbeat p50\nms", "p99\nms", "longest\nms")


class Round(NamedTuple):
    """One round. ``waits_ms``: how long heartbeats took meanwhile, in order of their length."""

    seconds: float
    server_cpu_s: float
    waits_ms: tuple[float, ...]


class Row(NamedTuple):
    """Medians over the rounds; the longest wait of all."""

    clients: int
    seconds: float
    cpu_ms_per_client: float
    p50_ms: float
    p99_ms: float
    longest_ms: float


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    try:
        row = run(options)
    except BenchError as error:
        print(f"reconnect: {error}", file=sys.stderr)
        return 1
    cells = [str(row.clients), *(f"{value:.2f}" for value in row[1:])]
    kind = "mutual TLS" if options.mutual else "TLS"
    print_table(f"{options.clients} clients connect at once with {kind}", COLUMNS, [cells], ["Keys are EC P-256."])
    if options.output is not None:
        write_json(options.output, {"bench": "reconnect", "machine": machine(), **row._asdict()})
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench reconnect", description=PURPOSE)
    parser.add_argument("--clients", type=int, metavar="N", default=1000)
    parser.add_argument("--rounds", type=int, metavar="N", default=3, help="how often all connect (default 3)")
    parser.add_argument("--mutual", action="store_true", help="clients have certificates, too")
    add_output(parser)
    parser.add_argument("--quick", action="store_true", help="one round of 20 clients, as a smoke test")
    options = parser.parse_args(argv)
    if options.quick:
        options.clients, options.rounds = 20, 1
    for name in ("clients", "rounds"):
        if getattr(options, name) <= 0:
            parser.error(f"--{name} {getattr(options, name)}: expected more than 0")
    return options


def run(options: argparse.Namespace) -> Row:
    """Raises BenchError if a client is not served."""
    with tempfile.TemporaryDirectory(prefix="bench-reconnect-") as folder:
        files = make_tls_files(Path(folder))
        context = client_context(files.truststore)
        assert context is not None
        if options.mutual:
            context.load_cert_chain(files.keystore)
        with _serving(Path(folder), files, options.mutual) as server:
            rounds = [_connect_round(server, context, options.clients) for _ in range(options.rounds)]
    return _row(options.clients, rounds)


def _row(clients: int, rounds: Sequence[Round]) -> Row:
    return Row(
        clients,
        summarise([each.seconds for each in rounds]).median,
        summarise([1000 * each.server_cpu_s / clients for each in rounds]).median,
        summarise([quantile(each.waits_ms, 0.5) for each in rounds]).median,
        summarise([quantile(each.waits_ms, 0.99) for each in rounds]).median,
        max(each.waits_ms[-1] for each in rounds),
    )


@contextmanager
def _serving(folder: Path, files: TlsFiles, is_mutual: bool) -> Iterator[Server]:
    listen = "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"
    arguments = ["-m", "callboard", "serve", "--listen", listen, "--data", str(folder / "data"), "--sync", "none"]
    settings = ["group_initial_rebalance_delay_ms=0", f"ssl_keystore_location={files.keystore}"]
    if is_mutual:
        settings += [f"ssl_truststore_location={files.truststore}", "ssl_client_auth=required"]
    for setting in settings:
        arguments += ["--set", setting]
    with Server(arguments, "callboard serve") as server:
        yield server


def _connect_round(server: Server, context: ssl.SSLContext, clients: int) -> Round:
    addresses = {name: (host, int(port)) for name, host, port in LISTENERS.findall(server.address)}
    host, port = addresses["PLAINTEXT"]
    with Bystander(f"{host}:{port}", "nobody") as bystander:
        time.sleep(PAUSE_S)
        cpu_s, began_s = process_cpu_s(server.pid), time.perf_counter()
        uvloop.run(_connect_all(*addresses["SSL"], context, clients))
        ended_s, ended_cpu_s = time.perf_counter(), process_cpu_s(server.pid)
        waits = bystander.stop_and_collect().heartbeats
    used_s = 0.0 if cpu_s is None or ended_cpu_s is None else ended_cpu_s - cpu_s
    return Round(ended_s - began_s, used_s, _waits_between(waits, began_s, ended_s))


def _waits_between(waits: Sequence[Wait], began_s: float, ended_s: float) -> tuple[float, ...]:
    during = [wait for wait in waits if wait.began_s < ended_s and wait.began_s + wait.took_s > began_s]
    if not during:
        raise BenchError("no heartbeat was sent while the clients connected: expected more --clients")
    return tuple(sorted(1000 * wait.took_s for wait in during))


async def _connect_all(host: str, port: int, context: ssl.SSLContext, clients: int) -> None:
    """All at once; each stays connected until all are served."""
    writers = await asyncio.gather(*(_connect(host, port, context) for _ in range(clients)))
    for writer in writers:
        writer.transport.abort()


async def _connect(host: str, port: int, context: ssl.SSLContext) -> asyncio.StreamWriter:
    request = api("api_versions", 3).request(1, client_software_name="bench", client_software_version="1")
    try:
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
        writer.write(request)
        size = int.from_bytes(await reader.readexactly(SIZE_BYTES), "big")
        await reader.readexactly(size)
    except (OSError, EOFError) as error:
        raise BenchError(f"a client was not served: {error!r}") from error
    return writer


if __name__ == "__main__":
    raise SystemExit(main())
