"""A progress bar of bytes, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]
"""Reports that so many more bytes are done."""


@contextmanager
def byte_progress(total_bytes: int, label: str, *, is_quiet: bool = False) -> Iterator[Advance]:
    """Show a bar on standard error; none if ``is_quiet``, or if that is no terminal."""
    if is_quiet or not sys.stderr.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn(label), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total_bytes)
        yield lambda size: progress.advance(task, size)
