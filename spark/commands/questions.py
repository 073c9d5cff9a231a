"""``callboard analyse NAME``: answers one question about an offsets log, as a table, JSON, CSV or Parquet.

Exit codes: 0 done; 1 a disk or Spark failed; 2 the command line or the folder is invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ...runtime.cli.main import make_app
from ...runtime.cli.options import NUMBER_MAX, refuse_nan
from ...runtime.common.errors import StartError
from ..output import AsCsv, AsJson, Output, SafeCsv, check_output, output_frame
from ..session import session
from ..time_options import parse_time
from .defaults import (
    FORECAST_DAYS,
    GAP_MINUTES,
    RETENTION_MINUTES,
    STORM_GENERATIONS,
    STORM_MINUTES,
    WITHIN_DAYS,
    ZOMBIE_DAYS,
)
from .running import Master, run_app

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QuestionFunction = Callable[..., "DataFrame"]

DataOption = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="A data folder, Callboard's or Kafka's.")
]
TableOption = Annotated[
    str | None, typer.Option("--table", metavar="TABLE", help="The folder or URL of a table made by history keep.")
]
SinceOption = Annotated[str | None, typer.Option(metavar="ISO|7d", help="Only records of this time or later.")]
NowOption = Annotated[
    str | None, typer.Option(metavar="ISO", help="Use this time as the current time.  [default: now]")
]

COMMON_OPTIONS: dict[str, tuple[Any, Any]] = {
    "data": (DataOption, None),
    "table": (TableOption, None),
    "since": (SinceOption, None),
    "now": (NowOption, None),
    "as_json": (AsJson, False),
    "as_csv": (AsCsv, False),
    "safe_csv": (SafeCsv, False),
    "output": (Output, None),
    "master": (Master, None),
}

app = make_app("Answer questions about an offsets log: frequent commits, dead groups, rebalances, rewinds, growth.")


class Question(NamedTuple):
    """``answer`` is called with the records, and by keyword with the question's options and, if needed, ``now``.

    ``empty_message``: printed if there are no rows.
    """

    name: str
    help: str
    answer: QuestionFunction
    empty_message: str
    options: dict[str, tuple[Any, Any]] = {}
    needs_now: bool = False


def number_option(help: str, default: float) -> tuple[Any, Any]:
    return Annotated[float, typer.Option(min=0, max=NUMBER_MAX, callback=refuse_nan, help=help)], default


def count_option(help: str, default: int) -> tuple[Any, Any]:
    return Annotated[int, typer.Option(min=1, help=help)], default


def answer_by(module: str, function: str) -> QuestionFunction:
    """A function of ``callboard.spark.analysis``, whose module is imported when the function is called."""

    def answer(records: DataFrame, **options: Any) -> DataFrame:
        frame: DataFrame = getattr(import_module(f"callboard.spark.analysis.{module}"), function)(records, **options)
        return frame

    return answer


QUESTIONS = (
    Question("commits", "How often groups commit.", answer_by("commits", "frequent_commits"), "no group has committed"),
    Question(
        "zombie-groups",
        "Groups that have offsets and do not commit.",
        answer_by("zombies", "zombie_groups"),
        "every group has committed recently",
        {"days": number_option("Days without a commit.", ZOMBIE_DAYS)},
        needs_now=True,
    ),
    Question(
        "zombie-topics",
        "Topics for which no group commits.",
        answer_by("zombies", "zombie_topics"),
        "every topic has a group that committed recently",
        {"days": number_option("Days without a commit.", ZOMBIE_DAYS)},
        needs_now=True,
    ),
    Question(
        "rebalances",
        "Generations of groups, with joins and leaves.",
        answer_by("rebalances", "generations"),
        "no group had members",
    ),
    Question(
        "storms",
        "Times with too many generations of a group.",
        answer_by("rebalances", "storms"),
        "there was no rebalance storm",
        {
            "minutes": number_option("The length of the time window in minutes.", STORM_MINUTES),
            "at_least": count_option("Generations in the window.", STORM_GENERATIONS),
        },
    ),
    Question(
        "gaps",
        "Times without a commit of a partition.",
        answer_by("commits", "gaps"),
        "there was no gap",
        {"minutes": number_option("Minimum length in minutes.", GAP_MINUTES)},
    ),
    Question(
        "rewinds",
        "Commits of smaller offsets than before.",
        answer_by("commits", "rewinds"),
        "no commit went backwards",
    ),
    Question(
        "skew",
        "Groups whose partitions progress unevenly.",
        answer_by("commits", "skew"),
        "all partitions of each group and topic progressed evenly",
    ),
    Question("growth", "The log's growth by day.", answer_by("growth", "growth"), "the log is empty"),
    Question(
        "forecast",
        "Forecast of records by day.",
        answer_by("growth", "forecast_frame"),
        "the log is empty",
        {"ahead": count_option("Number of days.", FORECAST_DAYS)},
        needs_now=True,
    ),
    Question(
        "expiring",
        "Offsets that will expire.",
        answer_by("expiring", "expiring"),
        "nothing expires",
        {
            "days": number_option("Days from now.", WITHIN_DAYS),
            "retention_minutes": count_option("The server's offsets.retention.minutes.", RETENTION_MINUTES),
        },
        needs_now=True,
    ),
)


class QueryInput(NamedTuple):
    """The sources of the records, the time range, and the time that counts as now."""

    data: Path | None
    history: str | None
    since: datetime | None
    until: datetime | None
    now: datetime

    def records(self, spark: SparkSession) -> DataFrame:
        from ..analysis.sources import records

        return records(spark, self.data, self.history, self.since, self.until)


def parse_query_input(data: Path | None, history: str | None, since: str | None, now: str | None) -> QueryInput:
    """Check the options before Spark starts, which takes seconds. Raises StartError."""
    if data is None and history is None:
        raise StartError("found no source, expected --data DIR, --table TABLE, or both")
    from ...runtime.disk.disk import Disk
    from ...runtime.log.manifest import log_files
    from ..analysis.sources import log_partitions
    from ..history.opening import open_table

    clock = datetime.now(UTC)
    time = clock if now is None else parse_time("--now", now, clock)
    if data is not None:
        for folder in log_partitions(data).values():
            log_files(Disk(), folder)  # raises for a log that was compacted by a newer version
    if history is not None:
        open_table(history)
    first = None if since is None else parse_time("--since", since, time)
    return QueryInput(data, history, first, None if now is None else time, time)


def add_command(question: Question) -> None:
    """Add a command for a question, with its own options and the common ones."""
    options = {**question.options, **COMMON_OPTIONS}

    def command(**values: Any) -> None:
        as_json, as_csv, output, safe_csv = (values[name] for name in ("as_json", "as_csv", "output", "safe_csv"))
        check_output(output, as_json, as_csv, safe_csv)
        query = parse_query_input(values["data"], values["table"], values["since"], values["now"])
        arguments = {name: values[name] for name in question.options}
        if question.needs_now:
            arguments["now"] = query.now
        with session(f"callboard analyse {question.name}", values["master"]) as spark:
            frame = question.answer(query.records(spark), **arguments)
            output_frame(frame, as_json, as_csv, output, question.empty_message, safe_csv)

    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in options.items()
    ]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {name: kind for name, (kind, _) in options.items()}
    app.command(question.name, help=question.help)(command)


for each in QUESTIONS:
    add_command(each)


def main(argv: Sequence[str]) -> int:
    return run_app(app, argv, "callboard analyse")
