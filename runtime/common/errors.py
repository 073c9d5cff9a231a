"""Errors that several packages know."""

from __future__ import annotations

from ...actors.callboard_error import CallboardError


class StartError(CallboardError):
    """The program cannot start: one line on standard error, and by default exit code 2.

    The text says what was found, what was expected, and what the user can do.
    """

    exit_code = 2  # as for a wrong option: nothing was started, nothing was changed


class CompactionRuns(CallboardError):
    """The log is being compacted, so no other compaction is started."""
