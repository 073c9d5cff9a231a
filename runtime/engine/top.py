"""top: a live table of a running system, for people. The figures come from ``System.stats``; rich draws the table.

    await watch(system)              # on a loop, until it is cancelled
    watch_blocking(system, 60)       # for a minute, from a thread that does not run actors
    print_stats(system, sys.stderr)  # once

Only this module imports rich, so a program that shows no table does not load it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ...actors.text import printable

if TYPE_CHECKING:
    from .stats import Stats
    from .system import System

FILE_COLUMNS = 120
"""The width of a table in a file or a pipe."""

HEADER_COLUMNS = 72
"""The minimum width of the table, because the lines above it are folded to its width."""

MILLISECOND_US = 1000
SECOND_US = 1_000_000


def table(stats: Stats, previous: Stats | None = None, seconds: float = 0.0) -> Table:
    """A line for each class of actors. Rates are since ``previous``, which was taken ``seconds`` before ``stats``.

    Without ``previous`` there are no rates. Durations of turns are those since the system began.
    """
    drawn = Table(title=_header(stats), caption=_footer(stats), box=SIMPLE_HEAD, min_width=HEADER_COLUMNS)
    drawn.title_style = drawn.caption_style = ""
    drawn.title_justify = drawn.caption_justify = "left"
    drawn.add_column("class", overflow="fold")
    for heading in ("actors", "passivated", "waiting", "messages/s", "messages"):
        drawn.add_column(heading, justify="right")
    before = None if previous is None else _handled(previous)
    for row in stats.classes:
        rate = "-" if before is None or seconds <= 0 else _number((row.handled - before[row.name]) / seconds)
        drawn.add_row(Text(printable(row.name)), *map(_number, row[1:4]), rate, _number(row.handled))
    if len(stats.classes) > 1:
        _add_sum(drawn, stats, previous, seconds)
    return drawn


def _add_sum(drawn: Table, stats: Stats, previous: Stats | None, seconds: float) -> None:
    passivated = sum(row.passivated for row in stats.classes)
    rate = "-" if previous is None or seconds <= 0 else _number((stats.handled - previous.handled) / seconds)
    drawn.add_section()
    drawn.add_row("all", *map(_number, (stats.actors, passivated, stats.waiting)), rate, _number(stats.handled))


def _handled(stats: Stats) -> Counter[str]:
    return Counter({row.name: row.handled for row in stats.classes})


def _header(stats: Stats) -> Text:
    turns = stats.turns
    times = f"p50 {_time(turns.p50_us)}, p99 {_time(turns.p99_us)}, longest {_time(turns.longest_us)}"
    lost = f"restarts {stats.restarts:,}   dead letters {stats.dead_letters:,}   late replies {stats.late_replies:,}"
    return Text(f"turns {turns.turns:,}: {times}\n{lost}")


def _footer(stats: Stats) -> Text:
    if not stats.deepest:
        return Text("no message waits")
    lines = [f"  {mailbox.waiting:,} for {printable(mailbox.actor)}" for mailbox in stats.deepest]
    return Text("\n".join(["waiting most:", *lines]))


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _time(us: float) -> str:
    if us < MILLISECOND_US:
        return f"{us:.0f} us"
    return f"{us / MILLISECOND_US:.1f} ms" if us < SECOND_US else f"{us / SECOND_US:.1f} s"


class _Screen:
    """The table on a terminal. ``draw`` redraws it."""

    def __init__(self, system: System, console: Console | None) -> None:
        self._system = system
        self._taken_s = time.monotonic()
        self._stats = system.stats()
        # Only ``draw`` refreshes the table: a refresh thread of rich would contend with the actors for the GIL.
        self.live = Live(table(self._stats), console=console, auto_refresh=False)

    def draw(self) -> None:
        now_s, stats = time.monotonic(), self._system.stats()
        self.live.update(table(stats, self._stats, now_s - self._taken_s), refresh=True)
        self._taken_s, self._stats = now_s, stats


async def watch(system: System, every_s: float = 1.0, console: Console | None = None) -> None:
    """Draw the table on the terminal every ``every_s`` seconds, until the task is cancelled."""
    screen = _Screen(system, console)
    with screen.live:
        while True:
            await asyncio.sleep(every_s)
            screen.draw()


def watch_blocking(
    system: System, seconds: float | None = None, every_s: float = 1.0, console: Console | None = None
) -> None:
    """Like ``watch``, from a thread that does not run actors: for ``seconds``, or with None until Ctrl-C."""
    screen = _Screen(system, console)
    try:
        with screen.live:
            for pause_s in _pauses(seconds, every_s):
                time.sleep(pause_s)
                screen.draw()
    except KeyboardInterrupt:
        return


def _pauses(seconds: float | None, every_s: float) -> Iterator[float]:
    """How long to sleep before each drawing; they add up to ``seconds``."""
    if seconds is None:
        while True:
            yield every_s
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        yield min(every_s, left_s)


def print_stats(system: System, file: TextIO) -> None:
    """Write the table once, without rates. May be called from any thread, and while the actors run."""
    width = None if file.isatty() else FILE_COLUMNS
    Console(file=file, width=width).print(table(system.stats()))
    file.flush()
