"""How far long work is, on a terminal, where nothing else is written meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

SHORT = 2
"""So few things are done before anybody could read how far they are."""


def tracked(things: Sequence[T], what: str, *, to_terminal: bool = False) -> Iterator[T]:
    """The things one by one, with a bar on standard error. ``to_terminal``: their results are written to one."""
    if to_terminal or len(things) < SHORT or not sys.stderr.isatty():
        yield from things
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(things, what, console=Console(stderr=True), transient=True)
