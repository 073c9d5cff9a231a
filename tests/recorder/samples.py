"""Records and states of groups for tests of sentences and detectors."""

from __future__ import annotations

from typing import Any

from callboard.actors.recorder.now import GroupNow
from callboard.actors.recorder.record import MemberChanges, MemberCount, MemberName, RebalanceRecord, Why

NOON_MS = 1_700_000_000_000 // 86_400_000 * 86_400_000 + 43_200_000

BILLING = MemberName("billing-1-uuid", None, "billing-1", "/10.0.0.7")
PAYMENTS = MemberName("payments-2-uuid", None, "payments-2", "/10.0.0.8")


def record(cause: str = "new_member", by: MemberName | None = BILLING, at_s: int = 0, **fields: Any) -> RebalanceRecord:
    """A rebalance that ended so many seconds after noon."""
    given: dict[str, Any] = {
        "why": Why(cause, by, also=fields.pop("also", ())),
        "members": MemberChanges(joined=MemberCount(1, (by,) if by and cause == "new_member" else ())),
        "phases_ms": (("join", 300),),
        "outcome": "stable",
        "ended_ms": NOON_MS + at_s * 1000,
    } | fields
    return RebalanceRecord(
        group_id="orders",
        generation=7,
        is_epoch=False,
        began_ms=given["ended_ms"] - 300,
        duration_ms=300,
        protocol="range",
        leader="billing-1-uuid",
        **given,
    )


def now(at_s: int = 60, **fields: Any) -> GroupNow:
    given = {"state": "Stable", "generation": 7, "members": (BILLING, PAYMENTS), "member_count": 2}
    return GroupNow(NOON_MS + at_s * 1000, **{**given, **fields})
