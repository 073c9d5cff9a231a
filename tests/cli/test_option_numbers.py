"""Options with a fraction refuse what no clock and no sum can have, in all commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from command_walk import walk_commands

from callboard.runtime.cli import compact
from callboard.runtime.cli.options import NUMBER_MAX

ODD_NUMBERS = ("nan", "inf", "-inf", "1e300", str(NUMBER_MAX + 1))


def options_with_fractions() -> Iterator[tuple[str, Any]]:
    for command in walk_commands():
        for parameter in command.parameters:
            if parameter.type.name in ("float", "float range"):
                yield f"{' '.join(command.words)} {parameter.opts[0]}", parameter


OPTIONS = dict(options_with_fractions())


def test_options_with_fractions_are_found() -> None:
    assert {"compact --grace-minutes", "groups list --timeout", "worker --stop-timeout"} <= OPTIONS.keys()


@pytest.mark.parametrize("number", ODD_NUMBERS)
def test_option_refuses_number_that_no_clock_has(number: str) -> None:
    """Each of these ended a command with a traceback, of a socket or of a conversion."""
    accepted = [name for name, option in OPTIONS.items() if not is_refused(option, number)]
    assert accepted == []


def is_refused(option: Any, number: str) -> bool:
    context = typer.Context(typer.main.get_command(compact.app))
    try:
        option.process_value(context, number)
    except typer.BadParameter:
        return True
    return False
