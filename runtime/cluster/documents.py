"""Documents of the store as JSON. Pure.

Each has the number of its format. A newer version of Callboard may add fields to a format: those that this version does
not know are kept when it writes the next version of the document. What older versions must not ignore, or could not
read, is a new format, which they refuse.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .store import StoreRefused

FORMAT = 1
"""Of the register, the manifests and the topics."""
NO_FIELDS: Mapping[str, Any] = {}


class FormatUnknown(StoreRefused):
    """A newer version of Callboard has written something that this version cannot read."""

    def __init__(self, what: str, found: object, known: object) -> None:
        super().__init__(
            f"{what} in the store has format {found}, and this version of Callboard reads {known}: a newer version "
            "wrote it; install that version on this node"
        )


def encode_document(fields: Mapping[str, Any], unknown: Mapping[str, Any]) -> bytes:
    """``unknown``: fields of a newer version, see ``decode_document``."""
    return json.dumps({"format": FORMAT, **unknown, **fields}, separators=(",", ":")).encode()


def decode_document(what: str, data: bytes) -> dict[str, Any]:
    """The fields. Whoever reads them removes those that it knows. Raises FormatUnknown."""
    fields: dict[str, Any] = json.loads(data)
    found = fields.pop("format", FORMAT)
    if found != FORMAT:
        raise FormatUnknown(what, found, FORMAT)
    return fields
