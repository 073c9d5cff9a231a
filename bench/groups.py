"""Memory of many groups, passivated and active. ``callboard bench groups``.

A data folder is created with groups that have a group record and one committed offset each. A server starts on it; its
resident memory is read when the log is loaded, and again after some groups were activated by an OffsetFetch.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from callboard.actors.javahash import offsets_partition
from callboard.actors.ports import Appended, Entry
from callboard.actors.records import GroupRecord, GroupValue, OffsetRecord, OffsetValue
from callboard.bench.harness import BenchError, Server, add_output, machine, print_table, resident_bytes, write_json
from callboard.bench.wire import Client, api
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.offsets_log import OffsetsLog

PURPOSE = __doc__.splitlines()[0]
PARTITIONS = 50
GROUPS_A_ROUND = 5000
TIMESTAMP_MS = 1_700_000_000_000
AIM_MB = 600
LOAD_PATIENCE_S = 300.0
_LOADED = re.compile(r" loaded [0-9,]+ records? in ([0-9.]+) s$")
FETCH = ("offset_fetch", 7)


class GroupFigures(NamedTuple):
    """The measured figures; memory in bytes."""

    loaded_s: float
    empty_bytes: int
    known_bytes: int
    active_bytes: int


def group_name(number: int) -> str:
    return f"workers-of-service-{number}"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write the JSON; 1 if a server did not run or an offset was missing."""
    options = _options(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="callboard-groups-") as folder:
            figures = measure(Path(folder), options.groups, options.active)
    except BenchError as error:
        print(f"groups: {error}", file=sys.stderr)
        return 1
    _show(options.groups, options.active, figures)
    if options.output is not None:
        result = {"groups": options.groups, "active": options.active, **figures._asdict(), "machine": machine()}
        write_json(options.output, result)
    return 0


def measure(folder: Path, groups: int, active_groups: int) -> GroupFigures:
    with _serve(folder / "empty") as server:
        empty_bytes = _resident(server)
    fill(folder / "data", groups)
    with _serve(folder / "data") as server:
        loaded_s, known_bytes = _loaded_s(server), _resident(server)
        activate(server.address, groups, active_groups)
        return GroupFigures(loaded_s, empty_bytes, known_bytes, _resident(server))


def fill(path: Path, groups: int) -> None:
    """Write the records of the groups through the log itself."""
    path.mkdir()
    folder = DataFolder(path, PARTITIONS)
    log = OffsetsLog(path, PARTITIONS, sync="none")
    (path / "topics.json").write_text("{}")  # a data folder must have a file of topics
    log.open()
    try:
        for first in range(0, groups, GROUPS_A_ROUND):
            _append(log, [_entry(number) for number in range(first, min(first + GROUPS_A_ROUND, groups))])
    finally:
        log.close()
        folder.close()


def _entry(number: int) -> Entry:
    name = group_name(number)
    value = GroupValue("consumer", 2, None, None, TIMESTAMP_MS + number, ())
    offset = OffsetValue(number, 0, "", TIMESTAMP_MS + number)
    records = (GroupRecord(name, value), OffsetRecord(name, "jobs", number % 12, offset))
    return Entry(offsets_partition(name, PARTITIONS), records)


def _append(log: OffsetsLog, entries: Sequence[Entry]) -> None:
    """Append one round and wait for it. Raises BenchError if the log refused it."""
    appended = threading.Event()
    errors: list[Appended] = []

    def on_appended(outcomes: Sequence[Appended]) -> None:
        errors.extend(outcome for outcome in outcomes if outcome.error)
        appended.set()

    log.append(entries, TIMESTAMP_MS, on_appended)
    appended.wait()
    if errors:
        raise BenchError(f"the log refused {len(errors)} of {len(entries)} groups: {errors[0].error.name}")


def activate(address: str, groups: int, active_groups: int) -> None:
    """Fetch the offsets of ``active_groups`` groups, evenly chosen. BenchError if an offset is wrong."""
    fetch = api(*FETCH)
    topic = fetch.types.OffsetFetchRequestTopic
    with Client(address) as client:
        for index in range(active_groups):
            number = index * groups // active_groups
            topics = (topic(name="jobs", partition_indexes=(number % 12,)),)
            answer = client.ask(fetch, group_id=group_name(number), topics=topics, require_stable=False)
            [partition] = answer.topics[0].partitions
            if partition.committed_offset != number:
                raise BenchError(f"{group_name(number)} has offset {partition.committed_offset}, expected {number}")


def _serve(data: Path) -> Server:
    arguments = ["-m", "callboard", "serve", "--listen", "127.0.0.1:0", "--data", str(data)]
    return Server(arguments, "callboard serve")


def _loaded_s(server: Server) -> float:
    """The time of loading the log, which continues after the server is ready."""
    line = server.read_line(LOAD_PATIENCE_S)
    match = _LOADED.search(line)
    if match is None:
        raise BenchError(f"expected a line 'callboard loaded N records in S s', got {line!r}")
    return float(match[1])


def _resident(server: Server) -> int:
    time.sleep(0.2)  # until memory freed after the start is returned to the system
    memory = resident_bytes(server.pid)
    if memory is None:
        raise BenchError("this system has no /proc, which is needed to read the memory of a process")
    return memory


def _show(groups: int, active_groups: int, figures: GroupFigures) -> None:
    def row(label: str, resident: int, count: int) -> tuple[str, str, str]:
        per_group = f"{(resident - figures.empty_bytes) / count:,.0f} B" if count else ""
        return label, f"{resident / 1e6:,.0f} MB", per_group

    rows = [
        row("an empty server", figures.empty_bytes, 0),
        row(f"{groups:,} groups, all passivated", figures.known_bytes, groups),
        row(f"the same, {active_groups:,} of them active", figures.active_bytes, groups),
    ]
    notes = [
        f"loaded in {figures.loaded_s:.1f} s, with {2 * groups:,} records read",
        f"each active group: {(figures.active_bytes - figures.known_bytes) / active_groups:,.0f} B more"
        " than passivated",
        f"target: a million groups, ten thousand of them active, under {AIM_MB} MB",
    ]
    print_table("Groups in memory", ("", "resident", "per group"), rows, notes)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench groups", description=PURPOSE)
    parser.add_argument(
        "--groups", type=int, metavar="N", default=1_000_000, help="number of groups in the log (default 1,000,000)"
    )
    parser.add_argument(
        "--active", type=int, metavar="N", default=10_000, help="number of them to activate (default 10,000)"
    )
    parser.add_argument("--quick", action="store_true", help="20,000 groups, 200 of them active, as a smoke test")
    add_output(parser)
    options = parser.parse_args(argv)
    if options.quick:
        options.groups, options.active = 20_000, 200
    if not 0 < options.active <= options.groups:
        parser.error(f"--active {options.active}: expected 1 to --groups {options.groups}")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
