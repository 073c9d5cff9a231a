"""Runs the child processes of a benchmark in this process: their code is the same, and no interpreter starts."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any


def run_in_this_process(arguments: Sequence[str], name: str, _timeout_s: float) -> dict[str, Any]:
    """As ``harness.run_once`` for ``-m MODULE ...``."""
    option, module, *argv = arguments
    assert option == "-m", name
    output = io.StringIO()
    with redirect_stdout(output):
        assert import_module(module).main(argv) == 0, name
    result: dict[str, Any] = json.loads(output.getvalue())
    return result
