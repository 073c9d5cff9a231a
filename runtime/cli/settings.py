"""``callboard settings``: the table of settings, as text and as JSON; ``set``: changes settings of a running server."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from ..client.settings import change_settings
from ..common.errors import StartError
from ..common.printing import print_line
from ..settings.listener_limits import find_limit
from ..settings.listener_settings import LISTENER_SETTINGS, ListenerSetting, find_listener_setting
from ..settings.rows import Setting
from ..settings.table import SETTINGS, find_setting
from .main import make_app
from .server_options import DEFAULT_SERVER, Bootstrap, TimeoutS, connect, parse_assignment, run_app

app = make_app("List every setting with its default, its range and its use; or change settings of a running server.")


@app.callback(invoke_without_command=True, no_args_is_help=False)
def settings(
    ctx: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False
) -> None:
    """List every setting with its default, its range and its use."""
    if ctx.invoked_subcommand is None:
        print_settings(as_json)


@app.command("set")
def set_(
    changes: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE...", help="NAME= without a value restores the value of the start."),
    ],
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    timeout: TimeoutS = 10.0,
) -> None:
    """Change settings of a running server, all or none. They are kept when it restarts."""
    values = dict(parse_change(text) for text in changes)
    with connect(bootstrap_server, timeout) as cluster:
        change_settings(cluster, values)
    for name, value in values.items():
        print_line(f"{name} is {'the start value again' if value is None else value}")


def parse_change(text: str) -> tuple[str, str | None]:
    """Kafka's name of a dynamic setting and its new value. Raises StartError."""
    from ..settings.dynamic import kafka_name  # imports asyncio, which the help does not need

    name, value = parse_assignment("set", text)
    setting = find_limit(name)
    if setting is None and find_listener_setting(name) is None:
        setting = find_setting(name.replace(".", "_"))
    if setting is None or not setting.is_dynamic:
        raise StartError(f"setting '{name}' cannot change while the server runs: start it with --set {name}=VALUE")
    return kafka_name(setting.name), value or None


def print_settings(as_json: bool) -> None:
    if as_json:
        rows = [*map(to_json, SETTINGS), *map(listener_to_json, LISTENER_SETTINGS)]
        print(json.dumps(rows, indent=2))
    elif sys.stdout.isatty():
        print_table()
    else:
        print_plain()


def to_json(setting: Setting) -> dict[str, object]:
    form = setting.form and setting.form.expected
    return {**setting._asdict(), "type": setting.type.__name__, "form": form, "is_dynamic": setting.is_dynamic}


def listener_to_json(setting: ListenerSetting) -> dict[str, object]:
    return {**setting._asdict(), "type": "str", "is_dynamic": setting.is_dynamic}


def cells(setting: Setting) -> tuple[str, str, str, str]:
    default = str(setting.default)
    return setting.name, default.lower(), setting.range, setting.doc


def listener_cells(setting: ListenerSetting) -> tuple[str, str, str, str]:
    return setting.name, setting.default or "-", ", ".join(setting.choices) or "text", setting.doc


def all_cells() -> list[tuple[str, str, str, str]]:
    """The settings of the server, then those of listeners, which may differ between them."""
    return [*map(cells, SETTINGS), *map(listener_cells, LISTENER_SETTINGS)]


def print_plain() -> None:
    """Print aligned columns, one setting a line, for grep and cut."""
    rows = [("name", "default", "range", "use"), *all_cells()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_table() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "default", "range", "use")
    for row in all_cells():
        table.add_row(*row)
    Console().print(table)


def main(argv: Sequence[str]) -> int:
    return run_app(app, argv, "callboard settings")
