"""``callboard log dump|stats|verify|repair``: what lies in a data folder.

Exit codes: 0 all is well; 1 the disk could not be read; 2 the command line or the folder makes no sense, and nothing
was done; 3 something in the log is damaged, which was named.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import typer

from ...common.errors import StartError
from ...common.printing import print_error, print_json, print_line
from ...disk.disk import Disk, read_file
from ...disk.modes import disk_like
from ...engine.clock import wall_clock_ms
from ...log.folder import INFO_NAME, parse_info, write_info
from ...log.format.errors import Damage
from ...log.journal import FOLDER as JOURNAL
from ...log.journal import journal_number
from ...log.lost_journal import CONSEQUENCE, find_lost_journal
from ...log.partition_counts import PartitionCounts
from ...log.recovery.misplaced import check_counts
from ..groups.show import counted, grouped, print_facts, print_table
from ..main import make_app
from . import dump, repair
from .new_info import new_info
from .stats import PartitionStats, hottest_table, partition_stats, stats_table
from .verify import Checked, verify
from .walk import TOPICS, Found, LogPartition, Unreadable, find_partitions, is_torn_tail, lost_ends, walk

DISK_EXIT_CODE = 1
DAMAGED_EXIT_CODE = 3
UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
GONE = "what is gone no repair brings back: put back the files as they were, or see what the server's next start says"
MISPLACED = (
    f"with the numbers of partitions in {INFO_NAME} not all groups are found: put back the file as it was, or write a"
    " new one with callboard log repair DATA --partitions N --transaction-partitions M"
)
AGO = re.compile(r"([0-9]{1,9})([smhd])")

Data = Annotated[Path, typer.Argument(metavar="DATA", help="A server's data folder, or one with Kafka's folders.")]
Log = Annotated[
    str | None, typer.Option("--log", metavar="offsets|transactions", help="Only this log.  [default: both]")
]
Partitions = Annotated[
    list[int] | None, typer.Option("--partition", metavar="N", help="Only this log partition; may be repeated.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

app = make_app("Look at an offsets log, check it, mend it. All but repair read only, also while a server runs.")


class Wanted(NamedTuple):
    """Which records are asked for; times in ms since 1970."""

    groups: frozenset[str]
    since_ms: int | None
    until_ms: int | None

    def takes(self, found: Found) -> bool:
        """Ends of transactions count for all groups."""
        if self.since_ms is not None and found.timestamp_ms < self.since_ms:
            return False
        if self.until_ms is not None and found.timestamp_ms >= self.until_ms:
            return False
        return not self.groups or dump.group_of(found.record) in self.groups


def choose(data: Path, log: str | None, numbers: Sequence[int] | None) -> list[LogPartition]:
    """The partitions that were asked for. Raises StartError."""
    if log is not None and log not in TOPICS:
        raise StartError(f"bad --log '{log}': expected one of {', '.join(TOPICS)}")
    return find_partitions(data, None if log is None else TOPICS[log], numbers or ())


def parse_moment(option: str, text: str, now_ms: int) -> int:
    """``2026-01-31T08:00:00+01:00`` (UTC without a zone), or ``90m``: so long ago. Raises StartError."""
    ago = AGO.fullmatch(text)
    if ago is not None:
        return now_ms - int(ago[1]) * UNITS_MS[ago[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise StartError(
            f"bad {option} '{text}': expected ISO 8601, as in 2026-01-31T08:00:00Z, or how long ago, as in 90m, 12h, 7d"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


@app.command("dump")
def dump_log(
    data: Data,
    group: Annotated[list[str] | None, typer.Option(help="Only records of this group; may be repeated.")] = None,
    since: Annotated[str | None, typer.Option(metavar="ISO|7d", help="Only records of this time or later.")] = None,
    until: Annotated[str | None, typer.Option(metavar="ISO|7d", help="Only records before this time.")] = None,
    log: Log = None,
    partition: Partitions = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line, for programs.")] = False,
) -> None:
    """Print the records, oldest first within each partition; what is damaged is named on standard error."""
    now_ms = wall_clock_ms()
    since_ms, until_ms = (
        None if text is None else parse_moment(option, text, now_ms)
        for option, text in (("--since", since), ("--until", until))
    )
    wanted = Wanted(frozenset(group or ()), since_ms, until_ms)
    partitions = choose(data, log, partition)
    if not as_json:
        print_line(dump.in_columns(*dump.HEADER))
    shown = [_dump(one, wanted, as_json) for one in partitions]
    if not sum(count for count, _ in shown):
        print_error("no such records")
    if not all(is_whole for _, is_whole in shown):
        raise typer.Exit(DAMAGED_EXIT_CODE)


def _dump(partition: LogPartition, wanted: Wanted, as_json: bool) -> tuple[int, bool]:
    """How many were shown, and whether all of it could be read."""
    disk, count, is_whole = Disk(), 0, True
    for piece in walk(partition, disk):
        if isinstance(piece, Found):
            if wanted.takes(piece):
                count += 1
                if as_json:
                    print_json(dump.as_json(piece), indent=None)
                else:
                    print_line(dump.as_line(piece))
        elif isinstance(piece, Unreadable) or not is_torn_tail(piece, partition, disk):
            is_whole = False
            complain(piece)
    return count, is_whole


def complain(trouble: Damage | Unreadable) -> None:
    print_error(trouble)


@app.command("stats")
def show_stats(
    data: Data,
    log: Log = None,
    partition: Partitions = None,
    top: Annotated[int, typer.Option(min=0, max=10_000, help="How many of the hottest keys to show.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show what lives in the log and what is dead, who writes most, and how long it takes to load."""
    disk = Disk()
    found = [partition_stats(one, disk, top) for one in progress(choose(data, log, partition), as_json)]
    if as_json:
        print_json(
            {
                "partitions": stats_table(found).as_json(),
                "hottest": hottest_table(found, top).as_json(),
                "read_seconds": round(sum(one.seconds for one in found), 3),
            }
        )
        return
    if not found:
        print_line("no records yet")
        return
    print_table(stats_table(found))
    print_line()
    print_facts(facts_of(found))
    if top:
        print_line()
        print_table(hottest_table(found, top))


