"""What another process is told of a group for an explanation. Pure."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import ErrorCode
from .now import GroupNow
from .record import RebalanceRecord


class GroupRecorded(NamedTuple):
    """``now``: None if there is no such group. ``records``: of the flight recorder, the newest first."""

    error: ErrorCode
    now: GroupNow | None
    records: tuple[RebalanceRecord, ...]
