"""The base class of the errors that a program may want to handle."""

from __future__ import annotations

from typing import Any


class CallboardError(Exception):
    """An error of Callboard. Its text says what happened, and what to do."""

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copy, also if the constructor of a subclass takes other arguments than the text."""
        return _restore, (type(self), self.args, self.__dict__)


def _restore(error_type: type[CallboardError], args: tuple[Any, ...], attributes: dict[str, Any]) -> CallboardError:
    error = error_type.__new__(error_type, *args)
    error.__dict__.update(attributes)
    return error
