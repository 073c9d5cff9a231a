"""Explanation: the answer to why a group is as it is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .detectors import Finding, find
from .now import GroupNow
from .record import RebalanceRecord
from .sentence import sentence


class Explanation(NamedTuple):
    """``now``: None if the group does not exist. ``records``: the newest first."""

    sentence: str
    now: GroupNow | None
    records: tuple[RebalanceRecord, ...]
    findings: tuple[Finding, ...]


def explain(records: Sequence[RebalanceRecord], now: GroupNow | None, limit: int) -> Explanation:
    """``limit``: how many records it has; the findings are from all."""
    findings = () if now is None else find(records, now)
    return Explanation(sentence(records, now), now, tuple(records[:limit]), findings)
