"""``callboard report``: all questions about an offsets log, answered in one page with plots.

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
from ...runtime.common.printing import print_line, tell_on_terminal
from ..history.commands import Master, call
from ..output import as_table
from ..session import session
from . import page, plots
from .questions import QUESTIONS, Asked, DataOption, HistoryOption, NowOption, SinceOption, asked
from .sources import log_bytes

ROWS_FETCHED, ROWS_SHOWN = 2000, 20

Picture = Callable[[plots.Rows], tuple[plots.Draw, float] | None]


class Part(NamedTuple):
    """A section of the page: a question by its name, what its answer says, its plot, and which end of it to show."""

    question: str
    title: str
    words: str
    picture: Picture | None = None
    is_last_first: bool = False


PARTS = (
    Part(
        "forecast",
        "How the log grows",
        "Records written on each day (UTC), and a straight line through the last four weeks of them. A forecast needs "
        "three whole days to learn from.",
        plots.growth,
        is_last_first=True,
    ),
    Part(
        "commits",
        "Who commits too often",
        "A commit that changes nothing is pure cost, and so is one for every record. Consumers that commit every "
        "second or less often lose little when they restart.",
        plots.commits,
    ),
    Part(
        "storms",
        "Rebalance storms",
        "Minutes with three generations or more. Look at the restless member first: it may be slow "
        "(max.poll.interval.ms), restarted again and again, or without an instance id where it could have one.",
    ),
    Part("rebalances", "Rebalances", "Each generation of each group, and who came and went.", plots.rebalances),
    Part(
        "gaps",
        "Where commits stopped",
        "Ten minutes and more from one commit of a partition to its next. With nothing moved the topic was silent, or "
        "its consumer idle; with much moved, commits failed or the consumer stood.",
        plots.gaps,
    ),
    Part(
        "rewinds", "What went backwards", "A reset by somebody, or a member that committed what was not its any more."
    ),
    Part(
        "skew",
        "Partitions that are ahead of others",
        "An uneven key, or a slow member. The ratio is that of the fastest partition to the median.",
        plots.skew,
    ),
    Part("zombie-groups", "Zombie groups", "They have offsets, and made no commit for a week."),
    Part("zombie-topics", "Zombie topics", "No group has committed for them for a week."),
    Part(
        "expiring",
        "What expires this week",
        "By Kafka's rules, if nothing changes: a consumer that comes back later begins at its auto.offset.reset.",
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
        Path | None, typer.Option("--pictures", metavar="DIR", help="Write each plot as a PNG, too.")
    ] = None,
    master: Master = None,
) -> None:
    """Answer all questions about an offsets log in one page, which needs no network to be read."""
    plots.require()
    if output.is_dir():
        raise StartError(f"bad --output '{output}': found a folder, expected the name of a file")
    for folder, name in ((output.absolute().parent, "--output"), (pictures, "--pictures")):
        if folder is not None and not folder.is_dir():
            raise StartError(f"bad {name}: found no folder {folder}; make it first")
    wanted = asked(data, history, since, now)
    with session("callboard report", master) as spark:
        output.write_text(make(spark, wanted, pictures), encoding="utf-8")
    print_line(f"{output}: {format_number(output.stat().st_size)} bytes")


def make(
    spark: SparkSession, wanted: Asked, pictures: Path | None = None, tell: Callable[[str], None] = tell_on_terminal
) -> str:
    """The page. OSError for the folder of ``pictures``."""
    found = wanted.records(spark).cache()
    try:
        facts = _facts(found, wanted)
        body = ""
        for number, part in enumerate(PARTS, start=1):
            tell(f"{number} of {len(PARTS)}: {part.title.lower()}")
            body += _section(part, found, wanted, pictures)
    finally:
        found.unpersist()
    contents = [(part.question, part.title) for part in PARTS]
    return page.page("An offsets log", facts, contents, body)


def _section(part: Part, records: DataFrame, wanted: Asked, pictures: Path | None) -> str:
    question = next(one for one in QUESTIONS if one.name == part.question)
    own = {"now": wanted.now} if question.needs_now else {}
    answer = question.ask(records, **own).limit(ROWS_FETCHED).toArrow()
    if not answer.num_rows:
        return page.section(part.question, part.title, part.words, f'<p class="rest">{question.nothing}</p>\n')
    body, drawn = "", part.picture and part.picture(answer.to_pylist())
    if drawn:
        body = page.figure(plots.svg(part.question, *drawn), part.title)
        if pictures is not None:
            (pictures / f"{part.question}.png").write_bytes(plots.png(*drawn))
    return page.section(part.question, part.title, part.words, body + _table(answer, part.is_last_first))


def _table(answer: pa.Table, is_last_first: bool) -> str:
    rest = answer.num_rows - ROWS_SHOWN
    first = answer.take(list(range(answer.num_rows))[::-1]) if is_last_first else answer
    shown: Table = as_table(first.slice(0, ROWS_SHOWN))
    more = (
        f"{format_number(rest)} more"
        if answer.num_rows < ROWS_FETCHED
        else f"{format_number(rest)} more, and perhaps others"
    )
    return page.table(shown, more if rest > 0 else "")


def _facts(records: DataFrame, wanted: Asked) -> list[str]:
    [row] = records.agg(
        F.count_if(F.col("kind") != "damage").alias("records"),
        F.count_if(F.col("kind") == "damage").alias("damages"),
        F.count_distinct("group").alias("groups"),
        F.count_distinct("topic").alias("topics"),
        F.unix_millis(F.min("timestamp")).alias("first"),
        F.unix_millis(F.max("timestamp")).alias("last"),
    ).collect()
    places = [f"data folder {wanted.data}", f"history {wanted.history}"]
    given = [words for words, path in zip(places, (wanted.data, wanted.history), strict=True) if path is not None]
    size = f", {format_number(log_bytes(wanted.data))} bytes of log now" if wanted.data is not None else ""
    spans = f", from {_instant(row.first)} to {_instant(row.last)}" if row.first is not None else ""
    counts = (format_count(row.records, "record"), format_count(row.groups, "group"), format_count(row.topics, "topic"))
    return [
        f"From {' and '.join(given)}, as of {_instant(int(wanted.now.timestamp() * 1000))}.",
        f"{', '.join(counts)}{spans}{size}.",
        *([] if wanted.history else ["Without a history: what compaction has dropped is not in it."]),
        *([f"Not counted: {format_count(row.damages, 'damaged place')} of the log."] if row.damages else []),
    ]


def _instant(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def main(argv: Sequence[str]) -> int:
    return call(app, argv, "callboard report")
