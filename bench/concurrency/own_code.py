"""Engines and workloads of the user's own, which are named by MODULE:NAME."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path


class UnknownName(Exception):
    """There is no such engine or workload, or it is not what it should be. The message is for the user."""


def import_object(kind: str, path: str, known: Sequence[str]) -> object:
    """The object of MODULE:NAME. Modules of the current folder are found, as with ``python -m``. Raises UnknownName.

    ``known``: the names that are no paths, for the message.
    """
    module_name, colon, name = path.partition(":")
    if not colon:
        raise UnknownName(f"there is no {kind} {path!r}; there are: {', '.join(known)}, or your own as MODULE:NAME")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = import_module(module_name)
    except Exception as error:
        raise UnknownName(f"bad {kind} {path!r}: the module {module_name!r} cannot be imported: {error!r}") from error
    if not hasattr(module, name):
        raise UnknownName(f"bad {kind} {path!r}: the module {module_name!r} has no {name!r}")
    return getattr(module, name)
