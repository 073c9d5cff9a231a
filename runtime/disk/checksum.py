"""A checksum inside a small JSON file: the CRC-32C, in hexadecimal, of all its other fields.

It is computed over a canonical JSON text of the fields, so it covers every name and value, but neither white space nor
the order of the fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from .crc import crc32c

FIELD = "checksum"
CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def checksum_of(fields: Mapping[str, Any]) -> str:
    """Eight hexadecimal digits for the fields of a JSON object, without its field ``checksum``.

    >>> checksum_of({"b": [1], "a": "x"}) == checksum_of({"a": "x", "b": [1], "checksum": "other"})
    True
    """
    others = {name: value for name, value in fields.items() if name != FIELD}
    return checksum_of_parts([CANONICAL.encode(others)])


def checksum_of_parts(parts: Iterable[str]) -> str:
    """The same for the parts of the canonical text, see ``json_parts``."""
    checksum = 0
    for part in parts:
        checksum = crc32c(part.encode(), checksum)
    return f"{checksum:08x}"


def verify_checksum(fields: Mapping[str, Any], first_version: int) -> None:
    """Raises ValueError for a wrong checksum, or a missing one in a file of ``first_version`` or later.

    Raises KeyError or TypeError if the version is missing or not a number.
    """
    if FIELD not in fields and fields["version"] < first_version:
        return
    found, expected = fields.get(FIELD), checksum_of(fields)
    if found != expected:
        raise ValueError(f"found {FIELD} {found!r}, expected {expected!r} of these values")


def with_checksum(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, and their checksum as the last one."""
    return {**fields, FIELD: checksum_of(fields)}
