"""What is left of a run: ``results.csv``, ``results.json`` and ``report.html``.

The page is one file that is read from top to bottom: what was run, on what, how to read it, a table for each workload,
and the conclusion (``findings.py``). ``results.json`` holds everything, so the page can be made again from it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from callboard.bench.concurrency import page, plots
from callboard.bench.concurrency.findings import case_name, findings, in_short, python_name
from callboard.bench.concurrency.page import Cell
from callboard.bench.concurrency.plan import Case, Step
from callboard.bench.concurrency.results import BASE, PLACES, RIGHT, Measurement, Run, Summary, Table
from callboard.bench.concurrency.styles import count, kb, ms, rate, sentence, significant, times
from callboard.bench.harness import BenchError, write_json

CSV_NAME, JSON_NAME, HTML_NAME = "results.csv", "results.json", "report.html"
CSV_COLUMNS = (*Step._fields, "status", *PLACES, "reasons")


class Column(NamedTuple):
    """A figure in the tables: its heading, how it is written, and whether less of it is better (None: neither)."""

    heading: str
    figure: str
    write: Callable[[float | None], str]
    less_is_better: bool | None


COLUMNS = (
    Column("p50 ms", "p50_us", ms, True),
    Column("p99 ms", "p99_us", ms, True),
    Column("p99.9 ms", "p999_us", ms, True),
    Column("kB a group", "bytes_a_group", kb, True),
    Column("CPU us/req", "cpu_us", significant, True),
    Column("switches /1000", "switches_a_1000", significant, None),
    Column("lock wait us/req", "lock_wait_us", significant, None),
    Column("worst pause ms", "loop_pause_max_ms", significant, None),
    Column("Jain", "jain", times, None),
)

READING = (
    (
        "requests/s",
        "Requests that were answered in a second: the median of the rounds, and from the slowest round to the fastest.",
    ),
    (
        f"of {BASE}",
        f"The ratio to {BASE} in the same round; the median of the rounds' ratios. This is the number to compare: "
        "a machine that slows down slows down both.",
    ),
    (
        "p50, p99, p99.9",
        "The latency, in milliseconds, that 50, 99 and 99.9 % of the requests did not exceed, from the request to its "
        "answer. The clients keep a fixed number of requests in flight, so an engine that is fast has short latencies.",
    ),
    (
        "kB a group",
        "Resident memory of the process after its groups and members were made, less what it had before, for each "
        "group. Empty: too few groups to tell.",
    ),
    ("CPU us/req", "CPU time of the whole process, the clients too, for each request, in microseconds."),
    ("switches /1000", "Context switches of the process's threads, voluntary and not, for each thousand requests."),
    (
        "lock wait us/req",
        "Time that all threads or tasks together waited for the engine's locks, for each request. Empty: no locks.",
    ),
    ("worst pause ms", "The longest time that the event loop did not turn, in the median round. Empty: no loop."),
    (
        "Jain",
        "Jain's index of the answered requests of each group: 1 when all groups got the same, near 0 when few got "
        "everything. Where the load itself is uneven, compare it between engines only.",
    ),
    (
        "WRONG, FAILED",
        "Every engine's state at the end is compared with what the oracle computed. An engine that is wrong has no "
        "speed, so it has no numbers. FAILED: the process ended or hung; its last words stand below.",
    ),
)


def write_csv(path: Path, measurements: Iterable[Measurement]) -> None:
    """One row a measurement, in the order of the run; an empty field is not known."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, CSV_COLUMNS, restval="")
        writer.writeheader()
        for each in measurements:
            reasons = " / ".join(each.reasons)
            writer.writerow({**each.step._asdict(), "status": each.status, **each.figures, "reasons": reasons})


def load(path: Path) -> Run:
    """The run that a ``results.json`` holds. Raises BenchError when it is none."""
    try:
        plain: Any = json.loads(path.read_text())
        if plain["bench"] != "concurrency":
            raise BenchError(f"{path} holds the bench {plain['bench']!r}; expected the concurrency laboratory's")
        return Run.from_plain(plain)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{path} is no results.json of the concurrency laboratory: {error!r}") from error