@app.command("verify")
def verify_log(data: Data, log: Log = None, partition: Partitions = None, as_json: AsJson = False) -> None:
    """Check every checksum and record, and that reading, loading and compacting come to the same."""
    disk, partitions, checked = Disk(), choose(data, log, partition), []
    for one in progress(partitions, as_json):
        with TemporaryDirectory(prefix="callboard-verify-") as scratch:
            checked.append(verify(one, Path(scratch), disk))
        if not as_json:
            show_trouble(checked[-1])
    lost_journal = find_lost_journal(disk, data)
    if lost_journal is not None:
        print_error(f"{lost_journal.path}: {lost_journal.reason}: {CONSEQUENCE}")
    if as_json:
        print_json([checked_json(one) for one in checked])
    else:
        print_line(in_one_line(checked, lost_journal))
        print_journal_hint(data, disk)
    if lost_journal is not None or not all(one.is_well for one in checked):
        raise typer.Exit(DAMAGED_EXIT_CODE)


def show_trouble(one: Checked) -> None:
    for trouble in (*one.troubles, *one.differences):
        print_line(f"{one.partition.folder.name}: {trouble}")
    if one.misplaced is not None:
        print_line(one.misplaced)
    if one.torn is not None:
        print_line(
            f"{one.torn} (the end of the newest file: being written, or torn by a crash; the next start cuts it)"
        )


def in_one_line(checked: Sequence[Checked], lost_journal: Damage | None) -> str:
    records, size = sum(one.records for one in checked), sum(one.size for one in checked)
    troubles = sum(len(one.troubles) + len(one.differences) + (one.misplaced is not None) for one in checked)
    troubles += lost_journal is not None
    advice = "callboard log repair takes them out"
    if lost_journal is not None or any(one.is_short for one in checked):
        advice = GONE
    if any(one.misplaced is not None for one in checked):
        advice = MISPLACED
    what = f"{counted(records, 'record')}, {counted(size, 'byte')} in {counted(len(checked), 'partition')}"
    verdict = "all is well" if not troubles else f"{counted(troubles, 'fault')}; {advice}"
    return f"{what}: {verdict}"


def print_journal_hint(data: Path, disk: Disk) -> None:
    if any(journal_number(name) is not None for name in disk.names(data / JOURNAL)):
        print_line(
            "there is a journal: a server runs, or was killed; what it has not laid into the log yet was not looked at"
        )


