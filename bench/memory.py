"""``callboard bench memory``: the memory of a server that clients fill, compared with ``memory_limit_bytes``.

Each row has a server of its own and fills it with one kind of thing, until the server refuses more or several times the
limit was sent. The exit status is 1 if the process needed more than one and a half times the limit.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

from callboard.bench.harness import (
    BenchError,
    Server,
    add_output,
    machine,
    peak_resident_bytes,
    print_table,
    some_of,
    write_json,
)
from callboard.bench.hostile import free_port
from callboard.bench.memory_fillings import COMMITTED_TOPIC, FILLINGS, Filled, Filling

PURPOSE = "Fill a server, and compare its memory with memory_limit_bytes."
LIMIT_MB = 256
QUICK_LIMIT_MB = 2
SENT_LIMITS = 3  # what is bounded without a refusal is filled with so many times the limit
ACCEPTED_RATIO = 1.5
METRICS_TIMEOUT_S = 60.0
MEGABYTE = 1024 * 1024
COUNTED = re.compile(r'^callboard_memory_bytes\{kind="[^"]*"\} (\S+)$', re.MULTILINE)

COLUMNS = ("filled with", "accepted", "ended by", "sent\nMB", "counted\nMB", "peak\nMB", "peak /\nlimit")


class Row(NamedTuple):
    """One line of the table. ``counted_bytes``: by the server. ``peak_bytes``: resident; None without ``/proc``."""

    name: str
    title: str
    filled: Filled
    limit_bytes: int
    counted_bytes: int
    peak_bytes: int | None

    @property
    def ratio(self) -> float | None:
        return None if self.peak_bytes is None else self.peak_bytes / self.limit_bytes

    @property
    def is_above(self) -> bool:
        """Whether the process needed too much memory."""
        return self.ratio is not None and self.ratio > ACCEPTED_RATIO


def main(argv: Sequence[str] | None = None) -> int:
    """Fill, print, write the JSON. 1 if a row is above ``ACCEPTED_RATIO``, or a server did not run.

    A quick run has a limit that is lower than the memory of an empty process, and asserts no ratio.
    """
    options = _options(argv)
    rows = []
    try:
        for filling in options.fillings:
            rows.append(measure(filling, options.limit_mb * MEGABYTE))
            print(f"memory: {filling.name}: {' '.join(_cells(rows[-1])[1:])}", file=sys.stderr)
    except (BenchError, OSError) as error:
        print(f"memory: {error}", file=sys.stderr)
        return 1
    _show(rows, options.limit_mb)
    if options.output is not None:
        shown = [{**row._asdict(), "filled": row.filled._asdict(), "ratio": row.ratio} for row in rows]
        write_json(options.output, {"bench": "memory", "machine": machine(), "rows": shown})
    return int(any(row.is_above for row in rows) and not options.quick)


def measure(filling: Filling, limit_bytes: int) -> Row:
    """Fill a new server. Raises BenchError."""
    metrics_address = f"127.0.0.1:{free_port()}"
    with _server(filling, limit_bytes, metrics_address) as server, ExitStack() as stack:
        filled = filling.fill(stack, server.address, SENT_LIMITS * limit_bytes)
        counted_bytes = counted_in(_metrics_page(metrics_address))
        return Row(filling.name, filling.title, filled, limit_bytes, counted_bytes, peak_resident_bytes(server.pid))


def _metrics_page(address: str) -> str:
    """The server's metrics. Asks again while it is busy. Raises OSError."""
    give_up_s = time.monotonic() + METRICS_TIMEOUT_S
    while True:
        with closing(HTTPConnection(address, timeout=METRICS_TIMEOUT_S)) as connection:
            connection.request("GET", "/metrics")
            response = connection.getresponse()
            text = response.read().decode()
        if response.status == HTTPStatus.OK:
            return text
        if response.status != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > give_up_s:
            raise OSError(f"GET /metrics was answered with {response.status} {response.reason}")


def counted_in(page: str) -> int:
    """The bytes of all kinds on a page of metrics."""
    return round(sum(float(value) for value in COUNTED.findall(page)))


@contextmanager
def _server(filling: Filling, limit_bytes: int, metrics_address: str) -> Iterator[Server]:
    settings = [f"memory_limit_bytes={limit_bytes}", "group_initial_rebalance_delay_ms=0"]
    settings += [setting.format(part=limit_bytes // 2) for setting in filling.settings]
    with tempfile.TemporaryDirectory(prefix="bench-memory-", dir=Path.cwd()) as folder:
        arguments = ["serve", "--listen", "127.0.0.1:0", "--data", folder, "--metrics", metrics_address]
        arguments += ["--topic", f"{COMMITTED_TOPIC}:1"]
        arguments += [argument for setting in settings for argument in ("--set", setting)]
        with Server(["-m", "callboard", *arguments], "callboard serve") as server:
            yield server


# Output --------------------------------------------------------------------------------------------------------------


def _show(rows: Sequence[Row], limit_mb: int) -> None:
    notes = [
        f"memory_limit_bytes is {limit_mb} MB; ended by: a refusal, or {SENT_LIMITS} times the limit",
        "counted: by the server, at the end; peak: resident memory of the whole process, with the program itself",
    ]
    above = [row.name for row in rows if row.is_above]
    notes.append(f"above {ACCEPTED_RATIO} times the limit: {', '.join(above) or 'none'}")
    print_table("Memory of a server that is filled", COLUMNS, [_cells(row) for row in rows], notes)


def _cells(row: Row) -> tuple[str, ...]:
    filled = row.filled
    return (
        row.title,
        f"{filled.accepted:,}",
        "refusal" if filled.is_refused else "limit sent",
        f"{filled.sent_bytes / MEGABYTE:,.0f}",
        f"{row.counted_bytes / MEGABYTE:,.0f}",
        "" if row.peak_bytes is None else f"{row.peak_bytes / MEGABYTE:,.0f}",
        "" if row.ratio is None else f"{row.ratio:.2f}",
    )


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    names = [filling.name for filling in FILLINGS]
    parser = argparse.ArgumentParser(prog="callboard bench memory", description=PURPOSE)
    parser.add_argument("--only", type=some_of(names), metavar="A,B", help=f"some of: {', '.join(names)}")
    parser.add_argument("--limit-mb", type=int, metavar="N", default=LIMIT_MB, help=f"the limit (default {LIMIT_MB})")
    parser.add_argument("--quick", action="store_true", help=f"a limit of {QUICK_LIMIT_MB} MB, as a smoke test")
    add_output(parser)
    options = parser.parse_args(argv)
    options.fillings = [filling for filling in FILLINGS if options.only is None or filling.name in options.only]
    if options.quick:
        options.limit_mb = QUICK_LIMIT_MB
    if options.limit_mb < 1:
        parser.error(f"--limit-mb {options.limit_mb}: expected 1 or more")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
