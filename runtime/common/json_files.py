"""Parsing JSON files that users may have edited."""

from __future__ import annotations

import json
from typing import Any


def parse_json(data: bytes | str) -> Any:
    """The value of a JSON text. Raises ValueError for any invalid text, and for arrays that are nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("arrays or objects are nested too deeply") from None
