"""``callboard analyse NAME``: one question about an offsets log, answered as a table, JSON, CSV or Parquet.

Exit codes: 0 done; 1 a disk or Spark failed; 2 the command line or the folder makes no sense.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from pyspark.sql import DataFrame, SparkSession

from ...runtime.cli.main import make_app
from ...runtime.common.errors import StartError
from ...runtime.disk.disk import Disk
from ...runtime.log.manifest import log_files
from ..history.commands import Master, call
from ..history.table import HistoryTable
from ..moments import parse_moment
from ..output import AsCsv, AsJson, Output, SafeCsv, check_output, show
from ..session import session
from .commits import GAP_MINUTES, frequent_commits, gaps, rewinds, skew
from .expiring import RETENTION_MINUTES, WITHIN_DAYS, expiring
from .growth import FORECAST_DAYS, forecast, growth
from .rebalances import STORM_GENERATIONS, STORM_MINUTES, generations, storms
from .sources import folders, records
from .zombies import OLD_DAYS, zombie_groups, zombie_topics

Ask = Callable[..., DataFrame]

DataOption = Annotated[Path | None, typer.Option("--data", metavar="DIR", help="A data folder, of ours or of Kafka's.")]
HistoryOption = Annotated[Path | None, typer.Option("--history", metavar="TABLE", help="What history keep has kept.")]
SinceOption = Annotated[str | None, typer.Option(metavar="ISO|7d", help="Only records of this time or later.")]
NowOption = Annotated[str | None, typer.Option(metavar="ISO", help="Answer as at this time.  [default: now]")]

COMMON: dict[str, tuple[Any, Any]] = {
    "data": (DataOption, None),
    "history": (HistoryOption, None),
    "since": (SinceOption, None),
    "now": (NowOption, None),
    "as_json": (AsJson, False),
    "as_csv": (AsCsv, False),
    "safe_csv": (SafeCsv, False),
    "output": (Output, None),
    "master": (Master, None),
}

app = make_app("Ask an offsets log: who commits too often, what is dead, who rebalances, what goes back, what grows.")


class Question(NamedTuple):
    """``ask`` gets the records, and by name what it asks for: ``now``, and its own options with their defaults."""

    name: str
    help: str
    ask: Ask
    nothing: str
    options: dict[str, tuple[Any, Any]] = {}
    needs_now: bool = False


def in_days(help: str, default: float) -> tuple[Any, Any]:
    return Annotated[float, typer.Option(min=0, help=help)], default


def at_least(help: str, default: int) -> tuple[Any, Any]:
    return Annotated[int, typer.Option(min=1, help=help)], default


def grown(records: DataFrame, now: datetime, ahead: int = FORECAST_DAYS) -> DataFrame:
    """``forecast`` as a DataFrame."""
    spark, days = records.sparkSession, forecast(growth(records).collect(), now, ahead)
    schema = "day date, records double, low double, high double, is_forecast boolean"
    return spark.createDataFrame([(one.day, *map(float, one[1:4]), one.is_forecast) for one in days], schema)


QUESTIONS = (
    Question("commits", "Who commits how often.", frequent_commits, "nobody has committed"),
    Question(
        "zombie-groups",
        "Groups that have offsets and do not commit.",
        zombie_groups,
        "every group has committed lately",
        {"days": in_days("Without a commit for so many days.", OLD_DAYS)},
        needs_now=True,
    ),
    Question(
        "zombie-topics",
        "Topics for which nobody commits.",
        zombie_topics,
        "every topic has a group that committed lately",
        {"days": in_days("Without a commit for so many days.", OLD_DAYS)},
        needs_now=True,
    ),
    Question("rebalances", "Each generation of each group: who came, who went.", generations, "no group had members"),
    Question(
        "storms",
        "Where a group had too many generations.",
        storms,
        "there was no storm",
        {
            "minutes": in_days("Within so many minutes.", STORM_MINUTES),
            "at_least": at_least("So many generations.", STORM_GENERATIONS),
        },
    ),
    Question(
        "gaps",
        "Where commits stopped for a while.",
        gaps,
        "there was no gap",
        {"minutes": in_days("For longer than so many minutes.", GAP_MINUTES)},
    ),
    Question("rewinds", "Commits that went backwards.", rewinds, "no commit went backwards"),
    Question(
        "skew",
        "Groups some of whose partitions are ahead of the others.",
        skew,
        "in no group is a partition ahead of another",
    ),
    Question("growth", "How the log grew, day by day.", growth, "the log is empty"),
    Question(
        "forecast",
        "How many records there will be a day.",
        grown,
        "the log is empty",
        {"ahead": at_least("For so many days.", FORECAST_DAYS)},
        needs_now=True,
    ),
    Question(
        "expiring",
        "Offsets that will expire.",
        expiring,
        "nothing expires",
        {
            "days": in_days("Within so many days.", WITHIN_DAYS),
            "retention_minutes": at_least("The server's offsets.retention.minutes.", RETENTION_MINUTES),
        },
        needs_now=True,
    ),
)


class Asked(NamedTuple):
    """Where to look, from which time on, and up to which; and what now is."""

    data: Path | None
    history: Path | None
    since: datetime | None
    until: datetime | None
    now: datetime

    def records(self, spark: SparkSession) -> DataFrame:
        return records(spark, self.data, self.history, self.since, self.until)


def asked(data: Path | None, history: Path | None, since: str | None, now: str | None) -> Asked:
    """What was asked for, checked before Spark starts, which takes seconds. StartError."""
    if data is None and history is None:
        raise StartError("found nothing to look at, expected --data DIR, --history TABLE, or both")
    clock = datetime.now(UTC)
    moment = clock if now is None else parse_moment("--now", now, clock)
    if data is not None:
        for folder in folders(data).values():
            log_files(Disk(), folder)  # which refuses what a newer version has compacted
    if history is not None:
        HistoryTable.open(history)
    first = None if since is None else parse_moment("--since", since, moment)
    return Asked(data, history, first, None if now is None else moment, moment)


def add(question: Question) -> None:
    """A command for a question, with its own options and those that all have."""
    options = {**question.options, **COMMON}

    def command(**given: Any) -> None:
        check_output(given["output"], given["as_json"], given["as_csv"], given["safe_csv"])
        wanted = asked(given["data"], given["history"], given["since"], given["now"])
        own = {name: given[name] for name in question.options} | ({"now": wanted.now} if question.needs_now else {})
        with session(f"callboard analyse {question.name}", given["master"]) as spark:
            frame = question.ask(wanted.records(spark), **own)
            show(frame, given["as_json"], given["as_csv"], given["output"], question.nothing, given["safe_csv"])

    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in options.items()
    ]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {name: kind for name, (kind, _) in options.items()}
    app.command(question.name, help=question.help)(command)


for each in QUESTIONS:
    add(each)


def main(argv: Sequence[str]) -> int:
    return call(app, argv, "callboard analyse")
