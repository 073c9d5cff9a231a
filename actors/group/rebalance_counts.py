"""Counts and durations of the rebalances of all groups, from their events, for metrics. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..durations import Durations
from .events import GroupEvent, Kind, Reason

PHASE_BOUNDS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the histogram buckets of phases; longer ones are counted in one more bucket."""

PHASES = {
    "PreparingRebalance": "join",
    "CompletingRebalance": "sync",
    "Assigning": "assign",
    "Reconciling": "reconcile",
}
"""The phase of a rebalance by the state of the group: two of the classic protocol and two of the consumer protocol."""

FIRST_PHASES = frozenset({"join", "assign"})
GENERATION_PHASES = frozenset({"sync", "assign"})
"""They begin with a new generation, or with a new epoch."""

CAUSES = (
    Reason.MEMBER_JOINED,
    Reason.MEMBER_LEFT,
    Reason.ADMIN,
    Reason.RESET,
    Reason.SESSION_EXPIRED,
    Reason.STATIC_MEMBER_REPLACED,
    Reason.LEFT_FOR_A_WHILE,
    Reason.DID_NOT_REJOIN,
    Reason.DID_NOT_REVOKE,
    Reason.SUBSCRIPTION_CHANGED,
    Reason.LEADER_REJOINED,
    Reason.SYNC_TIMEOUT,
    Reason.ASSIGNMENT_NOT_STORED,
    Reason.TOPICS_CHANGED,
    Reason.DOWNGRADED,
    Reason.TOO_MANY_MEMBERS,
)
"""The causes that are counted from the start with 0, so that a rate sees the first one."""


class OpenPhase(NamedTuple):
    """The phase of a rebalance that has not ended. ``since_ms``: the monotonic time when it began."""

    cause: Reason
    phase: str
    since_ms: int


class RebalanceCounts:
    """Observes the events of all groups. ``joins``: members that were added. ``completed``: generations of the classic
    protocol whose assignment was stored.

    ``started``: generations with members, and epochs, by whether they are epochs and by cause. That of a rebalance that
    began again counts with the cause of its last beginning. ``phases``: how long the phases that have ended took.
    """

    def __init__(self) -> None:
        self.joins = self.completed = 0
        self.started: Counter[tuple[bool, Reason]] = Counter()
        self.phases = {phase: Durations(PHASE_BOUNDS_S) for phase in PHASES.values()}
        self._open: dict[str, OpenPhase] = {}  # by group id

    def by_cause(self) -> dict[str, int]:
        """The numbers by the name of the cause, also those of ``CAUSES`` that are 0."""
        counts = dict.fromkeys((cause.name.lower() for cause in CAUSES), 0)
        for (_, cause), count in self.started.items():
            name = cause.name.lower()
            counts[name] = counts.get(name, 0) + count
        return counts

    def observe(self, group_id: str, events: Sequence[GroupEvent]) -> None:
        for event in events:
            if event.kind is Kind.STATE_CHANGED:
                self._change_state(group_id, event)
            elif event.kind is Kind.MEMBER_ADDED:
                self.joins += event.reason is Reason.MEMBER_JOINED

    def _change_state(self, group_id: str, event: GroupEvent) -> None:
        earlier = self._open.pop(group_id, None)
        if earlier is not None:
            self.phases[earlier.phase].add((event.monotonic_ms - earlier.since_ms) / 1000)
            self.completed += earlier.phase == "sync" and event.reason is Reason.ASSIGNMENT_STORED
        phase = PHASES.get(event.state)
        if phase is None or (earlier is None and phase not in FIRST_PHASES):
            return
        cause = event.reason if earlier is None or phase in FIRST_PHASES else earlier.cause
        self._open[group_id] = OpenPhase(cause, phase, event.monotonic_ms)
        if phase in GENERATION_PHASES:
            self.started[event.is_epoch, cause] += 1
