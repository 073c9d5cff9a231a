"""Commits to a server whose log is about to fail."""

from __future__ import annotations

import itertools

from full_disk_program import commit
from peers.wire import Wire


def commit_until_refused(wire: Wire, first: int) -> int:
    """Commit one offset after the other; the last that was acknowledged before the server refused or hung up."""
    for offset in itertools.count(first):
        try:
            if commit(wire, offset) != "NONE":
                return offset - 1
        except OSError:
            return offset - 1
    raise AssertionError