def write_numbers(folder: Path, run: Run) -> list[Path]:
    """``results.csv`` and ``results.json``; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / CSV_NAME, run.measurements)
    write_json(folder / JSON_NAME, run.plain())
    return [folder / CSV_NAME, folder / JSON_NAME]


def write_html(folder: Path, run: Run, table: Table) -> Path:
    """``report.html``; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / HTML_NAME
    path.write_text(html(run, table), encoding="utf-8")
    return path


def html(run: Run, table: Table) -> str:
    """The whole page."""
    title = "Actors, locks and loops: one coordinator, serialised in many ways"
    parts = [
        f"<h1>{title}</h1>\n",
        f'<p class="sub">Callboard\'s concurrency laboratory, {page.text(run.date)}</p>\n',
        f'<div class="short">{page.paragraphs(in_short(run, table))}</div>\n',
        _what(run),
        _on_what(run),
        "<h2>How to read it</h2>\n",
        page.terms(READING),
        *(_workload(run, table, workload) for workload in dict.fromkeys(case.workload for case in table)),
        _memory(run, table),
        _fairness(table),
        _conclusion(run, table),
    ]
    return page.page(title, "".join(parts))


# Sections -------------------------------------------------------------------------------------------------------------


def _what(run: Run) -> str:
    options = run.options
    used = {each.step.engine for each in run.measurements}
    engines = [("", [page.engine(name), str(about.get("label", ""))]) for name, about in run.engines.items()]
    workloads = [
        ("", [name, str(about.get("label", "")), str(about.get("shows", "")), _sizes(run, name)])
        for name, about in run.workloads.items()
    ]
    text = (
        f"{count(len(used), 'engine')}, each a complete coordinator with the same rules of groups and members; they "
        "differ in nothing but how they keep two requests to one group apart. Each measurement is a fresh process. A "
        f"round is all engines once, in an order drawn from seed {options.get('seed')}, and with the same requests. "
        f"This is {count(options.get('rounds', 0), 'round')} of {options.get('seconds', 0):g} s a measurement; "
        f"{count(len(run.measurements), 'measurement')} in all."
    )
    return (
        "<h2>What was run</h2>\n"
        + page.paragraphs([text])
        + f"<p>The command: <code>{page.text(run.command)}</code></p>\n"
        + page.table("", ("engine", "how it serialises"), engines, "words")
        + page.table("", ("workload", "what it is", "what it shows", "groups"), workloads, "words")
    )


def _sizes(run: Run, workload: str) -> str:
    return ", ".join(
        f"{case.groups:,}"
        for case in dict.fromkeys(each.step.case for each in run.measurements)
        if case.workload == workload
    )


def _on_what(run: Run) -> str:
    machine, python = run.machine, run.python
    rows = [
        ("machine", f"{machine.get('cpus')} CPUs, {machine.get('system')}"),
        ("Python", python_name(run)),
        ("build", str(python.get("build", ""))),
        ("date", run.date),
    ]
    return "<h2>On what</h2>\n" + page.table("", ("", ""), [("", row) for row in rows], "words")


def _workload(run: Run, table: Table, workload: str) -> str:
    about = run.workloads.get(workload, {})
    cases = sorted((case for case in table if case.workload == workload), key=lambda case: case.groups)
    label = str(about.get("label", workload))
    return (
        f"<h2>{page.text(label[:1].upper() + label[1:])}</h2>\n"
        + page.paragraphs([sentence(str(about["shows"]))] if about.get("shows") else [])
        + "".join(_table(case, table[case]) for case in cases)
        + page.picture(plots.throughput(cases, table), f"Throughput, {label}", _throughput_caption(cases))
        + page.picture(
            plots.ccdf(cases, table),
            f"Latency, {label}",
            "Latency: how many of the requests (down) were slower than a time (across). Further left is better; a line "
            "that runs out to the right is a long tail. Each line is the round in the middle by throughput.",
        )
    )


