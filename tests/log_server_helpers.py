"""Commits to a server whose log is about to fail."""

from __future__ import annotations

import itertools

from full_disk_program import commit
from peers.wire import Wire


def commit_until_refused(wire: Wire, first: int) -> int:
    """Commit increasing offsets until the server refuses one or disconnects; return the last acknowledged offset."""
    for offset in itertools.count(first):
        try:
            if commit(wire, offset) != "NONE":
                return offset - 1
        except OSError:
            return offset - 1
    raise AssertionError
