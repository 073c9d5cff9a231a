"""Output for people, with text of clients escaped, so that clients cannot control the terminal.

Names, metadata and other text come from clients and may contain line ends, terminal escape sequences, or characters
that reverse the direction of writing. The functions here print all such characters as escapes. For programs there is
JSON, where an escape stands for the character, and CSV, which is exact unless it goes to a terminal.
"""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

from ...actors.text import printable

_FORMULA = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")  # also the wide ones: OWASP, CSV Injection
_SKIPPED_BEFORE_FORMULA = frozenset("\t\r\n\0'")


def printable_lines(text: str) -> str:
    """Like ``printable``, but keeps line ends, for text of several lines such as a traceback."""
    return "\n".join(map(printable, text.split("\n")))


def print_line(text: object = "", *, flush: bool = False) -> None:
    """Print a line on standard output."""
    print(printable(str(text)), flush=flush)


def print_lines(text: str) -> None:
    """Print several lines on standard output. Escape text of clients with ``printable`` first: line ends are kept."""
    print(printable_lines(text))


def print_error(text: object, *, flush: bool = False) -> None:
    """Print a line on standard error, after the name of the program."""
    print(f"callboard: {printable(str(text))}", file=sys.stderr, flush=flush)


def print_hint(text: str) -> None:
    """Print a line on standard error if that is a terminal."""
    if sys.stderr.isatty():
        print(printable(text), file=sys.stderr)


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON text with non-ASCII characters as they are, and unprintable ones as JSON escapes."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def print_json(value: Any, indent: int | None = 2) -> None:
    print(json_text(value, indent))


def spreadsheet_cell(text: str) -> str:
    """Prefix a text with an apostrophe if a spreadsheet could evaluate it as a formula (CSV injection).

    A text that begins with an apostrophe gets a second one, so that ``from_spreadsheet_cell`` restores every text.
    """
    return f"'{text}" if text.lstrip()[:1] in _FORMULA or text[:1] in _SKIPPED_BEFORE_FORMULA else text


def from_spreadsheet_cell(cell: str) -> str:
    return cell.removeprefix("'")


class PrintableStream:
    """A stream that escapes terminal control sequences. It keeps line ends, which end the rows of a table."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        self._stream.write(printable_lines(text))


Writable = TextIO | PrintableStream


def csv_stream() -> Writable:
    """Standard output for CSV: exact text in a file or pipe, escaped text on a terminal."""
    return PrintableStream(sys.stdout) if sys.stdout.isatty() else sys.stdout
