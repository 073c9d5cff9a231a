"""``callboard bench overload``: the server gets twice the requests that it can handle, for a minute.

Members with sessions of ten seconds send heartbeats and commits in an open loop, at twice the highest rate that the
same connections have reached in a closed loop. Three other members stop sending at different times. No session of a
member that sends may end, no acknowledged commit may be lost, a member that is gone must be out five seconds after its
session at the latest, and five seconds after the load the latencies must be as before.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from callboard.bench.harness import BenchError, machine, peak_resident_bytes, print_table, write_json
from callboard.bench.overload_load import LoadPhase, OverloadLoadResult, OverloadProcess
from callboard.bench.server import callboard_server
from callboard.bench.wire import Client, api

PURPOSE = "Measure the server with twice the requests that it can handle."
CONNECTIONS = 32
SECONDS = 60.0
CLOSED_SECONDS = 3.0
QUICK_SECONDS = 2.0
QUICK_CLOSED_SECONDS = 0.3
SESSION_MS = 10_000
POLL_S = 0.2
DEAD_LATE_MAX_S = 5.0
GIVE_UP_S = 60.0

COLUMNS = ("phase", "requests/s", "of closed\nloop", "not sent", "p50\nms", "p99\nms", "longest\nms", "server\nus/req")


class OverloadResult(NamedTuple):
    """``dead_late_s``: how long after its session each member that sent nothing was seen to be out."""

    load: OverloadLoadResult
    dead_late_s: dict[str, float]
    peak_bytes: int | None


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write the JSON. 1 if a response was wrong, a commit was lost, or a server did not run."""
    options = _options(argv)
    try:
        result = measure(options.connections, options.closed_seconds, options.seconds)
    except (BenchError, OSError) as error:
        print(f"overload: {error}", file=sys.stderr)
        return 1
    _show(result)
    if options.json is not None:
        write_json(options.json, {"bench": "overload", "machine": machine(), **_to_json(result)})
    return 0


def measure(connections: int, closed_s: float, seconds: float) -> OverloadResult:
    """Raises BenchError."""
    with (
        callboard_server() as server,
        Client(server.address) as watcher,
        OverloadProcess(server, connections, closed_s, seconds, SESSION_MS) as process,
    ):
        load, out_s = _watch(watcher, process)
        peak_bytes = peak_resident_bytes(server.pid)
    late_s = {group: out_s[group] - load.dead_last_s[group] - SESSION_MS / 1000 for group in process.dead_groups}
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
            raise BenchError(f"only {sorted(out_s)} are empty a minute after the load")
    return load, out_s


def _empty_groups(watcher: Client, groups: Sequence[str]) -> list[str]:
    if not groups:
        return []
    answer = watcher.ask(api("describe_groups", 5), groups=tuple(groups), include_authorized_operations=False)
    return [group.group_id for group in answer.groups if group.group_state == "Empty"]


# Output --------------------------------------------------------------------------------------------------------------


def _show(result: OverloadResult) -> None:
    load = result.load
    phases = {"before": load.before, "overload": load.overload, "after": load.after}
    rows = [_cells(name, phase, load.closed_rate) for name, phase in phases.items()]
    print_table("callboard bench overload", COLUMNS, rows, _notes(result))


def _cells(name: str, phase: LoadPhase, closed_rate: float) -> tuple[str, ...]:
    rate = phase.answered / phase.seconds
    times = (phase.latency_p50_s, phase.latency_p99_s, phase.latency_max_s)
    return (
        name,
        f"{rate:,.0f}",
        f"{rate / closed_rate:.0%}",
        f"{phase.late:,}",
        *(f"{1000 * seconds:,.1f}" for seconds in times),
        "" if phase.server_cpu_s is None else f"{1e6 * phase.server_cpu_s / phase.answered:,.1f}",
    )


def _notes(result: OverloadResult) -> list[str]:
    load = result.load
    drained = "not in 5 s" if load.drained_s < 0 else f"after {load.drained_s:.2f} s"
    late = ", ".join(f"{seconds:.1f} s" for seconds in result.dead_late_s.values())
    notes = [
        f"In a closed loop these connections reached {load.closed_rate:,.0f} requests/s; the overload is twice that.",
        *_closed_cpu_note(load),
        "Every response was compared with the expected bytes, so no session of a member that sends has ended.",
        f"{load.compared} last acknowledged commits were read back and are correct.",
        f"All requests that were sent were answered {drained} after the load.",
        f"Members that sent nothing more were out {late} after their sessions; accepted: {DEAD_LATE_MAX_S:g} s.",
        "Latencies are counted from the intended time of a request. Not sent: due, but the connection took no more.",
    ]
    if result.peak_bytes is not None:
        notes.append(f"The server used {result.peak_bytes / 1e6:,.0f} MB at most.")
    return notes


def _closed_cpu_note(load: OverloadLoadResult) -> list[str]:
    return [] if load.closed_cpu_s is None else [f"A request cost the server {1e6 * load.closed_cpu_s:.1f} us there."]


def _to_json(result: OverloadResult) -> dict[str, Any]:
    load = result.load
    phases = {name: getattr(load, name)._asdict() for name in ("before", "overload", "after")}
    return {**load._asdict(), **phases, "dead_late_s": result.dead_late_s, "peak_bytes": result.peak_bytes}


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench overload", description=PURPOSE)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="seconds of the overload (default 60)")
    parser.add_argument("--closed-seconds", type=float, default=CLOSED_SECONDS, help="of the closed loop (default 3)")
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
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
