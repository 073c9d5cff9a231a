"""Text that contains strings of clients or counts, for log lines and terminals. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def printable(text: str) -> str:
    """Escape a text for one line of a terminal: a line end becomes ``\\n``.

    Escapes all characters of Unicode's categories Other and Separator except the space: C0 and C1 controls, DEL, format
    characters such as those of bidirectional text, lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def format_count(number: int, unit: str) -> str:
    """A number with its unit: 1 member, 2,000 members."""
    return f"{number:,} {unit}" + ("" if number == 1 else "s")


def did_you_mean(name: object, known_names: Iterable[str]) -> str:
    """' did you mean ...?' for the end of a message about an unknown name; empty if no known name is similar.

    Case does not count: a name in lower case is similar to the same name in upper case.
    """
    from difflib import get_close_matches  # for errors only

    by_folded = {known.casefold(): known for known in known_names}
    similar = get_close_matches(str(name).casefold(), list(by_folded), n=1)
    return f" did you mean '{by_folded[similar[0]]}'?" if similar else ""


class LogLine:
    """A message for ``logging``, with fields. As text it is ``event field=value ...``; structlog gets the fields."""

    __slots__ = ("event", "fields")

    def __init__(self, event: str, fields: Mapping[str, object]) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        return " ".join([self.event, *(f"{name}={_as_text(value)}" for name, value in self.fields.items())])


def _as_text(value: object) -> str:
    """The member of a StrEnum as its value, as structlog shows it; its ``repr`` would be ``<State.EMPTY: 'Empty'>``."""
    return repr(str(value)) if isinstance(value, str) else repr(value)
