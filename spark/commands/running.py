"""Runs a command, and the options that several commands have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from ...runtime.client.errors import ClientError
from ...runtime.common.printing import print_error
from ...runtime.disk.disk import describe_failure
from ..session import is_spark_error, short_message

FAILED_EXIT_CODE = 1
DAMAGED_EXIT_CODE = 3

TableLocation = Annotated[
    str, typer.Option("--table", metavar="TABLE", help="The folder or URL of a table made by history keep.")
]
Master = Annotated[
    str | None, typer.Option(metavar="URL", help="Spark's master URL.  [default: all cores of this machine]")
]


def run_app(app: typer.Typer, argv: Sequence[str], name: str) -> int:
    """Run a Typer app, and print an error as one line on standard error. Returns the exit code."""
    try:
        app(list(argv), prog_name=name)
    except ClientError as error:
        print_error(error)
    except OSError as error:
        print_error(describe_failure(error))
    except Exception as error:
        if not is_spark_error(error):
            raise
        print_error(f"Spark: {short_message(error)}")
    else:
        return 0
    return FAILED_EXIT_CODE
