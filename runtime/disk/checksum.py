"""A checksum inside a small JSON file: CRC-32C, in hexadecimal, over all its other fields.

The fields are written as JSON in one fixed way before they are summed, so white space and the order of the fields do
not count, and every name and value does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .crc import crc32c

FIELD = "checksum"


def checksum_of(fields: Mapping[str, Any]) -> str:
    """Eight hexadecimal digits for the fields of a JSON object; its field ``checksum`` does not count.

    >>> checksum_of({"b": [1], "a": "x"}) == checksum_of({"a": "x", "b": [1], "checksum": "other"})
    True
    """
    others = {name: value for name, value in fields.items() if name != FIELD}
    return f"{crc32c(json.dumps(others, sort_keys=True, separators=(',', ':')).encode()):08x}"


def refuse_wrong(fields: Mapping[str, Any], first_version: int) -> None:
    """ValueError for a wrong checksum, or for none in a file of ``first_version`` or newer. KeyError, TypeError."""
    if FIELD not in fields and fields["version"] < first_version:
        return
    found, expected = fields.get(FIELD), checksum_of(fields)
    if found != expected:
        raise ValueError(f"found {FIELD} {found!r}, expected {expected!r} of these values")


def with_checksum(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, and their checksum as the last one."""
    return {**fields, FIELD: checksum_of(fields)}
