"""Text that contains strings of clients, for log lines and terminals. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def printable(text: str) -> str:
    """Escape a text for one line of a terminal: a line end becomes ``\\n``.

    Escapes all characters of Unicode's categories Other and Separator except the space: C0 and C1 controls, DEL, format
    characters such as those of bidirectional text, lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class LogLine:
    """A message for ``logging``, with fields. As text it is ``event field=value ...``; structlog gets the fields."""

    __slots__ = ("event", "fields")

    def __init__(self, event: str, fields: Mapping[str, object]) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        return " ".join([self.event, *(f"{name}={value!r}" for name, value in self.fields.items())])
