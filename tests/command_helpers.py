"""Runs a command's ``main`` in this process and returns its exit code and output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from callboard.runtime.cli.exchange import export, imports
from callboard.runtime.common.errors import StartError


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., CommandResult]


def command(main: Callable[[Sequence[str]], int], capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: object) -> CommandResult:
        code: Any
        text = ""
        try:
            code = main([str(argument) for argument in arguments])
        except StartError as error:
            code, text = 2, f"{error}\n"
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return CommandResult(code, out, err + text)

    return run


@pytest.fixture
def run_export(capsys: pytest.CaptureFixture[str]) -> Command:
    return command(export.main, capsys)


@pytest.fixture
def run_import(capsys: pytest.CaptureFixture[str]) -> Command:
    return command(imports.main, capsys)
