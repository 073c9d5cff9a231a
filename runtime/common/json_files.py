"""Reading JSON that somebody else may have changed."""

from __future__ import annotations

import json
from typing import Any


def parse_json(data: bytes | str) -> Any:
    """The value of a JSON text. ValueError for all that cannot be read, also for arrays nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("arrays or objects are nested too deeply") from None
