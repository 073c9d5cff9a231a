"""Options of commands that talk to a server, and their exit codes.

0: done; 1: the server cannot be reached or refused, with one line on standard error; 2: the command line is invalid,
and no request was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..client.errors import ClientError
from ..common.errors import StartError
from ..common.printing import print_error
from ..settings.address import parse_addresses
from .options import NUMBER_MAX, refuse_nan

if TYPE_CHECKING:
    from ..client.cluster import Cluster

REFUSED_EXIT_CODE = 1
DEFAULT_SERVER = "127.0.0.1:9092"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar="CALLBOARD_BOOTSTRAP_SERVER",
        help="A server of the cluster, or several with commas between: the first that answers is used.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
TimeoutS = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.1,
        max=NUMBER_MAX,
        callback=refuse_nan,
        metavar="SECONDS",
        help="How long to wait for an answer.",
    ),
]


def connect(bootstrap_server: str, timeout_s: float) -> Cluster:
    """Connections to the first server that answers, if several are given.

    Raises StartError if an address, or a security setting, is invalid, and ClientError if none of several answers.
    """
    from ..client.cluster import connect_to_first  # imports more than the help needs
    from ..client.security import command_security

    return connect_to_first(parse_addresses("--bootstrap-server", bootstrap_server), timeout_s, command_security())


def parse_assignment(option: str, text: str) -> tuple[str, str]:
    """The name and the value in NAME=VALUE. Raises StartError."""
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise StartError(f"{option} '{text}': expected NAME=VALUE")
    return name, value


def run_on_disk(app: typer.Typer, argv: Sequence[str], name: str) -> int:
    """Run a command on files. Returns its exit code; an OSError is printed as one line."""
    try:
        app(list(argv), prog_name=name)
    except OSError as error:
        from ..disk.disk import describe_failure  # not for the help

        print_error(describe_failure(error))
        return REFUSED_EXIT_CODE
    return 0


def run_app(app: typer.Typer, argv: Sequence[str], name: str) -> int:
    """Run a command. Returns its exit code; a ClientError is printed as one line."""
    try:
        app(list(argv), prog_name=name)
    except ClientError as error:
        print_error(error)
        return REFUSED_EXIT_CODE
    return 0
