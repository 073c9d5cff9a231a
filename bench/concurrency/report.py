"""The output files of a run: ``results.csv``, ``results.json`` and ``report.html``.

The page is one file: what was run, the machine, an explanation of the columns, a table for each workload, and the
conclusion (``findings.py``). ``results.json`` contains all figures, so the page can be generated again from it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from callboard.bench.concurrency import page, plots
from callboard.bench.concurrency.findings import case_name, findings, key_sentences, python_name
from callboard.bench.concurrency.page import HtmlCell
from callboard.bench.concurrency.plan import Case, MeasurementStep
from callboard.bench.concurrency.results import (
    BASE,
    FIGURE_PATHS,
    RIGHT,
    SCHEMA,
    STARVED_SHARE,
    LabRun,
    Measurement,
    Summary,
    SummaryTable,
)
from callboard.bench.concurrency.styles import count, kb, ms, percent, rate, sentence, significant, times
from callboard.bench.harness import BenchError, write_json

CSV_NAME, JSON_NAME, HTML_NAME = "results.csv", "results.json", "report.html"
CSV_COLUMNS = (*MeasurementStep._fields, "status", *FIGURE_PATHS, "reasons")


class FigureColumn(NamedTuple):
    """A figure in the tables: heading, name, format function, and whether smaller is better (None: neither)."""

    heading: str
    figure: str
    write: Callable[[float | None], str]
    less_is_better: bool | None


COLUMNS = (
    FigureColumn("p50 ms", "p50_us", ms, True),
    FigureColumn("p99 ms", "p99_us", ms, True),
    FigureColumn("p99.9 ms", "p999_us", ms, True),
    FigureColumn("kB per group", "bytes_a_group", kb, True),
    FigureColumn("CPU us/req", "cpu_us", significant, True),
    FigureColumn("waited for CPU", "cpu_wait_share", percent, None),
    FigureColumn("CPU of others", "others_share", percent, None),
    FigureColumn("switches /1000", "switches_a_1000", significant, None),
    FigureColumn("lock wait us/req", "lock_wait_us", significant, None),
    FigureColumn("worst pause ms", "loop_pause_max_ms", significant, None),
    FigureColumn("Jain", "jain", times, None),
)

READING = (
    (
        "requests/s",
        "Completed requests per second: the median of the rounds, and the range from the slowest to the fastest round.",
    ),
    (
        f"of {BASE}",
        f"The ratio to {BASE} in the same round; the median of the rounds' ratios. Compare this number: "
        f"disturbances of "
        "the machine affect both engines of a round.",
    ),
    (
        "p50, p99, p99.9",
        "The 50th, 99th and 99.9th percentiles of latency in milliseconds, from the request to its response. The "
        "clients "
        "keep a fixed number of requests in flight, so a fast engine has short latencies.",
    ),
    (
        "kB per group",
        "Increase of the process's resident memory when its groups and members were created, per group. Empty: too few "
        "groups to measure.",
    ),
    (
        "CPU us/req",
        "CPU time of the whole process, including the clients, per request, in microseconds. It depends less on what "
        "else the machine does than requests/s.",
    ),
    (
        "waited for CPU",
        "The share of waiting in the time that the engine's threads ran or were ready to run. With more threads than "
        "CPUs they wait for each other. Empty: unknown.",
    ),
    (
        "CPU of others",
        f"The share of the CPUs' time that other programs used. Above {percent(STARVED_SHARE)} the engine is starved, "
        "and its requests/s are not compared. Empty: unknown.",
    ),
    ("switches /1000", "Context switches of the process's threads, voluntary and involuntary, per thousand requests."),
    (
        "lock wait us/req",
        "Total time that threads or tasks waited for the engine's locks, per request. Empty: no locks.",
    ),
    ("worst pause ms", "The longest delay of the event loop, in the median round. Empty: no loop."),
    (
        "Jain",
        "Jain's fairness index of the completed requests of each group: 1 if all groups have the same number, "
        "near 0 if "
        "few groups have nearly all. For uneven loads, compare it only between engines.",
    ),
    (
        "WRONG, FAILED",
        "WRONG: the engine's final state differs from the one that the oracle computed, so its figures are not shown. "
        "FAILED: the process ended with an error or hung; the end of its standard error is shown below the table.",
    ),
)


def write_csv(path: Path, measurements: Iterable[Measurement]) -> None:
    """One row per measurement, in the order of the run; unknown figures are empty."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, CSV_COLUMNS, restval="")
        writer.writeheader()
        for measurement in measurements:
            reasons = " / ".join(measurement.reasons)
            writer.writerow(
                {**measurement.step._asdict(), "status": measurement.status, **measurement.figures, "reasons": reasons}
            )


