"""Time of a page of the HTTP API's list of groups, for every order and filter. ``callboard bench page``.

A data folder is created with many groups, and ``callboard serve --web`` starts on it. Each query is asked for twice:
cold is the first time, warm the second; the table of groups is read again each second, so that later orders of it are
cold as well. Meanwhile a member sends heartbeats. Their latency is also measured before the first page.

``--tail`` names the callbacks that held the server's event loop longest meanwhile. The server then runs on a loop that
measures each callback (``timed_loop.py``).
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

from callboard.bench.group_setup import Member, await_group, create_topic, join_members
from callboard.bench.groups import fill, group_name
from callboard.bench.harness import BenchError, Server, add_output, machine, print_table, quantile, write_json
from callboard.bench.tail import LISTED
from callboard.bench.wire import Client, api

PURPOSE = __doc__.splitlines()[0]
COLUMNS = ("group", "state", "type", "protocol_type", "members", "topics", "lag", "expires_at")
SORTS = (*COLUMNS, *(f"-{name}" for name in COLUMNS))
FILTERS: dict[str, dict[str, str]] = {
    "all": {},
    "state": {"state": "Empty"},
    "type": {"type": "consumer"},
    "prefix": {"prefix": group_name(7)},
    "contains": {"contains": "7"},
    "guarded": {"guarded": "false"},
    "topic": {"topic": "jobs"},
    "min_lag": {"min_lag": "1"},
}
GROUP = "with-a-member"
HEARTBEAT_PAUSE_S = 0.005
READ_TIMEOUT_S = 300.0
AIM_MS = 50
HOLD_AIM_MS = 5


class PageTimes(NamedTuple):
    """The times of one query in ms."""

    filter: str
    sort: str
    cold_ms: float
    warm_ms: float


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write the JSON; 1 if a server did not run or a page was wrong."""
    options = _options(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="callboard-page-") as folder:
            result = measure(Path(folder) / "data", options.groups, options.baseline_seconds, is_tail=options.tail)
    except BenchError as error:
        print(f"page: {error}", file=sys.stderr)
        return 1
    _show(options.groups, result)
    if options.output is not None:
        write_json(options.output, {"groups": options.groups, **result, "machine": machine()})
    return 0


def measure(data: Path, groups: int, baseline_s: float, *, is_tail: bool = False) -> dict[str, Any]:
    """``is_tail``: also what held the loop. Raises BenchError."""
    fill(data, groups)
    port = _free_port()
    program = "callboard.bench.timed_loop" if is_tail else "callboard"
    arguments = ["-m", program, "serve", "--listen", "127.0.0.1:0", "--data", str(data)]
    arguments += ["--web", f"127.0.0.1:{port}"]
    with Server(arguments, "callboard serve") as server, Client(server.address) as client, Pages(port) as pages:
        await_group(client, GROUP)
        topic = create_topic(client, 1)
        [member] = join_members([client], [GROUP], topic)
        server.read_line(READ_TIMEOUT_S)  # that the log is loaded
        if is_tail:
            take_holds(server)
        with heartbeats(client, member) as before:
            time.sleep(baseline_s)
        holds = {"before": take_holds(server)} if is_tail else {}
        pages.await_groups(groups + 1)
        if is_tail:
            take_holds(server)
        with heartbeats(client, member) as during:
            times = [pages.times(name, sort) for name in FILTERS for sort in SORTS]
            if is_tail:
                pages.ask_for(baseline_s)
                holds["during"] = take_holds(server)
    figures: dict[str, Any] = {"heartbeats": {"before": before, "during": during}}
    return {"pages": [each._asdict() for each in times], **figures, **({"tail": holds} if holds else {})}


def take_holds(server: Server) -> dict[str, Any]:
    """What has held the loop since the last time, the longest first."""
    server.write_line("report")
    report: dict[str, Any] = json.loads(server.read_line(READ_TIMEOUT_S))
    return report


class Pages:
    """Asks for pages, on one connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=READ_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._connection.close()

    def get(self, **parameters: str) -> dict[str, Any]:
        self._connection.request("GET", f"/api/v1/groups?{urlencode(parameters)}")
        response = self._connection.getresponse()
        text = response.read()
        if response.status != 200:
            raise BenchError(f"a page has status {response.status}: {text[:200]!r}")
        page: dict[str, Any] = json.loads(text)
        return page

    def await_groups(self, groups: int) -> None:
        """Wait until all groups are in the list: each page of a thousand follows the one before it."""
        deadline_s = time.monotonic() + READ_TIMEOUT_S
        while (found := self._count()) != groups:
            if time.monotonic() > deadline_s:
                raise BenchError(f"the list has {found} groups, expected {groups}")
            time.sleep(0.5)

    def _count(self) -> int:
        found = 0
        after: dict[str, str] = {}
        while True:
            try:
                page = self.get(limit="1000", **after)
            except BenchError:
                return -1  # the groups are being read
            found += len(page["items"])
            if page["after"] is None:
                return found
            after = {"after": page["after"]}

    def times(self, name: str, sort: str) -> PageTimes:
        cold_ms, warm_ms = (self._time_ms(sort=sort, **FILTERS[name]) for _ in range(2))
        return PageTimes(name, sort, cold_ms, warm_ms)

    def ask_for(self, seconds: float) -> None:
        """Ask for one page after the other."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            for name in FILTERS:
                for sort in SORTS:
                    self.get(sort=sort, **FILTERS[name])

    def _time_ms(self, **parameters: str) -> float:
        started_s = time.perf_counter()
        self.get(**parameters)
        return (time.perf_counter() - started_s) * 1000


