"""``callboard report``: answers all questions about an offsets log in one HTML page with plots.

Exit codes as for ``callboard analyse``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NamedTuple

import pyarrow as pa
import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ...runtime.cli.groups.tables import Table, format_count, format_number
from ...runtime.cli.main import make_app
from ...runtime.common.errors import StartError
from ...runtime.common.printing import print_hint, print_line
from ..history.commands import Master, run_app
from ..output import text_table
from ..session import session
from . import page, plots
from .questions import QUESTIONS, DataOption, HistoryOption, NowOption, QueryInput, SinceOption, parse_query_input
from .sources import log_bytes

ROWS_FETCHED, ROWS_SHOWN = 2000, 20

Plot = Callable[[plots.Rows], tuple[plots.Draw, float] | None]


class ReportSection(NamedTuple):
    """A section of the page: the name of its question, an explanation, its plot, and whether to show the last rows."""

    question: str
    title: str
    explanation: str
    plot: Plot | None = None
    is_last_first: bool = False


SECTIONS = (
    ReportSection(
        "forecast",
        "How the log grows",
        "Records written on each day (UTC), and a linear forecast from the last four weeks. A forecast needs at least "
        "three complete days.",
        plots.growth,
        is_last_first=True,
    ),
    ReportSection(
        "commits",
        "Frequent commits",
        "A commit without progress is wasted work, and so is a commit for every record. A consumer that commits once a "
        "second or less often repeats little work after a restart.",
        plots.commits,
    ),
    ReportSection(
        "storms",
        "Rebalance storms",
        "Minutes with three generations or more. Check the restless member first: it may be slow "
        "(max.poll.interval.ms), restart repeatedly, or lack an instance id.",
    ),
    ReportSection(
        "rebalances",
        "Rebalances",
        "Each generation of each group, and the members that joined and left.",
        plots.rebalances,
    ),
    ReportSection(
        "gaps",
        "Gaps between commits",
        "Ten minutes and more between two commits of a partition. Without progress the topic had no new records, or "
        "the consumer was idle; with much progress, commits failed or the consumer was stuck.",
        plots.gaps,
    ),
    ReportSection("rewinds", "Rewinds", "The group was reset, or a member committed a partition that it had lost."),
    ReportSection(
        "skew",
        "Uneven partitions",
        "Caused by uneven keys or a slow member. The ratio is that of the fastest partition to the median.",
        plots.skew,
    ),
    ReportSection("zombie-groups", "Zombie groups", "Groups with committed offsets, but no commit for a week."),
    ReportSection("zombie-topics", "Zombie topics", "Topics for which no group has committed for a week."),
    ReportSection(
        "expiring",
        "Offsets that expire this week",
        "By Kafka's rules, if nothing changes. A consumer that returns later starts at its auto.offset.reset.",
        plots.expiring,
    ),
)

app = make_app()


@app.command("report")
def report(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.html", help="The page to write.")] = Path(
        "report.html"
    ),
    data: DataOption = None,
    history: HistoryOption = None,
    since: SinceOption = None,
    now: NowOption = None,
    pictures: Annotated[
        Path | None, typer.Option("--pictures", metavar="DIR", help="Also write each plot as a PNG file.")
    ] = None,
    master: Master = None,
) -> None:
    """Answer all questions about an offsets log in one self-contained HTML page."""
    plots.require()
    if output.is_dir():
        raise StartError(f"bad --output '{output}': found a folder, expected the name of a file")
    for folder, name in ((output.absolute().parent, "--output"), (pictures, "--pictures")):
        if folder is not None and not folder.is_dir():
            raise StartError(f"bad {name}: found no folder {folder}; create it first")
    query = parse_query_input(data, history, since, now)
    with session("callboard report", master) as spark:
        output.write_text(render_report(spark, query, pictures), encoding="utf-8")
    print_line(f"{output}: {format_number(output.stat().st_size)} bytes")


def render_report(
    spark: SparkSession,
    query: QueryInput,
    pictures: Path | None = None,
    report_progress: Callable[[str], None] = print_hint,
) -> str:
    """The page as HTML. Raises OSError if ``pictures`` cannot be written to."""
    records = query.records(spark).cache()
    try:
        facts = _facts(records, query)
        body = ""
        for number, section in enumerate(SECTIONS, start=1):
            report_progress(f"{number} of {len(SECTIONS)}: {section.title.lower()}")
            body += _render_section(section, records, query, pictures)
    finally:
        records.unpersist()
    contents = [(section.question, section.title) for section in SECTIONS]
    return page.page("An offsets log", facts, contents, body)


def _render_section(section: ReportSection, records: DataFrame, query: QueryInput, pictures: Path | None) -> str:
    question = next(question for question in QUESTIONS if question.name == section.question)
    arguments = {"now": query.now} if question.needs_now else {}
    answer = question.answer(records, **arguments).limit(ROWS_FETCHED).toArrow()
    if not answer.num_rows:
        body = f'<p class="rest">{question.empty_message}</p>\n'
        return page.section(section.question, section.title, section.explanation, body)
    body, svg = "", section.plot and section.plot(answer.to_pylist())
    if svg:
        body = page.figure(plots.svg(section.question, *svg), section.title)
        if pictures is not None:
            (pictures / f"{section.question}.png").write_bytes(plots.png(*svg))
    body += _table(answer, section.is_last_first)
    return page.section(section.question, section.title, section.explanation, body)


def _table(answer: pa.Table, is_last_first: bool) -> str:
    hidden = answer.num_rows - ROWS_SHOWN
    ordered = answer.take(list(range(answer.num_rows))[::-1]) if is_last_first else answer
    visible_table: Table = text_table(ordered.slice(0, ROWS_SHOWN))
    note = (
        f"{format_number(hidden)} more" if answer.num_rows < ROWS_FETCHED else f"at least {format_number(hidden)} more"
    )
    return page.table(visible_table, note if hidden > 0 else "")


def _facts(records: DataFrame, query: QueryInput) -> list[str]:
    [row] = records.agg(
        F.count_if(F.col("kind") != "damage").alias("records"),
        F.count_if(F.col("kind") == "damage").alias("damages"),
        F.count_distinct("group").alias("groups"),
        F.count_distinct("topic").alias("topics"),
        F.unix_millis(F.min("timestamp")).alias("first"),
        F.unix_millis(F.max("timestamp")).alias("last"),
    ).collect()
    names = [f"data folder {query.data}", f"history {query.history}"]
    sources = [name for name, path in zip(names, (query.data, query.history), strict=True) if path is not None]
    size = f", {format_number(log_bytes(query.data))} bytes of log now" if query.data is not None else ""
    span = f", from {_format_time(row.first)} to {_format_time(row.last)}" if row.first is not None else ""
    counts = (format_count(row.records, "record"), format_count(row.groups, "group"), format_count(row.topics, "topic"))
    return [
        f"From {' and '.join(sources)}, as of {_format_time(int(query.now.timestamp() * 1000))}.",
        f"{', '.join(counts)}{span}{size}.",
        *([] if query.history else ["Without a history: records that compaction has removed are not included."]),
        *([f"Not counted: records in {format_count(row.damages, 'damaged place')} of the log."] if row.damages else []),
    ]


def _format_time(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def main(argv: Sequence[str]) -> int:
    return run_app(app, argv, "callboard report")
