"""Runs ``callboard cluster`` in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from callboard.runtime.cli.cluster import commands
from callboard.runtime.common.errors import StartError


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


Run = Callable[..., Result]


def runner(capsys: pytest.CaptureFixture[str]) -> Run:
    """``run("status", "--cluster", url)``"""

    def run(*arguments: str) -> Result:
        capsys.readouterr()
        try:
            code = commands.main(arguments)
        except StartError as error:
            return Result(2, "", str(error))
        except SystemExit as end:
            code = int(end.code or 0)
        return Result(code, *capsys.readouterr())

    return run