@contextmanager
def heartbeats(client: Client, member: Member) -> Iterator[dict[str, float]]:
    """Send heartbeats meanwhile. Yields a dict that has their latencies in ms at the end. Raises BenchError."""
    figures: dict[str, float] = {}
    latencies_ms: list[float] = []
    errors: list[str] = []
    stopping = threading.Event()
    heartbeat = api("heartbeat", 4)
    fields = {"group_id": member.group_id, "member_id": member.member_id, "generation_id": member.generation}

    def run() -> None:
        while not stopping.wait(HEARTBEAT_PAUSE_S):
            started_s = time.perf_counter()
            code = client.ask(heartbeat, **fields).error_code
            latencies_ms.append((time.perf_counter() - started_s) * 1000)
            if code:
                errors.append(f"a heartbeat was answered with error code {int(code)}")
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield figures
    finally:
        stopping.set()
        thread.join()
    if errors or not latencies_ms:
        raise BenchError(errors[0] if errors else "no heartbeat was answered")
    ordered = sorted(latencies_ms)
    figures |= {"count": len(ordered), "p50_ms": quantile(ordered, 0.5), "p99_ms": quantile(ordered, 0.99)}
    figures["max_ms"] = ordered[-1]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def _show(groups: int, result: dict[str, Any]) -> None:
    rows = [_row(name, [page for page in result["pages"] if page["filter"] == name]) for name in FILTERS]
    before, during = result["heartbeats"]["before"], result["heartbeats"]["during"]
    notes = [
        f"the longest of {len(SORTS)} orders in each row; aim: under {AIM_MS} ms with 100,000 groups",
        f"a heartbeat before the first page: {_latency(before)}",
        f"a heartbeat meanwhile: {_latency(during)}",
    ]
    print_table(f"A page of {groups:,} groups", ("filter", "cold", "warm"), rows, notes)
    for name, title in (("before", "Without pages"), ("during", "While pages are asked for")):
        if "tail" in result:
            show_holds(f"{title}, what held the event loop", result["tail"][name])


def show_holds(title: str, report: dict[str, Any]) -> None:
    holds = sorted(report["holds"], key=lambda hold: hold["process_longest_ns"], reverse=True)
    keys = ("process_longest_ns", "cpu_longest_ns", "longest_ns")
    rows = [(hold["name"], *(f"{hold[key] / 1e6:.2f} ms" for key in keys)) for hold in holds[:LISTED]]
    notes = [
        f"of {report['callbacks']:,} callbacks; aim: {HOLD_AIM_MS} ms by this process",
        "by this process: at most the CPU time of its threads meanwhile, so it has the wait for the interpreter's lock",
        "a late timer on a busy machine: other threads ran while the loop waited for a processor, which counts, too",
    ]
    print_table(title, ("callback", "by this process", "CPU of the loop", "with other programs"), rows, notes)


def _row(name: str, pages: Sequence[dict[str, Any]]) -> tuple[str, str, str]:
    cold_ms, warm_ms = (max(page[key] for page in pages) for key in ("cold_ms", "warm_ms"))
    return name, f"{cold_ms:.1f} ms", f"{warm_ms:.1f} ms"


def _latency(figures: dict[str, float]) -> str:
    return f"{figures['p50_ms']:.2f} ms, 99 % below {figures['p99_ms']:.2f} ms, longest {figures['max_ms']:.1f} ms"


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench page", description=PURPOSE)
    parser.add_argument("--groups", type=int, metavar="N", default=100_000, help="number of groups (default 100,000)")
    parser.add_argument(
        "--baseline-seconds", type=float, metavar="SECONDS", default=5.0, help="seconds of heartbeats without pages"
    )
    parser.add_argument("--tail", action="store_true", help=f"also the {LISTED} callbacks that held the loop longest")
    parser.add_argument("--quick", action="store_true", help="2,000 groups, as a smoke test")
    add_output(parser)
    options = parser.parse_args(argv)
    if options.quick:
        options.groups, options.baseline_seconds = 2_000, 0.5
    if options.groups < 1:
        parser.error(f"--groups {options.groups}: expected 1 or more")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
