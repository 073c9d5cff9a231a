"""The command line. A command is a module with ``main(argv) -> exit code``, imported by name when it is called.

So ``callboard --help`` does not import the server, and a command may be in a package that the runtime must not import.
A module that has an ``app`` completes its options in the shell, too (``callboard --install-completion``).
Help is plain text: with rich it takes 130 ms instead of 60.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from ..common.errors import StartError
from ..common.printing import print_error, print_line

HELP_OPTIONS = ["-h", "--help"]
SERVICE_CONTEXT = {"auto_envvar_prefix": "CALLBOARD", "help_option_names": HELP_OPTIONS}
"""Context settings of commands that run until a signal: each option has a variable (``CALLBOARD_LOG_LEVEL``)."""
MISSING_EXTRA_HINT = "pip install 'callboard["
"""Part of the message of an import error that names the missing extra."""


GC_THRESHOLD = 100_000
"""Objects of imported modules stay. With Python's 700, examining them takes 5 to 10 % of a server's start."""


class Command(NamedTuple):
    """The help line of a command, and the module to import when it is called."""

    module: str
    help: str


COMMANDS = {
    "serve": Command("callboard.runtime.cli.serve_command", "Serve Kafka clients: groups, offsets, topics in memory."),
    "groups": Command("callboard.runtime.cli.groups.commands", "Show, explain, reset and delete groups."),
    "cluster": Command("callboard.runtime.cli.cluster.commands", "Show, check and change a cluster of several nodes."),
    "topics": Command("callboard.runtime.cli.topics", "Show, create and delete topics on any server."),
    "acls": Command("callboard.runtime.cli.acls", "List, add and remove access control lists on any server."),
    "worker": Command(
        "callboard.runtime.cli.worker.worker_command", "Run a handler in several processes that share work."
    ),
    "log": Command("callboard.runtime.cli.log.commands", "Show, check and repair an offsets log."),
    "export": Command("callboard.runtime.cli.exchange.export", "Write committed offsets to a file, or a log to Kafka."),
    "import": Command("callboard.runtime.cli.exchange.imports", "Read offsets from a file, or a log from Kafka."),
    "compact": Command("callboard.runtime.cli.compact", "Compact an offsets log, with or without a running server."),
    "backup": Command(
        "callboard.runtime.cli.backup.backup_command", "Copy a data folder, also while a server runs on it."
    ),
    "restore": Command("callboard.runtime.cli.backup.restore_command", "Make a data folder from a backup."),
    "history": Command("callboard.spark.commands.history", "Keep every committed offset; show and restore past ones."),
    "analyse": Command(
        "callboard.spark.commands.questions", "Find groups that commit or rebalance too often, or not at all."
    ),
    "report": Command("callboard.spark.commands.report", "Write a page with plots about an offsets log."),
    "users": Command("callboard.runtime.cli.users", "Add, list and remove users who authenticate by SASL."),
    "settings": Command("callboard.runtime.cli.settings", "List the settings of a server, or change them."),
    "dashboard": Command("callboard.runtime.cli.monitoring.dashboard", "Print a dashboard for Grafana."),
    "alerts": Command("callboard.runtime.cli.monitoring.alerts", "Print alert rules for Prometheus."),
    "bench": Command("callboard.bench.__main__", "Run a benchmark by its name, or list them."),
}


def make_app(
    help: str | None = None, group: type[TyperGroup] = TyperGroup, *, add_completion: bool = False
) -> typer.Typer:
    """A Typer app with plain help and Python's own tracebacks."""
    return typer.Typer(
        help=help,
        cls=group,
        no_args_is_help=True,
        add_completion=add_completion,
        context_settings={"help_option_names": HELP_OPTIONS},
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


class LazyGroup(TyperGroup):
    """The commands of ``COMMANDS``. Only shell completion, which parses without running, needs their own options."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if ctx.resilient_parsing and name in COMMANDS:
            module = import_module(COMMANDS[name].module)
            command = typer.main.get_command(module.app) if hasattr(module, "app") else command
        return name, command, rest


app = make_app("Kafka's group coordinator, built from actors.", LazyGroup, add_completion=True)


def show_version(is_given: bool) -> None:
    if is_given:
        from callboard import __version__

        print_line(f"callboard {__version__}")
        raise typer.Exit


@app.callback(no_args_is_help=True)
def callboard(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    pass


def add_command(name: str, command: Command) -> None:
    """Add a command. Its arguments, including ``--help``, are passed to its module unparsed."""
    pass_through = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}

    @app.command(name, help=command.help, context_settings=pass_through, add_help_option=False)
    def call(ctx: typer.Context) -> None:
        try:
            code = import_module(command.module).main(ctx.args)
        except ModuleNotFoundError as error:
            if MISSING_EXTRA_HINT not in str(error):
                raise
            raise StartError(str(error)) from None
        raise typer.Exit(code)


for name, command in COMMANDS.items():
    add_command(name, command)


def main() -> None:
    """Run the program. A StartError is printed as one line on standard error."""
    gc.set_threshold(GC_THRESHOLD)
    try:
        app(prog_name="callboard")
    except StartError as error:
        print_error(error)
        sys.exit(error.exit_code)
