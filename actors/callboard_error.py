"""The base class of the errors that a program may want to handle."""

from __future__ import annotations


class CallboardError(Exception):
    """An error of Callboard. Its text says what happened, and what to do."""
