"""Explanation: the answer to why a group is as it is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from .detectors import Finding, find
from .now import GroupNow
from .record import RebalanceRecord, as_json, plain_json
from .sentence import sentence


class Explanation(NamedTuple):
    """``now``: None if the group does not exist. ``rebalances``: the newest first."""

    sentence: str
    now: GroupNow | None
    rebalances: tuple[RebalanceRecord, ...]
    findings: tuple[Finding, ...]


class Explained(Protocol):
    """An ``Explanation``, or what contains its fields."""

    @property
    def sentence(self) -> str: ...

    @property
    def now(self) -> GroupNow | None: ...

    @property
    def rebalances(self) -> tuple[RebalanceRecord, ...]: ...

    @property
    def findings(self) -> tuple[Finding, ...]: ...


def explain(records: Sequence[RebalanceRecord], now: GroupNow | None, limit: int) -> Explanation:
    """``limit``: how many records it has; the findings are from all."""
    findings = () if now is None else find(records, now)
    return Explanation(sentence(records, now), now, tuple(records[:limit]), findings)


def explanation_json(explained: Explained) -> dict[str, Any]:
    return {
        "sentence": explained.sentence,
        "now": plain_json(explained.now),
        "findings": plain_json(explained.findings),
        "rebalances": [as_json(record) for record in explained.rebalances],
    }
