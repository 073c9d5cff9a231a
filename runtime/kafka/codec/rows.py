"""Entries of an answer that are rows of texts and bytes: the members of a group, of whom there may be thousands.

kio makes an object of each entry and looks at each field of it, 10 us a member. A row needs neither, and takes one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from ...log.format.varint import encode_unsigned

Row = Sequence[str | bytes | None]

_TEXT_LENGTH = struct.Struct(">h")
_BYTES_LENGTH = struct.Struct(">i")
_NULL_TEXT = _TEXT_LENGTH.pack(-1)
_NULL_COMPACT = b"\0"
_NO_TAGS = b"\0"
_COMPACT_LENGTHS = tuple(encode_unsigned(size + 1) for size in range(1024))


def encode_rows(rows: Iterable[Row], *, flexible: bool) -> list[bytes]:
    """Each row as Kafka writes a struct that has just these fields; None is a null text.

    struct.error where a text is too long for a version that is not flexible.
    """
    encode = _flexible_row if flexible else _old_row
    return [encode(row) for row in rows]


def without_column(rows: Iterable[Row], column: int) -> Iterable[Row]:
    """For versions that lack a field."""
    return ((*row[:column], *row[column + 1 :]) for row in rows)


def _flexible_row(row: Row) -> bytes:
    parts = []
    for value in row:
        if value is None:
            parts.append(_NULL_COMPACT)
            continue
        if isinstance(value, str):
            value = value.encode()
        size = len(value)
        parts.append(_COMPACT_LENGTHS[size] if size < len(_COMPACT_LENGTHS) else encode_unsigned(size + 1))
        parts.append(value)
    parts.append(_NO_TAGS)
    return b"".join(parts)


def _old_row(row: Row) -> bytes:
    parts = []
    for value in row:
        if value is None:
            parts.append(_NULL_TEXT)
        elif isinstance(value, str):
            text = value.encode()
            parts += (_TEXT_LENGTH.pack(len(text)), text)
        else:
            parts += (_BYTES_LENGTH.pack(len(value)), value)
    return b"".join(parts)
