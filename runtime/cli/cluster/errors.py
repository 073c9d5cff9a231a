"""The error of the commands."""

from __future__ import annotations

from ....actors.callboard_error import CallboardError


class CommandFailed(CallboardError):
    """The command cannot be done. The text says what was found, and what the user can do."""
