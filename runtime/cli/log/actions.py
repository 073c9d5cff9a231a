"""What the commands of ``callboard log`` do. ``typer.Exit`` ends them with an exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import typer

from ....actors.records import group_id_of
from ....actors.text import did_you_mean, format_count
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
from ..byte_progress import byte_progress
from ..tables import format_number, print_facts, print_table
from . import dump, repair
from .follow import follow_partitions
from .new_info import prepare_info
from .scan import (
    TOPICS,
    LoggedRecord,
    LogPartition,
    Unreadable,
    find_missing_ends,
    find_partitions,
    is_torn_tail,
    scan_partition,
)
from .stats import PartitionStats, hottest_table, partition_stats, stats_table
from .verify import PartitionCheck, verify, verify_quickly

DAMAGED_EXIT_CODE = 3
PROGRESS_PARTITIONS_MIN = 2  # a bar of one partition would not move
UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
MISSING_ADVICE = (
    "missing data cannot be repaired: restore the files from a backup, or read what the server prints at its next start"
)
MISPLACED_ADVICE = (
    f"with the numbers of partitions in {INFO_NAME} not all groups are found: restore the file, or write a"
    " new one with callboard log repair --data DIR --partitions N --transaction-partitions M"
)
DURATION = re.compile(r"([0-9]{1,9})([smhd])")


class RecordFilter(NamedTuple):
    """The requested groups and times (ms since 1970)."""

    groups: frozenset[str]
    since_ms: int | None
    until_ms: int | None

    def matches(self, stats: LoggedRecord) -> bool:
        """Whether a record is requested."""
        if self.since_ms is not None and stats.timestamp_ms < self.since_ms:
            return False
        if self.until_ms is not None and stats.timestamp_ms >= self.until_ms:
            return False
        return not self.groups or group_id_of(stats.record) in self.groups


def choose_partitions(data: Path, log: str | None, numbers: Sequence[int] | None) -> list[LogPartition]:
    """The requested partitions. Raises StartError."""
    if log is not None and log not in TOPICS:
        raise StartError(f"bad --log '{log}':{did_you_mean(log, TOPICS)} expected one of {', '.join(TOPICS)}")
    return find_partitions(data, None if log is None else TOPICS[log], numbers or ())


def parse_moment(option: str, text: str, now_ms: int) -> int:
    """Parse ``2026-01-31T08:00:00+01:00`` (UTC without a zone), or ``90m`` (so long ago) to ms. Raises StartError."""
    duration = DURATION.fullmatch(text)
    if duration is not None:
        return now_ms - int(duration[1]) * UNITS_MS[duration[2]]
    try:
        parsed_time = datetime.fromisoformat(text)
    except ValueError:
        raise StartError(
            f"bad {option} '{text}': expected ISO 8601, as in 2026-01-31T08:00:00Z, or how long ago, as in 90m, 12h, 7d"
        ) from None
    return int((parsed_time if parsed_time.tzinfo else parsed_time.replace(tzinfo=UTC)).timestamp() * 1000)


def dump_records(
    data: Path,
    groups: Sequence[str] | None,
    since: str | None,
    until: str | None,
    log: str | None,
    numbers: Sequence[int] | None,
    *,
    as_json: bool,
    follow: bool,
) -> None:
    """Print the matching records; with ``follow`` also those that a server appends, until Ctrl-C."""
    now_ms = wall_clock_ms()
    since_ms, until_ms = (
        None if text is None else parse_moment(option, text, now_ms)
        for option, text in (("--since", since), ("--until", until))
    )
    record_filter = RecordFilter(frozenset(groups or ()), since_ms, until_ms)
    partitions = choose_partitions(data, log, numbers)
    if not as_json:
        print_line(dump.format_columns(*dump.HEADER))
    if follow:
        with suppress(KeyboardInterrupt):
            follow_partitions(
                lambda: choose_partitions(data, log, numbers), partial(_show_item, record_filter, as_json)
            )
        return
    counts = [_dump_partition(partition, record_filter, as_json) for partition in partitions]
    if not sum(count for count, _ in counts):
        print_error("no such records")
    if not all(is_whole for _, is_whole in counts):
        raise typer.Exit(DAMAGED_EXIT_CODE)


def _dump_partition(partition: LogPartition, record_filter: RecordFilter, as_json: bool) -> tuple[int, bool]:
    """Print the matching records. Returns their number, and whether everything was readable."""
    disk, count, is_whole = Disk(), 0, True
    for item in scan_partition(partition, disk):
        if isinstance(item, LoggedRecord):
            count += _show_item(record_filter, as_json, item)
        elif isinstance(item, Unreadable) or not is_torn_tail(item, partition, disk):
            is_whole = False
            print_problem(item)
    return count, is_whole


def _show_item(record_filter: RecordFilter, as_json: bool, item: LoggedRecord | Damage | Unreadable) -> bool:
    """Print a record if it matches, or a problem. Returns whether a record was printed."""
    if not isinstance(item, LoggedRecord):
        print_problem(item)
        return False
    if not record_filter.matches(item):
        return False
    if as_json:
        print_json(dump.as_json(item), indent=None)
    else:
        print_line(dump.format_line(item))
    return True


def print_problem(problem: Damage | Unreadable) -> None:
    print_error(problem)


def print_stats(data: Path, log: str | None, numbers: Sequence[int] | None, top: int, *, as_json: bool) -> None:
    disk = Disk()
    stats = [
        partition_stats(partition, disk, top)
        for partition in progress(choose_partitions(data, log, numbers), "reading", is_quiet=as_json)
    ]
    if as_json:
        print_json(
            {
                "partitions": stats_table(stats).as_json(),
                "hottest": hottest_table(stats, top).as_json(),
                "read_seconds": round(sum(partition.seconds for partition in stats), 3),
            }
        )
        return
    if not stats:
        print_line("no records yet")
        return
    print_table(stats_table(stats))
    print_line()
    print_facts(stats_facts(stats))
    if top:
        print_line()
        print_table(hottest_table(stats, top))


def verify_log(data: Path, log: str | None, numbers: Sequence[int] | None, *, is_quick: bool, as_json: bool) -> None:
    disk, checks = Disk(), list[PartitionCheck]()
    for log_partition in progress(choose_partitions(data, log, numbers), "checking", is_quiet=as_json):
        with TemporaryDirectory(prefix="callboard-verify-") as scratch:
            checks.append((verify_quickly if is_quick else verify)(log_partition, Path(scratch), disk))
        if not as_json:
            print_problems(checks[-1])
    lost_journal = find_lost_journal(disk, data)
    if lost_journal is not None:
        print_error(f"{lost_journal.path}: {lost_journal.reason}: {CONSEQUENCE}")
    if as_json:
        print_json([check_to_json(check) for check in checks])
    else:
        print_line(describe_checks(checks, lost_journal))
        print_journal_hint(data, disk)
    if lost_journal is not None or not all(check.is_valid for check in checks):
        raise typer.Exit(DAMAGED_EXIT_CODE)


def print_problems(check: PartitionCheck) -> None:
    for problem in (*check.problems, *check.differences):
        print_line(f"{check.partition.folder.name}: {problem}")
    if check.misplaced is not None:
        print_line(check.misplaced)
    if check.torn_tail is not None:
        print_line(
            f"{check.torn_tail} (the end of the newest file: being written, or torn by a crash; the next start cuts it)"
        )


def describe_checks(checks: Sequence[PartitionCheck], lost_journal: Damage | None) -> str:
    """One line with the totals, the verdict and advice."""
    records, size = sum(check.records for check in checks), sum(check.size for check in checks)
    problems = sum(len(check.problems) + len(check.differences) + (check.misplaced is not None) for check in checks) + (
        lost_journal is not None
    )
    advice = "callboard log repair removes them"
    if lost_journal is not None or any(check.is_short for check in checks):
        advice = MISSING_ADVICE
    if any(check.misplaced is not None for check in checks):
        advice = MISPLACED_ADVICE
    totals = (
        f"{format_count(records, 'record')}, {format_count(size, 'byte')} in {format_count(len(checks), 'partition')}"
    )
    verdict = "all is well" if not problems else f"{format_count(problems, 'fault')}; {advice}"
    return f"{totals}: {verdict}"


def print_journal_hint(data: Path, disk: Disk) -> None:
    if any(journal_number(name) is not None for name in disk.names(data / JOURNAL)):
        print_line(
            "there is a journal: a server runs, or was killed; records that are only in the journal were not checked"
        )


def check_to_json(check: PartitionCheck) -> dict[str, Any]:
    return {
        "partition": check.partition.folder.name,
        "records": check.records,
        "bytes": check.size,
        "keys": check.keys,
        "is_well": check.is_valid,
        "troubles": [str(problem) for problem in check.problems],
        "torn": None if check.torn_tail is None else str(check.torn_tail),
        "differences": list(check.differences),
        "misplaced": None if check.misplaced is None else str(check.misplaced),
    }


def repair_log(data: Path, log: str | None, numbers: Sequence[int] | None, *, execute: bool) -> None:
    """Show the files that must change, and change them with ``execute``."""
    disk, partitions = disk_like(data), choose_partitions(data, log, numbers)
    with repair.require_stopped_server(data, disk):
        info = data / INFO_NAME
        check_counts(disk, data, parse_info(info, read_file(disk, info)).counts)
        missing = [damage for log_partition in partitions for damage in find_missing_ends(log_partition, disk)]
        repairs = [
            file_repair
            for log_partition in progress(partitions, "checking")
            for file_repair in repair.find_repairs(log_partition, disk)
        ]
        for file_repair in repairs:
            for problem in file_repair.problems:
                print_line(problem)
            if execute:
                backup = repair.repair_file(file_repair, disk)
                original = "the file was missing" if backup is None else f"the original is kept in {backup}"
                print_line(f"{file_repair.file.path}: repaired; {original}")
    for damage in missing:
        print_line(f"{damage}: {MISSING_ADVICE}")
    if repairs and not execute:
        print_line(f"{format_count(len(repairs), 'file')} would be changed; --execute does it")
    elif not (repairs or missing):
        print_line("nothing to repair")
    if missing or (repairs and not execute):
        raise typer.Exit(DAMAGED_EXIT_CODE)


def write_new_info(data: Path, offsets: int | None, transactions: int | None, *, execute: bool, is_whole: bool) -> None:
    """Write a new ``callboard.json`` for the numbers of partitions. ``is_whole``: all partitions are meant."""
    if offsets is None or transactions is None or not is_whole:
        raise StartError("bad options: expected --partitions and --transaction-partitions, and no --log or --partition")
    disk = Disk()
    with prepare_info(disk, data, PartitionCounts(offsets, transactions)) as new:
        if execute:
            write_info(disk, data, new.info)
            print_line(f"{data}: wrote {new.describe()}")
            return
    print_line(f"{data}: would write {new.describe()}; --execute does it")
    raise typer.Exit(DAMAGED_EXIT_CODE)


def stats_facts(stats: Sequence[PartitionStats]) -> list[tuple[str, str]]:
    records, size = sum(partition.records for partition in stats), sum(partition.size for partition in stats)
    dead, seconds = sum(partition.dead for partition in stats), sum(partition.seconds for partition in stats)
    damaged = sum(partition.damaged for partition in stats)
    percent = round(100 * dead / records) if records else 0
    facts = [
        ("records", f"{format_number(records)} in {format_count(size, 'byte')}"),
        ("dead", f"{format_number(dead)} ({percent} %): compaction drops those in closed segments"),
        ("read in", f"{seconds:.2f} s on this machine; a server loads it in about as long"),
    ]
    return facts + (
        [("damaged", f"{format_count(damaged, 'place')}; callboard log verify lists them")] if damaged else []
    )


def progress(partitions: Sequence[LogPartition], label: str, *, is_quiet: bool = False) -> Iterator[LogPartition]:
    """Yield the partitions, with a progress bar of their bytes on standard error if it is a terminal."""
    sizes = [_segment_bytes(partition.folder) for partition in partitions]
    with byte_progress(sum(sizes), label, is_quiet=is_quiet or len(partitions) < PROGRESS_PARTITIONS_MIN) as advance:
        for partition, size in zip(partitions, sizes, strict=True):
            yield partition
            advance(size)


def _segment_bytes(folder: Path) -> int:
    """The current size of a partition's segments, for the progress bar: about 0 if compaction replaces them now."""
    size = 0
    for path in folder.rglob("*.log"):
        with suppress(OSError):
            size += path.stat().st_size
    return size