def _throughput_caption(cases: list[Case]) -> str:
    if len(cases) == 1:
        return "Throughput: medians of the rounds."
    return "Throughput against the number of groups: medians, and thin bars from the slowest round to the fastest."


def _table(case: Case, own: dict[str, Summary]) -> str:
    columns = ("engine", "requests/s", f"of {BASE}", *(column.heading for column in COLUMNS))
    fastest = max((each.throughput.median for each in own.values() if each.throughput), default=None)
    best = {column.figure: _best(own, column) for column in COLUMNS}
    rows = [("base" if name == BASE else "", _row(each, fastest, best)) for name, each in own.items()]
    reasons = [f"{name}: {reason}" for name, each in own.items() for reason in each.reasons]
    return page.table(case_name(case), columns, rows) + page.points(reasons)


def _best(own: dict[str, Summary], column: Column) -> float | None:
    values = [value for each in own.values() if (value := each.figure(column.figure)) is not None]
    return min(values) if values and column.less_is_better else None


def _row(each: Summary, fastest: float | None, best: dict[str, float | None]) -> list[str]:
    if each.throughput is None:
        return [page.engine(each.engine), Cell(each.status, "bad"), *[""] * (1 + len(COLUMNS))]
    middle = each.throughput.median
    low, high = min(each.rounds.values()), max(each.rounds.values())
    spread = f' <span class="range">{rate(low)} to {rate(high)}</span>' if len(each.rounds) > 1 else ""
    failed = f' <span class="range">({each.measured - len(each.rounds)} FAILED)</span>' if each.reasons else ""
    speed = Cell(f"{rate(middle)}{spread}{failed}", "best" if middle == fastest else "")
    return [page.engine(each.engine), speed, times(each.ratio), *(_figure(each, column, best) for column in COLUMNS)]


def _figure(each: Summary, column: Column, best: dict[str, float | None]) -> str:
    value = each.figure(column.figure)
    written = column.write(value)
    return Cell(written, "best") if value is not None and value == best[column.figure] else written


def _memory(run: Run, table: Table) -> str:
    """Of the first workload that has it; a group weighs the same whatever is asked of it."""
    known = [
        case for case, own in table.items() if any((each.figure("bytes_a_group") or 0) > 0 for each in own.values())
    ]
    if not known:
        return ""
    workload = max(known, key=lambda case: case.groups).workload
    cases = sorted((case for case in known if case.workload == workload), key=lambda case: case.groups)
    label = run.workloads.get(workload, {}).get("label", workload)
    caption = f"Resident memory for each group with its members, in kB. Workload: {label}."
    return "<h2>Memory</h2>\n" + page.picture(plots.memory(cases, table), "Memory a group", caption)


def _fairness(table: Table) -> str:
    """For each workload that has hot groups, at the most groups."""
    most: dict[str, Case] = {}
    for case, own in sorted(table.items()):
        if any(each.status == RIGHT and each.figure("hot_p99_us") for each in own.values()):
            most[case.workload] = case
    shown = plots.fairness(list(most.values()), table) if most else None
    if shown is None:
        return ""
    caption = (
        "The 99th percentile of latency for the hottest 1 % of the groups (filled) and for all others (hollow). A long "
        "line: some groups wait for others. The small number on the right is Jain's index."
    )
    return "<h2>Fairness</h2>\n" + page.picture(shown, "Fairness", caption)


def _words(rows: Sequence[Sequence[str]]) -> set[int]:
    """The columns that hold words, not figures."""
    return {index for row in rows for index, cell in enumerate(row) if cell and not cell[0].isdigit()}


def _conclusion(run: Run, table: Table) -> str:
    parts = ["<h2>Conclusion</h2>\n"]
    for finding in findings(run, table):
        parts.append(f"<h3>{page.text(finding.title)}</h3>\n")
        parts.append(page.paragraphs(finding.sentences) + page.points(finding.points))
        if finding.rows:
            rows = [("", [Cell(page.text(word)) for word in row]) for row in finding.rows]
            parts.append(page.table("", finding.columns, rows, left=_words(finding.rows)))
    return "".join(parts)
