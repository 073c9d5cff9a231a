"""Finds the handler of ``callboard worker`` by its name, ``module:function``."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from ...common.errors import StartError

Handler = Callable[[Any], Any]

_NAME = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


def parse_name(text: str) -> tuple[str, str]:
    """The names of the module and of the function. Raises StartError."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise StartError(f"bad handler '{text}': expected MODULE:FUNCTION, as in jobs.resize:handle")
    return match[1], match[2]


def find_handler(text: str) -> Handler:
    """Import a handler, also from the current folder. Raises StartError, and the errors of the module itself."""
    module_name, name = parse_name(text)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # an import in that module
        raise StartError(
            f"bad handler '{text}': found no module {error.name}; it is searched in {os.getcwd()} and on PYTHONPATH"
        ) from None
    handler = getattr(module, name, None)
    if callable(handler):
        return handler  # type: ignore[no-any-return]
    functions = [each for each, value in vars(module).items() if inspect.isfunction(value)]
    similar = get_close_matches(name, functions, n=1)
    hint = (
        f"; did you mean {similar[0]}?" if similar else f", expected one of {', '.join(functions) or 'its functions'}"
    )
    found = "is no function" if handler is not None else "does not exist"
    raise StartError(f"bad handler '{text}': {name} {found} in {module_name}{hint}")