def load(path: Path) -> LabRun:
    """Load the run in a ``results.json``. Raises BenchError if it is not valid."""
    try:
        fields: Any = json.loads(path.read_text())
        if fields["bench"] != "concurrency":
            raise BenchError(f"{path} holds the benchmark {fields['bench']!r}; expected the benchmark 'concurrency'")
        if fields["schema"] != SCHEMA:
            raise BenchError(f"{path} has version {fields['schema']!r} of the schema; expected {SCHEMA}")
        return LabRun.from_json(fields)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{path} is not a results.json of the concurrency laboratory: {error!r}") from error


def write_numbers(folder: Path, run: LabRun) -> list[Path]:
    """``results.csv`` and ``results.json``; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / CSV_NAME, run.measurements)
    write_json(folder / JSON_NAME, run.to_json())
    return [folder / CSV_NAME, folder / JSON_NAME]


def write_html(folder: Path, run: LabRun, table: SummaryTable) -> Path:
    """``report.html``; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / HTML_NAME
    path.write_text(html(run, table), encoding="utf-8")
    return path


def html(run: LabRun, table: SummaryTable) -> str:
    """The whole page."""
    title = "Actors, locks and loops: one coordinator, serialised in many ways"
    parts = [
        f"<h1>{title}</h1>\n",
        f'<p class="sub">Callboard\'s concurrency laboratory, {page.text(run.date)}</p>\n',
        f'<div class="short">{page.paragraphs(key_sentences(run, table))}</div>\n',
        _description(run),
        _machine(run),
        "<h2>How to read it</h2>\n",
        page.terms(READING),
        *(_workload(run, table, workload) for workload in dict.fromkeys(case.workload for case in table)),
        _memory(run, table),
        _fairness(table),
        _conclusion(run, table),
    ]
    return page.page(title, "".join(parts))


# Sections -------------------------------------------------------------------------------------------------------------


def _description(run: LabRun) -> str:
    options = run.options
    used_engines = {measurement.step.engine for measurement in run.measurements}
    engines = [("", [page.engine(name), str(properties.get("label", ""))]) for name, properties in run.engines.items()]
    workloads = [
        ("", [name, str(properties.get("label", "")), str(properties.get("shows", "")), _sizes(run, name)])
        for name, properties in run.workloads.items()
    ]
    text = (
        f"{count(len(used_engines), 'engine')}, each a complete coordinator with the same group and member logic; "
        "they differ only in how they serialise the requests to one group. Each measurement runs in a new process. "
        f"A round runs all engines once, in an order drawn from seed {options.get('seed')}, with the same requests. "
        f"This run has "
        f"{count(options.get('rounds', 0), 'round')} of {options.get('seconds', 0):g} s per measurement, "
        f"{count(len(run.measurements), 'measurement')} in total."
    )
    return (
        "<h2>What was run</h2>\n"
        + page.paragraphs([text])
        + f"<p>The command: <code>{page.text(run.command)}</code></p>\n"
        + page.table("", ("engine", "serialisation"), engines, "words")
        + page.table("", ("workload", "description", "purpose", "groups"), workloads, "words")
    )


def _sizes(run: LabRun, workload: str) -> str:
    return ", ".join(
        f"{case.groups:,}"
        for case in dict.fromkeys(measurement.step.case for measurement in run.measurements)
        if case.workload == workload
    )


def _machine(run: LabRun) -> str:
    machine, python = run.machine, run.python
    rows = [
        ("machine", f"{machine.get('cpus')} CPUs, {machine.get('system')}"),
        ("Python", python_name(run)),
        ("build", str(python.get("build", ""))),
        ("date", run.date),
    ]
    return "<h2>Machine</h2>\n" + page.table("", ("", ""), [("", row) for row in rows], "words")


def _workload(run: LabRun, table: SummaryTable, workload: str) -> str:
    properties = run.workloads.get(workload, {})
    cases = sorted((case for case in table if case.workload == workload), key=lambda case: case.groups)
    label = str(properties.get("label", workload))
    return (
        f"<h2>{page.text(label[:1].upper() + label[1:])}</h2>\n"
        + page.paragraphs([sentence(str(properties["shows"]))] if properties.get("shows") else [])
        + "".join(_table(case, table[case]) for case in cases)
        + page.snapshot(plots.throughput(cases, table), f"Throughput, {label}", _throughput_caption(cases))
        + page.snapshot(
            plots.ccdf(cases, table),
            f"Latency, {label}",
            "Latency: the share of requests (vertical) that were slower than a time (horizontal). Further left "
            "is better; "
            "a line that extends to the right is a long tail. Each line is the round with the median throughput.",
        )
    )


