"""The error that ends a command before it starts to work: one line on standard error, and by default exit code 2."""

from __future__ import annotations

from ...actors.callboard_error import CallboardError


class StartError(CallboardError):
    """The program cannot start. The text says what was found, what was expected, and what the user can do."""

    exit_code = 2  # as for a wrong option: nothing was started, nothing was changed
