"""A progress bar for long work, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

ITEMS_MIN = 2
"""With fewer items no bar is shown."""


def track_progress(items: Sequence[T], label: str, *, to_terminal: bool = False) -> Iterator[T]:
    """Yield the items with a bar on standard error. ``to_terminal``: their results go to a terminal, so no bar."""
    if to_terminal or len(items) < ITEMS_MIN or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, label, console=Console(stderr=True), transient=True)
