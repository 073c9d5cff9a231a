"""Documents of the store as JSON. Pure.

Each has the number of its format. A newer version of Callboard may add fields to a format: those that this version does
not know are kept when it writes the next version of the document. What older versions must not ignore, or could not
read, is a new format, which they refuse.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...actors.steps import Steps, run_steps
from ..common.json_steps import read_json
from ..disk.json_parts import json_parts
from .store import StoreRefused

FORMAT = 1
"""Of the register, the manifests and the topics."""
NO_FIELDS: Mapping[str, Any] = {}
COMPACT = json.JSONEncoder(separators=(",", ":"))
CHARS_PER_STEP = 8192


class Unreadable(StoreRefused):
    """Something in the store cannot be read, however often it is tried."""


class FormatUnknown(Unreadable):
    """A newer version of Callboard has written something that this version cannot read."""

    def __init__(self, what: str, found: object, known: object) -> None:
        super().__init__(
            f"{what} in the store has format {found}, and this version of Callboard reads {known}: a newer version "
            "wrote it; install that version on this node"
        )


class DocumentDamaged(Unreadable):
    """A document is not one of Callboard."""

    def __init__(self, key: str, error: Exception) -> None:
        super().__init__(
            f"{key} in the store cannot be read ({error!r}), expected a document of Callboard: it was damaged, or "
            "another program or another cluster writes to the same place; restore the store from a backup, or remove "
            "what does not belong there"
        )


@contextmanager
def reading(key: str) -> Iterator[None]:
    """While the value of this key is decoded: errors become DocumentDamaged."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DocumentDamaged(key, error) from error


def encode_document(fields: Mapping[str, Any], unknown: Mapping[str, Any]) -> bytes:
    """``unknown``: fields of a newer version, see ``decode_document``."""
    return run_steps(encode_in_steps(fields, unknown))


def encode_in_steps(fields: Mapping[str, Any], unknown: Mapping[str, Any]) -> Steps[bytes]:
    """The same for a large document."""
    parts: list[str] = []
    chars = 0
    for part in json_parts({"format": FORMAT, **unknown, **fields}, COMPACT):
        parts.append(part)
        chars += len(part)
        if chars > CHARS_PER_STEP:
            chars = 0
            yield
    return "".join(parts).encode()


def decode_document(what: str, data: bytes) -> dict[str, Any]:
    """The fields. Whoever reads them removes those that it knows. Raises FormatUnknown."""
    return run_steps(decode_in_steps(what, data))


def decode_in_steps(what: str, data: bytes) -> Steps[dict[str, Any]]:
    """The same for a large document."""
    fields: dict[str, Any] = yield from read_json(data.decode())
    found = fields.pop("format", FORMAT)
    if found != FORMAT:
        raise FormatUnknown(what, found, FORMAT)
    return fields
