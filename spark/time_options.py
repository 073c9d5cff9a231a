"""Times given on the command line: absolute, or relative to now."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from ..runtime.common.errors import StartError

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

_AGE = re.compile(r"([0-9]{1,9})([smhd])")


def parse_time(option: str, text: str, now: datetime) -> datetime:
    """Parse ``2026-01-31T08:00:00+01:00`` (UTC if it has no zone), or an age such as ``90m``.

    Returns a time in UTC. Raises StartError, also for a time that is in no year from 1 to 9999 in UTC.
    """
    age = _AGE.fullmatch(text.strip())
    try:
        if age is not None:
            return now - timedelta(seconds=int(age[1]) * UNITS_S[age[2]])
        time = datetime.fromisoformat(text.strip())
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise StartError(
            f"bad {option} '{text}': expected ISO 8601, as in 2026-01-31T08:00:00Z, or an age, as in 90m, 12h, 7d"
        ) from None
