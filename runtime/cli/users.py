"""``callboard users``: the users who authenticate by SASL: on a server, of a stopped one, or in a cluster's store."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..common.errors import StartError
from ..common.printing import print_error, print_line
from .cluster.errors import CommandFailed
from .main import make_app
from .server_options import DEFAULT_SERVER, REFUSED_EXIT_CODE, AsJson, Bootstrap, TimeoutS, run_app
from .tables import Column, Table, show_rows

if TYPE_CHECKING:
    from .user_stores import UserStore

USER_COLUMNS = (
    Column("user", "user"),
    Column("mechanism", "mechanism"),
    Column("iterations", "iterations", is_number=True),
)
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384  # those of ``security.credentials``, which the help does not import
MECHANISMS = "SCRAM-SHA-256,SCRAM-SHA-512"
STANDARD_INPUT = "-"

UserName = Annotated[str, typer.Argument(metavar="USER")]
PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="A file with the password in its first line; - for standard input.  [default: asks for it]",
    ),
]
Mechanisms = Annotated[
    str, typer.Option("--mechanism", metavar="NAME,...", help="The mechanisms that the user may authenticate by.")
]
Iterations = Annotated[
    int,
    typer.Option(
        "--iterations", min=ITERATIONS_MIN, max=ITERATIONS_MAX, metavar="N", help="How often the password is hashed."
    ),
]
StoppedData = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="The data folder of a server that is not running, instead of a server: for the first user.",
    ),
]

ClusterStore = Annotated[
    str | None,
    typer.Option("--cluster", metavar="URL", help="The store of a cluster, instead of a server: for the first user."),
]


class Access(Enum):
    """What a command does with a data folder. ``CREATE``: it changes the folder, and creates a missing one."""

    READ = auto()
    CHANGE = auto()
    CREATE = auto()


app = make_app("Add, list and remove the users who authenticate by SCRAM or PLAIN, and change their passwords.")


@app.command("add")
def add(
    user: UserName,
    password_file: PasswordFile = None,
    mechanism: Mechanisms = MECHANISMS,
    iterations: Iterations = ITERATIONS_MIN,
    data: StoppedData = None,
    cluster: ClusterStore = None,
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    timeout: TimeoutS = 10.0,
) -> None:
    """Add a user. The password is asked for, or read from a file."""
    from .user_stores import new_passwords

    _check_name(user)
    with _open(data, cluster, bootstrap_server, timeout, Access.CREATE) as store:
        if any(listing.name == user for listing in store.users()):
            raise StartError(f"user '{user}' exists already: `callboard users passwd` changes the password")
        store.set_password(user, new_passwords(mechanism, _password(password_file), iterations))
    print_line(f"user '{user}' added")


@app.command("passwd")
def passwd(
    user: UserName,
    password_file: PasswordFile = None,
    iterations: Iterations = ITERATIONS_MIN,
    data: StoppedData = None,
    cluster: ClusterStore = None,
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    timeout: TimeoutS = 10.0,
) -> None:
    """Change the password of a user, for all the mechanisms that the user has. Connections that are open stay open."""
    from .user_stores import find_user, new_passwords

    with _open(data, cluster, bootstrap_server, timeout) as store:
        mechanisms = ",".join(find_user(store, user).iterations)
        store.set_password(user, new_passwords(mechanisms, _password(password_file), iterations))
    print_line(f"password of user '{user}' changed")


@app.command("list")
def list_(
    data: StoppedData = None,
    cluster: ClusterStore = None,
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """List the users with their mechanisms."""
    with _open(data, cluster, bootstrap_server, timeout, Access.READ) as store:
        rows = [(user.name, *item) for user in store.users() for item in sorted(user.iterations.items())]
    nothing = f"no users {'in' if data or cluster else 'on'} {data or cluster or bootstrap_server}"
    show_rows(Table(USER_COLUMNS, rows), nothing, as_json=as_json)


@app.command("remove")
def remove(
    users: Annotated[list[str], typer.Argument(metavar="USER...")],
    data: StoppedData = None,
    cluster: ClusterStore = None,
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    timeout: TimeoutS = 10.0,
) -> None:
    """Remove users. They cannot authenticate any more; connections that are open stay open."""
    from .user_stores import find_user

    with _open(data, cluster, bootstrap_server, timeout) as store:
        for user in dict.fromkeys(users):
            store.remove(find_user(store, user))
            print_line(f"user '{user}' removed")


@contextmanager
def _open(
    data: Path | None, cluster: str | None, bootstrap_server: str, timeout_s: float, access: Access = Access.CHANGE
) -> Iterator[UserStore]:
    from .user_stores import open_cluster, open_folder, open_server, read_folder

    if data is not None and cluster is not None:
        raise StartError("both --data and --cluster are given: expected one of them")
    if cluster is not None:
        opened = open_cluster(cluster, timeout_s)
    elif data is None:
        opened = open_server(bootstrap_server, timeout_s)
    else:
        opened = read_folder(data) if access is Access.READ else open_folder(data, creates=access is Access.CREATE)
    with opened as store:
        yield store


def _check_name(user: str) -> None:
    """SCRAM has no other names (RFC 5802, as Kafka reads it)."""
    if not user or not user.isascii() or not user.isprintable():
        raise StartError(f"bad user '{user}': expected printable ASCII characters, at least one")


def _password(file: str | None) -> str:
    """The password, which is never an argument: others can see a command line."""
    if file is None:
        if not _has_terminal():
            raise StartError(
                "there is no terminal to ask for the password: expected --password-file FILE, or - for standard input"
            )
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = _first_line(file)
    if not password:
        raise StartError("the password is empty: expected at least one character")
    return str(password)


def _has_terminal() -> bool:
    """Whether this process has a terminal, even if its input is redirected."""
    try:
        os.close(os.open(os.ctermid(), os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _first_line(file: str) -> str:
    try:
        text = sys.stdin.readline() if file == STANDARD_INPUT else Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise StartError(f"cannot read the password file '{file}': {reason}") from error
    return text.split("\n", 1)[0].removesuffix("\r")


def main(argv: Sequence[str]) -> int:
    try:
        return run_app(app, argv, "callboard users")
    except CommandFailed as error:
        print_error(error)
        return REFUSED_EXIT_CODE
    except OSError as error:
        from ..disk.disk import describe_failure  # not for the help

        print_error(describe_failure(error))
        return REFUSED_EXIT_CODE
