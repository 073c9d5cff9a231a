"""Files of NAME=VALUE in the format of Java's properties, as Kafka's tools take them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

LINE_END: Final = re.compile(r"\r\n|\r|\n")
BLANKS: Final = " \t\f"
ENTRY: Final = re.compile(r"(?P<name>(?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(?P<value>.*)", re.DOTALL)
"""The name ends at ``=``, ``:`` or a blank that no backslash precedes."""
ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.?))", re.DOTALL)
ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """The values by name; of two with the same name the last one. No text is invalid."""
    values: dict[str, str] = {}
    for line in _logical_lines(text):
        match = ENTRY.fullmatch(line)
        if match is not None:
            values[_unescape(match["name"])] = _unescape(match["value"])
    return values


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments. One that ends with a backslash continues on the next; a comment does not."""
    begun = ""
    for line in LINE_END.split(text):
        content = line.lstrip(BLANKS)
        if not begun and (not content or content.startswith(("#", "!"))):
            continue
        backslashes = len(content) - len(content.rstrip("\\"))
        if backslashes % 2:
            begun += content[:-1]
        else:
            yield begun + content
            begun = ""
    if begun:
        yield begun


def _unescape(text: str) -> str:
    """A character beyond the first 65,536 is written as two codes, those of UTF-16."""
    return ESCAPE.sub(_unescaped, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescaped(match: re.Match[str]) -> str:
    code, character = match.groups()
    return chr(int(code, 16)) if code else ESCAPED.get(character, character)
