"""Answers all questions about an offsets log in one HTML page with plots."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ...actors.text import format_count
from ...runtime.cli.tables import Table, format_number
from ...runtime.cluster.engines import without_password
from ...runtime.common.printing import print_hint
from ..commands.questions import QUESTIONS, QueryInput
from ..output import text_table
from ..session import short_message
from . import page, plots
from .sources import log_bytes

ROWS_FETCHED, ROWS_SHOWN = 2000, 20
NAMES_SHOWN = 3
MEMBER_COLUMNS = ("joined", "left", "leader", "restless")
UUID = re.compile(r"([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

Plot = Callable[[plots.Rows], tuple[plots.Draw, float] | None]
ANSWER_ERRORS = (PySparkException, Py4JError, ArithmeticError, ValueError)
"""Errors of Spark, and of values that the table or the plot of a question cannot show."""


class Report(NamedTuple):
    """``failures``: why questions have no answer, by name."""

    html: str
    failures: dict[str, str]


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
        "Records written on each day (UTC), and a linear forecast from tomorrow on, by the last four weeks. A forecast "
        "needs at least three complete days.",
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
        "Each generation of each group, and the members that joined and left. UUIDs are shortened, and of many members "
        "the first are shown; callboard analyse rebalances has all.",
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


def render_report(
    spark: SparkSession,
    query: QueryInput,
    pictures: Path | None = None,
    report_progress: Callable[[str], None] = print_hint,
) -> Report:
    """The page. Raises OSError if ``pictures`` cannot be written to, and Spark's error if no record can be read."""
    records = query.records(spark).cache()
    body, failures = "", dict[str, str]()
    try:
        facts = _facts(records, query)
        for number, section in enumerate(SECTIONS, start=1):
            report_progress(f"{number} of {len(SECTIONS)}: {section.title.lower()}")
            try:
                content = _render_answer(section, records, query, pictures)
            except ANSWER_ERRORS as error:
                failures[section.question] = failure = short_message(error)
                content = page.note(f"This question could not be answered: {failure}")
            body += page.section(section.question, section.title, section.explanation, content)
    finally:
        records.unpersist()
    contents = [(section.question, section.title) for section in SECTIONS]
    return Report(page.page("An offsets log", facts, contents, body), failures)


def _render_answer(section: ReportSection, records: DataFrame, query: QueryInput, pictures: Path | None) -> str:
    """The plot and the table of a question. Raises Spark's error, or OSError."""
    question = next(question for question in QUESTIONS if question.name == section.question)
    arguments = {"now": query.now} if question.needs_now else {}
    answer = question.answer(records, **arguments).limit(ROWS_FETCHED).toArrow()
    if not answer.num_rows:
        return page.note(question.empty_message)
    body, svg = "", section.plot and section.plot(answer.to_pylist())
    if svg:
        body = page.figure(plots.svg(section.question, *svg), section.title)
        if pictures is not None:
            (pictures / f"{section.question}.png").write_bytes(plots.png(*svg))
    return body + _table(answer, section.is_last_first)


def _table(answer: pa.Table, is_last_first: bool) -> str:
    hidden = answer.num_rows - ROWS_SHOWN
    ordered = answer.take(list(range(answer.num_rows))[::-1]) if is_last_first else answer
    visible_table: Table = text_table(_with_short_members(ordered.slice(0, ROWS_SHOWN)))
    note = (
        f"{format_number(hidden)} more" if answer.num_rows < ROWS_FETCHED else f"at least {format_number(hidden)} more"
    )
    return page.table(visible_table, note if hidden > 0 else "")


def _with_short_members(answer: pa.Table) -> pa.Table:
    """The table with shortened members. In some tables these columns have numbers of members, which stay."""
    for index, field in enumerate(answer.schema):
        if field.name in MEMBER_COLUMNS and not pa.types.is_integer(field.type):
            cells = [short_members(cell) for cell in answer.column(index).to_pylist()]
            answer = answer.set_column(index, field.name, pa.array(cells, pa.string()))
    return answer


def short_members(cell: str | list[str] | None) -> str | None:
    """A member, or the first of several, with shortened UUIDs. A client id and eight digits still tell them apart."""
    if cell is None:
        return None
    names = [UUID.sub(r"\1", name) for name in (cell if isinstance(cell, list) else [cell])]
    hidden = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {hidden} more" if hidden > 0 else "")


def _facts(records: DataFrame, query: QueryInput) -> list[str]:
    [row] = records.agg(
        F.count_if(F.col("kind") != "damage").alias("records"),
        F.count_if(F.col("kind") == "damage").alias("damages"),
        F.count_distinct("group").alias("groups"),
        F.count_distinct("topic").alias("topics"),
        F.unix_millis(F.min("timestamp")).alias("first"),
        F.unix_millis(F.max("timestamp")).alias("last"),
    ).collect()
    names = [f"data folder {query.data}", f"history {without_password(str(query.history))}"]
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
