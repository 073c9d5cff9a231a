"""``callboard bench overload``: the server gets twice the requests that it can handle, for a minute.

Members with sessions of ten seconds send heartbeats and commits in an open loop, at twice the highest rate that the
same connections have reached in a closed loop. Three other members stop sending at different times. ``bars_of`` says
what must hold: the exit status is 1 if it does not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

from callboard.bench.harness import BenchError, add_output, machine, peak_resident_bytes, print_table, write_json
from callboard.bench.overload_load import PHASES, LoadPhase, OverloadLoadResult, OverloadProcess
from callboard.bench.serving import callboard_server
from callboard.bench.wire import Client, api

PURPOSE = "Measure the server with twice the requests that it can handle."
CONNECTIONS = 32
SECONDS = 60.0
CLOSED_SECONDS = 3.0
QUICK_SECONDS = 2.0
QUICK_CLOSED_SECONDS = 0.3
SESSION_MS = 10_000
POLL_S = 0.2
LIMIT_MB = 256
GIVE_UP_S = 60.0
MEGABYTE = 1024 * 1024

DEAD_LATE_MAX_S = 5.0
DEAD_EARLY_MAX_S = 1.0
"""How much earlier than a session after its last answer a member may be out: its last answer may have waited here."""

RECOVERED_RATIO = 2.0
RECOVERED_P99_S = 0.02
"""After the load the p99 is back if it is at most twice that before, or at most this."""

COLUMNS = (
    *("phase", "requests/s", "of closed\nloop", "not sent"),
    *("heartbeat\np50 ms", "p99", "longest", "commit\np50 ms", "p99", "longest", "server\nus/req"),
)
BAR_COLUMNS = ("what must hold", "accepted", "measured", "")


class OverloadResult(NamedTuple):
    """``dead_late_s``: how long after its session each member that sent nothing was seen to be out; inf if never.

    ``peak_bytes``: resident; None without ``/proc``.
    """

    load: OverloadLoadResult
    dead_late_s: dict[str, float]
    peak_bytes: int | None


class Bar(NamedTuple):
    """One thing that must hold. ``is_timed``: it depends on the speed of the machine, also if the server is correct."""

    name: str
    accepted: str
    measured: str
    is_met: bool
    is_timed: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write the JSON. 1 if a bar is missed, or a server did not run.

    A quick run is too short for the timed bars, which are printed only.
    """
    options = _options(argv)
    try:
        result = measure(options.connections, options.closed_seconds, options.seconds)
    except (BenchError, OSError) as error:
        print(f"overload: {error}", file=sys.stderr)
        return 1
    bars = bars_of(result)
    _show(result, bars)
    if options.output is not None:
        write_json(options.output, {"bench": "overload", "machine": machine(), **_to_json(result, bars)})
    return int(any(not bar.is_met for bar in bars if not (options.quick and bar.is_timed)))


def measure(connections: int, closed_s: float, seconds: float) -> OverloadResult:
    """Raises BenchError."""
    with (
        callboard_server(settings=[f"memory_limit_bytes={LIMIT_MB * MEGABYTE}"]) as server,
        Client(server.address) as watcher,
        OverloadProcess(server, connections, closed_s, seconds, SESSION_MS) as process,
    ):
        load, out_s = _watch(watcher, process)
        peak_bytes = peak_resident_bytes(server.pid)
    late_s = {name: out_s.get(name, inf) - load.dead_last_s[name] - SESSION_MS / 1000 for name in process.dead_groups}
    return OverloadResult(load, late_s, peak_bytes)


def _watch(watcher: Client, process: OverloadProcess) -> tuple[OverloadLoadResult, dict[str, float]]:
    """Wait for the end of the load, and note when each of the dead groups was seen to be empty."""
    out_s: dict[str, float] = {}
    load: OverloadLoadResult | None = None
    give_up_s = float("inf")
    while load is None or len(out_s) < len(process.dead_groups):
        for group in _empty_groups(watcher, [group for group in process.dead_groups if group not in out_s]):
            out_s[group] = time.perf_counter()
        if load is None:
            load = process.result(POLL_S)
            give_up_s = time.perf_counter() + GIVE_UP_S
        else:
            time.sleep(POLL_S)
        if load is not None and time.perf_counter() > give_up_s:
            break
    return load, out_s


def _empty_groups(watcher: Client, groups: Sequence[str]) -> list[str]:
    if not groups:
        return []
    answer = watcher.ask(api("describe_groups", 5), groups=tuple(groups), include_authorized_operations=False)
    return [group.group_id for group in answer.groups if group.group_state == "Empty"]


# Bars ----------------------------------------------------------------------------------------------------------------


