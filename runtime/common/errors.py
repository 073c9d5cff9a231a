"""What stops a program of ours before it serves: one line for a person, and exit code 2."""

from __future__ import annotations


class StartError(Exception):
    """The program cannot start as asked. The text says what was found, what was expected and what to do."""
