"""Moments on the command line: an instant, or how long ago."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from ..runtime.common.errors import StartError

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

_AGO = re.compile(r"([0-9]{1,9})([smhd])")


def parse_moment(option: str, text: str, now: datetime) -> datetime:
    """``2026-01-31T08:00:00+01:00`` (UTC without a zone), or ``90m``: so long before ``now``. StartError."""
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago is not None:
            return now - timedelta(seconds=int(ago[1]) * UNITS_S[ago[2]])
        moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise StartError(
            f"bad {option} '{text}': expected ISO 8601, as in 2026-01-31T08:00:00Z, or how long ago, as in 90m, 12h, 7d"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
