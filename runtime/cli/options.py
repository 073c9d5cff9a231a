"""Options that several commands have. An option has one name, one form and one meaning in all commands."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import Annotated

import typer

NUMBER_MAX = 1_000_000
"""The largest number of seconds, minutes or days that an option takes. A socket cannot wait for a month."""


def refuse_nan(number: float | None) -> float | None:
    """For options with a range: NaN is in none, but it is neither below nor above one. None: it was not given."""
    if number is not None and isnan(number):
        raise typer.BadParameter("nan, expected a number.")
    return number


DataFolder = Annotated[
    Path,
    typer.Option(
        "--data",
        metavar="DIR",
        envvar="CALLBOARD_DATA",
        help="The data folder of a server, running or not, or a log folder of Kafka.",
    ),
]
Groups = Annotated[
    list[str] | None, typer.Option("--group", metavar="GROUP", help="Only this group; may be repeated.  [default: all]")
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason, for the audit trail and the log.")]


def is_in_command_line(ctx: typer.Context, parameter: str) -> bool:
    """Whether an option was given, rather than its environment variable, which may be there for other commands."""
    source = ctx.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"