def bars_of(result: OverloadResult) -> list[Bar]:
    """What must hold."""
    load, late_s = result.load, result.dead_late_s.values()
    early = sum(seconds < -DEAD_EARLY_MAX_S for seconds in late_s)
    ended = len(load.wrong_answers) + early
    lost = len(load.lost_commits)
    dead = ", ".join(f"{seconds:.1f}" for seconds in late_s)
    bars = [
        Bar("sessions of members that send and have ended", "0", str(ended), not ended),
        Bar("acknowledged commits that are lost", "0", f"{lost} of {load.compared}", not lost),
        Bar(
            "dead members are out, seconds after their sessions",
            f"at most {DEAD_LATE_MAX_S:g}",
            dead,
            all(seconds <= DEAD_LATE_MAX_S for seconds in late_s),
            is_timed=True,
        ),
        _recovery_bar("heartbeats", load.before.heartbeats.p99_s, load.after.heartbeats.p99_s),
        _recovery_bar("commits", load.before.commits.p99_s, load.after.commits.p99_s),
    ]
    if result.peak_bytes is not None:
        peak_mb = result.peak_bytes / MEGABYTE
        bars.append(Bar("resident memory, MB", f"at most {LIMIT_MB}", f"{peak_mb:,.0f}", peak_mb <= LIMIT_MB))
    return bars


def _recovery_bar(kind: str, before_s: float, after_s: float) -> Bar:
    accepted_s = max(before_s * RECOVERED_RATIO, RECOVERED_P99_S)
    name = f"p99 of {kind} 5 s after the load, ms"
    return Bar(name, f"at most {1000 * accepted_s:,.1f}", f"{1000 * after_s:,.1f}", after_s <= accepted_s, True)


# Output --------------------------------------------------------------------------------------------------------------


def _show(result: OverloadResult, bars: Sequence[Bar]) -> None:
    load = result.load
    rows = [_cells(name, getattr(load, name), load.closed_rate) for name in PHASES]
    print_table("callboard bench overload", COLUMNS, rows, _notes(result))
    cells = [(bar.name, bar.accepted, bar.measured, "ok" if bar.is_met else "missed") for bar in bars]
    print_table("", BAR_COLUMNS, cells, [*load.wrong_answers, *load.lost_commits])


def _cells(name: str, phase: LoadPhase, closed_rate: float) -> tuple[str, ...]:
    rate = phase.answered / phase.seconds
    return (
        name,
        f"{rate:,.0f}",
        f"{rate / closed_rate:.0%}",
        f"{phase.late:,}",
        *(f"{1000 * seconds:,.1f}" for seconds in (*phase.heartbeats, *phase.commits)),
        "" if phase.server_cpu_s is None else f"{1e6 * phase.server_cpu_s / phase.answered:,.1f}",
    )


def _notes(result: OverloadResult) -> list[str]:
    load = result.load
    drained = "after more than 5 s" if load.drained_s < 0 else f"after {load.drained_s:.2f} s"
    return [
        f"In a closed loop these connections reached {load.closed_rate:,.0f} requests/s; the overload is twice that.",
        *_closed_cpu_note(load),
        "Every response was compared with the expected bytes. Another one counts as a session that has ended.",
        f"At the end of the load {load.backlog:,} requests had no answer. All of them were answered {drained}.",
        "Latencies are counted from the intended time of a request. Not sent: due, but the connection took no more.",
    ]


def _closed_cpu_note(load: OverloadLoadResult) -> list[str]:
    return [] if load.closed_cpu_s is None else [f"A request cost the server {1e6 * load.closed_cpu_s:.1f} us there."]


def _to_json(result: OverloadResult, bars: Sequence[Bar]) -> dict[str, Any]:
    shown = [bar._asdict() for bar in bars]
    return {**result.load.to_json(), "dead_late_s": result.dead_late_s, "peak_bytes": result.peak_bytes, "bars": shown}


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench overload", description=PURPOSE)
    parser.add_argument(
        "--seconds", type=float, metavar="SECONDS", default=SECONDS, help="seconds of the overload (default 60)"
    )
    parser.add_argument(
        "--closed-seconds", type=float, metavar="SECONDS", default=CLOSED_SECONDS, help="of the closed loop (default 3)"
    )
    parser.add_argument("--connections", type=int, metavar="N", default=CONNECTIONS)
    add_output(parser)
    parser.add_argument("--quick", action="store_true", help="an overload of 2 s, as a smoke test")
    options = parser.parse_args(argv)
    if options.quick:
        options.seconds, options.closed_seconds = QUICK_SECONDS, QUICK_CLOSED_SECONDS
    for name in ("seconds", "closed_seconds"):
        if getattr(options, name) <= 0:
            parser.error(f"--{name.replace('_', '-')} {getattr(options, name)}: expected more than 0")
    if options.connections < 4:
        parser.error(f"--connections {options.connections}: expected at least 4, of which one commits")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
