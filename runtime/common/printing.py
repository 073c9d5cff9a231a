"""Text for people, on a terminal that clients must not control.

Names, metadata and other text come from clients, who may put anything into them: line ends, a terminal's escape
sequences, characters that reverse the direction of writing. What is printed for people goes through here and shows all
such characters as escapes. Programs read JSON, where an escape is the character itself, or CSV, which is exact unless
it goes to a terminal.
"""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

_FORMULA = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")  # also the wide ones: OWASP, CSV Injection
_FORMULA_BEFORE = frozenset("\t\r\n\0'")


def printable(text: str) -> str:
    """A text on one line that does nothing to a terminal: a line end becomes ``\\n``.

    Escaped is what Unicode calls other or separator but the space: C0 and C1 controls, DEL, format characters such as
    those of bidirectional text, lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def printable_lines(text: str) -> str:
    """The same with line ends as they are, for text of several lines such as a traceback."""
    return "\n".join(map(printable, text.split("\n")))


def print_line(text: object = "", *, flush: bool = False) -> None:
    """A line on standard output."""
    print(printable(str(text)), flush=flush)


def print_lines(text: str) -> None:
    """Several lines on standard output. Text of clients must be ``printable`` already: a line end in it ends a line."""
    print(printable_lines(text))


def print_error(text: object, *, flush: bool = False) -> None:
    """A line on standard error that names the program."""
    print(f"callboard: {printable(str(text))}", file=sys.stderr, flush=flush)


def tell_on_terminal(text: str) -> None:
    """A line on standard error, if a person is there to read it."""
    if sys.stderr.isatty():
        print(printable(text), file=sys.stderr)


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON in UTF-8, where all that does not print stands as an escape of JSON's."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)


def print_json(value: Any, indent: int | None = 2) -> None:
    print(json_text(value, indent))


def spreadsheet_cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula (CSV injection): with an apostrophe before it where one might.

    One that begins with an apostrophe gets a second, so that ``from_spreadsheet_cell`` gives each text back.
    """
    return f"'{text}" if text.lstrip()[:1] in _FORMULA or text[:1] in _FORMULA_BEFORE else text


def from_spreadsheet_cell(cell: str) -> str:
    return cell.removeprefix("'")


class PrintableStream:
    """A stream that shows a terminal's commands as escapes. Line ends stay: they end the rows of a table."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        self._stream.write(printable_lines(text))


Writable = TextIO | PrintableStream


def csv_stream() -> Writable:
    """Standard output for CSV: exact for a file or a program, printable on a terminal."""
    return PrintableStream(sys.stdout) if sys.stdout.isatty() else sys.stdout
