"""Every command of ``callboard`` with its options, as its module declares them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

import typer

from callboard.runtime.cli.main import COMMANDS


class CommandLine(NamedTuple):
    """``words``: those after ``callboard``, for example ("log", "dump"). ``parameters``: options and arguments."""

    words: tuple[str, ...]
    parameters: tuple[Any, ...]


def walk_commands() -> Iterator[CommandLine]:
    """All commands that Typer parses: those of benches have parsers of their own."""
    for name, command in COMMANDS.items():
        module = import_module(command.module)
        if hasattr(module, "app"):
            yield from _walk((name,), typer.main.get_command(module.app))


def _walk(words: tuple[str, ...], command: Any) -> Iterator[CommandLine]:
    yield CommandLine(words, tuple(command.params))
    for name, child in getattr(command, "commands", {}).items():
        yield from _walk((*words, name), child)
