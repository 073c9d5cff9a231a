"""Encoding of response entries that consist of strings and bytes: the members of a group, possibly thousands.

kio makes an object of each entry and inspects each field, which takes 10 us per member. Encoding a row takes 1 us.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from ...log.format.varint import encode_unsigned

Row = Sequence[str | bytes | None]

_STRING_LENGTH = struct.Struct(">h")
_BYTES_LENGTH = struct.Struct(">i")
_NULL_STRING = _STRING_LENGTH.pack(-1)
_NULL_COMPACT = b"\0"
NO_TAGS = b"\0"
_COMPACT_LENGTHS = tuple(encode_unsigned(size + 1) for size in range(1024))


def encode_rows(rows: Iterable[Row], *, flexible: bool) -> list[bytes]:
    """Encode each row as a struct with these fields; None is a null string.

    Raises struct.error if a string is too long for a version that is not flexible.
    """
    encode = _flexible_row if flexible else _inflexible_row
    return [encode(row) for row in rows]


def compact_count(size: int) -> bytes:
    """Encode the length of a string, or the number of items of an array, of a flexible version."""
    return _COMPACT_LENGTHS[size] if size < len(_COMPACT_LENGTHS) else encode_unsigned(size + 1)


def compact_string(text: str | None) -> bytes:
    """Encode a string of a flexible version."""
    if text is None:
        return _NULL_COMPACT
    value = text.encode()
    return compact_count(len(value)) + value


def without_column(rows: Iterable[Row], column: int) -> Iterable[Row]:
    """Return the rows without a column, for versions that do not have the field."""
    return ((*row[:column], *row[column + 1 :]) for row in rows)


def _flexible_row(row: Row) -> bytes:
    parts = []
    for value in row:
        if value is None:
            parts.append(_NULL_COMPACT)
            continue
        if isinstance(value, str):
            value = value.encode()
        size = len(value)  # compact_count without the call: this is the slowest part of large responses
        parts.append(_COMPACT_LENGTHS[size] if size < len(_COMPACT_LENGTHS) else encode_unsigned(size + 1))
        parts.append(value)
    parts.append(NO_TAGS)
    return b"".join(parts)


def _inflexible_row(row: Row) -> bytes:
    parts = []
    for value in row:
        if value is None:
            parts.append(_NULL_STRING)
        elif isinstance(value, str):
            text = value.encode()
            parts += (_STRING_LENGTH.pack(len(text)), text)
        else:
            parts += (_BYTES_LENGTH.pack(len(value)), value)
    return b"".join(parts)