def _throughput_caption(cases: list[Case]) -> str:
    if len(cases) == 1:
        return "Throughput: medians of the rounds."
    return "Throughput against the number of groups: medians, and thin bars from the slowest round to the fastest."


def _table(case: Case, summaries: dict[str, Summary]) -> str:
    columns = ("engine", "requests/s", f"of {BASE}", *(column.heading for column in COLUMNS))
    fastest = max((summary.throughput.median for summary in summaries.values() if summary.throughput), default=None)
    best_figures = {column.figure: _best(summaries, column) for column in COLUMNS}
    rows = [
        ("base" if name == BASE else "", _row(summary, fastest, best_figures)) for name, summary in summaries.items()
    ]
    reasons = [f"{name}: {reason}" for name, summary in summaries.items() for reason in summary.reasons]
    return page.table(case_name(case), columns, rows) + page.points(reasons)


def _best(summaries: dict[str, Summary], column: FigureColumn) -> float | None:
    values = [value for summary in summaries.values() if (value := summary.figure(column.figure)) is not None]
    return min(values) if values and column.less_is_better else None


def _row(summary: Summary, fastest: float | None, best_figures: dict[str, float | None]) -> list[str]:
    if summary.throughput is None:
        return [page.engine(summary.engine), HtmlCell(summary.status, "bad"), *[""] * (1 + len(COLUMNS))]
    median = summary.throughput.median
    low, high = min(summary.rounds.values()), max(summary.rounds.values())
    spread = f' <span class="range">{rate(low)} to {rate(high)}</span>' if len(summary.rounds) > 1 else ""
    failed = f' <span class="range">({summary.measured - len(summary.rounds)} FAILED)</span>' if summary.reasons else ""
    starved = ' <span class="range">starved</span>' if summary.is_starved else ""
    speed = HtmlCell(f"{rate(median)}{spread}{failed}{starved}", "best" if median == fastest else "")
    return [
        page.engine(summary.engine),
        speed,
        times(summary.ratio),
        *(_figure(summary, column, best_figures) for column in COLUMNS),
    ]


def _figure(summary: Summary, column: FigureColumn, best_figures: dict[str, float | None]) -> str:
    value = summary.figure(column.figure)
    written = column.write(value)
    return HtmlCell(written, "best") if value is not None and value == best_figures[column.figure] else written


def _memory(run: LabRun, table: SummaryTable) -> str:
    """Memory of the first workload that has figures; it does not depend on the requests."""
    cases_with_figures = [
        case
        for case, summaries in table.items()
        if any((summary.figure("bytes_a_group") or 0) > 0 for summary in summaries.values())
    ]
    if not cases_with_figures:
        return ""
    workload = max(cases_with_figures, key=lambda case: case.groups).workload
    cases = sorted((case for case in cases_with_figures if case.workload == workload), key=lambda case: case.groups)
    label = run.workloads.get(workload, {}).get("label", workload)
    caption = f"Resident memory per group with its members, in kB. Workload: {label}."
    return "<h2>Memory</h2>\n" + page.snapshot(plots.memory(cases, table), "Memory per group", caption)


def _fairness(table: SummaryTable) -> str:
    """Fairness of each workload with hot groups, at its largest number of groups."""
    largest_cases: dict[str, Case] = {}
    for case, summaries in sorted(table.items()):
        if any(summary.status == RIGHT and summary.figure("hot_p99_us") for summary in summaries.values()):
            largest_cases[case.workload] = case
    png = plots.fairness(list(largest_cases.values()), table) if largest_cases else None
    if png is None:
        return ""
    caption = (
        "The 99th percentile of latency of the 1 % of groups with most requests (filled) and of all others (hollow). A "
        "long line means that some groups wait for others. The small number on the right is Jain's index."
    )
    return "<h2>Fairness</h2>\n" + page.snapshot(png, "Fairness", caption)


def _text_columns(rows: Sequence[Sequence[str]]) -> set[int]:
    """The columns that contain text instead of figures."""
    return {index for row in rows for index, cell in enumerate(row) if cell and not cell[0].isdigit()}


def _conclusion(run: LabRun, table: SummaryTable) -> str:
    parts = ["<h2>Conclusion</h2>\n"]
    for finding in findings(run, table):
        parts.append(f"<h3>{page.text(finding.title)}</h3>\n")
        parts.append(page.paragraphs(finding.sentences) + page.points(finding.points))
        if finding.rows:
            rows = [("", [HtmlCell(page.text(cell)) for cell in row]) for row in finding.rows]
            parts.append(page.table("", finding.columns, rows, left=_text_columns(finding.rows)))
    return "".join(parts)