def checked_json(one: Checked) -> dict[str, Any]:
    return {
        "partition": one.partition.folder.name,
        "records": one.records,
        "bytes": one.size,
        "keys": one.keys,
        "is_well": one.is_well,
        "troubles": [str(trouble) for trouble in one.troubles],
        "torn": None if one.torn is None else str(one.torn),
        "differences": list(one.differences),
        "misplaced": None if one.misplaced is None else str(one.misplaced),
    }


@app.command("repair")
def repair_log(
    data: Data,
    log: Log = None,
    partition: Partitions = None,
    partitions_: Annotated[
        int | None, typer.Option("--partitions", min=1, metavar="N", help=f"Write {INFO_NAME} anew, for N partitions.")
    ] = None,
    transaction_partitions: Annotated[
        int | None, typer.Option(min=1, metavar="M", help="With --partitions: those of transactions.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without this nothing is changed.")] = False,
) -> None:
    """Take out what cannot be read, while the server is stopped; the files as they were are kept beside.

    With --partitions and --transaction-partitions: write a new callboard.json, if every group and transactional id
    lies where these numbers put it.
    """
    if partitions_ is not None or transaction_partitions is not None:
        _write_info(data, partitions_, transaction_partitions, yes, is_whole=log is None and not partition)
        return
    disk, partitions = disk_like(data), choose(data, log, partition)
    with repair.stopped_server(data, disk):
        info = data / INFO_NAME
        check_counts(disk, data, parse_info(info, read_file(disk, info)).counts)
        lost = [damage for one in partitions for damage in lost_ends(one, disk)]
        mends = [mend for one in progress(partitions, False) for mend in repair.find_mends(one, disk)]
        for mend in mends:
            for trouble in mend.troubles:
                print_line(trouble)
            if yes:
                kept = repair.mend(mend, disk)
                before = "the file was missing" if kept is None else f"as it was it is kept in {kept}"
                print_line(f"{mend.file.path}: mended; {before}")
    for damage in lost:
        print_line(f"{damage}: {GONE}")
    if mends and not yes:
        print_line(f"{counted(len(mends), 'file')} would be changed; --yes does it")
    elif not (mends or lost):
        print_line("nothing to repair")
    if lost or (mends and not yes):
        raise typer.Exit(DAMAGED_EXIT_CODE)


def _write_info(data: Path, offsets: int | None, transactions: int | None, yes: bool, *, is_whole: bool) -> None:
    if offsets is None or transactions is None or not is_whole:
        raise StartError("bad options: expected --partitions and --transaction-partitions, and no --log or --partition")
    disk = Disk()
    with new_info(disk, data, PartitionCounts(offsets, transactions)) as new:
        if yes:
            write_info(disk, data, new.info)
            print_line(f"{data}: wrote {new.in_words()}")
            return
    print_line(f"{data}: would write {new.in_words()}; --yes does it")
    raise typer.Exit(DAMAGED_EXIT_CODE)


def facts_of(found: Sequence[PartitionStats]) -> list[tuple[str, str]]:
    records, size = sum(one.records for one in found), sum(one.size for one in found)
    dead, seconds = sum(one.dead for one in found), sum(one.seconds for one in found)
    damaged = sum(one.damaged for one in found)
    percent = round(100 * dead / records) if records else 0
    facts = [
        ("records", f"{grouped(records)} in {counted(size, 'byte')}"),
        ("dead", f"{grouped(dead)} ({percent} %): compaction drops those in closed segments"),
        ("read in", f"{seconds:.2f} s on this machine; a server loads it in about as long"),
    ]
    return facts + ([("damaged", f"{counted(damaged, 'place')}; callboard log verify names them")] if damaged else [])


def progress(partitions: Sequence[LogPartition], is_quiet: bool) -> Iterator[LogPartition]:
    """The partitions one by one; on a terminal with a bar on standard error."""
    if is_quiet or not sys.stderr.isatty() or len(partitions) < 2:
        yield from partitions
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(partitions, "partitions", console=Console(stderr=True), transient=True)


def main(argv: Sequence[str]) -> int:
    try:
        app(list(argv), prog_name="callboard log")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print_error(f"{where}{error.strerror or error}; check the disk and the folder's owner")
        return DISK_EXIT_CODE
    return 0
