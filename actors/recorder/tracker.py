"""RebalanceTracker: makes one record of each rebalance of a group, from its events and notes. Pure.

It runs in the turn of the group, so it only collects. ``assignments.py`` does what takes long.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..group.events import DEAD_NAME, GroupEvent, Identity, Kind, Reason
from ..group.rebalance_notes import (
    REFUSALS_KEPT,
    AllSynced,
    Assigned,
    CommitRefused,
    Fenced,
    JoinRefused,
    KeptAbsent,
    LeaderSynced,
    Note,
    Refusal,
    Rejoined,
)
from .causes import cause_of
from .record import (
    CAUSES_MAX,
    LATE_MAX,
    NAME_CHARACTERS_MAX,
    NAMES_MAX,
    AbsentMember,
    FurtherCause,
    LateMember,
    MemberChanges,
    MemberCount,
    RebalanceRecord,
    Why,
    name_of,
)

FIRST_PHASES = {"PreparingRebalance": "join", "Assigning": "assign"}
PHASES = {**FIRST_PHASES, "CompletingRebalance": "leader_assigns", "Reconciling": "reconcile"}
"""The phase of a rebalance that begins with a state."""

OUTCOMES = {"Stable": "stable", "Empty": "empty", DEAD_NAME: "interrupted"}

OUTSIDE = frozenset({"Empty", DEAD_NAME})
"""The states without a generation. A rebalance that begins there has an initial delay."""

NEVER_CAME = frozenset({Reason.DID_NOT_REJOIN, Reason.SYNC_TIMEOUT, Reason.DID_NOT_REVOKE})
REJOINS = frozenset({Reason.LEADER_REJOINED, Reason.SUBSCRIPTION_CHANGED})
UNCOUNTED = frozenset({Reason.STATIC_MEMBER_REPLACED, Reason.REPLACEMENT_NOT_STORED})
"""Members that are added or removed for these reasons neither join nor leave."""

FIRST_CHANGES = 2 * NAMES_MAX + CAUSES_MAX


class Draft(NamedTuple):
    """A record without ``moves``, and the assignments that they are made from."""

    record: RebalanceRecord
    before: Assigned | None
    after: Assigned | None


class Changes:
    """The members that came and went since the last rebalance. ``first``: the first of these events."""

    __slots__ = ("counts", "first")

    def __init__(self) -> None:
        self.counts: defaultdict[tuple[Kind, Reason], int] = defaultdict(int)
        self.first: list[GroupEvent] = []

    def members(self, kind: Kind) -> MemberCount:
        """Those that were added, or removed."""
        counted = [count for (counted, reason), count in self.counts.items() if counted is kind and _counts(reason)]
        named = [event for event in self.first if event.kind is kind and _counts(event.reason)]
        return MemberCount(sum(counted), tuple(map(name_of, named[:NAMES_MAX])))

    def causes(self, cause: GroupEvent) -> tuple[FurtherCause, ...]:
        """All but the cause of the rebalance itself, which is among them if a member came or went."""
        others = [event for event in self.first if (event.member_id, event.reason) != (cause.member_id, cause.reason)]
        return tuple(
            FurtherCause(event.wall_ms, cause_of(event.reason, event.client_reason), name_of(event))
            for event in others[:CAUSES_MAX]
        )


def _counts(reason: Reason) -> bool:
    return reason not in UNCOUNTED


class OpenRebalance:
    """A rebalance that has not ended. ``cause``: the event that began it; ``phase`` began at ``phase_ms``.

    ``last``: the members that came last, each with its time. ``absent``: those that did not come in time.
    """

    __slots__ = ("absent", "absent_count", "cause", "last", "phase", "phase_ms", "phases", "restarts")

    def __init__(self, cause: GroupEvent, phase: str) -> None:
        self.cause = cause
        self.phase = phase
        self.phase_ms = cause.monotonic_ms
        self.phases: dict[str, int] = {}
        self.restarts = 0
        self.last: deque[tuple[Identity, int]] = deque(maxlen=LATE_MAX)
        self.absent: list[tuple[Identity, str]] = []
        self.absent_count = 0
        if cause.reason in REJOINS:
            self.last.append((cause, cause.monotonic_ms))

    def enter(self, phase: str, at_ms: int) -> None:
        """The current phase ends. If the rebalance has begun again, its time is added to that of the phase before."""
        self.phases[self.phase] = self.phases.get(self.phase, 0) + at_ms - self.phase_ms
        self.phase, self.phase_ms = phase, at_ms

    def change_members(self, event: GroupEvent) -> None:
        if event.kind is Kind.MEMBER_ADDED:
            self.last.append((event, event.monotonic_ms))
        elif event.reason in NEVER_CAME:
            self.add_absent(event, "removed")

    def add_absent(self, member: Identity, decision: str) -> None:
        self.absent_count += 1
        if len(self.absent) < NAMES_MAX:
            self.absent.append((member, decision))


class RebalanceTracker:
    """The rebalance of one group that is in progress. ``refusals``: the last ones of each class.

    ``phase_ms``: the monotonic time of the last change of its state.
    """

    __slots__ = (
        *("_before", "_changes", "_group_id", "_held", "_is_synced", "_now", "_state"),
        *("open", "phase_ms", "refusals"),
    )

    def __init__(self, group_id: str) -> None:
        self.open: OpenRebalance | None = None
        self.phase_ms: int | None = None
        self.refusals: dict[type[Refusal], tuple[Any, ...]] = {}
        self._group_id = group_id
        self._state = "Empty"
        self._changes: Changes | None = None
        self._before: Assigned | None = None
        self._now: Assigned | None = None
        self._is_synced = False
        self._held: tuple[Draft, int] | None = None
        """The record of a stable generation some of whose members have not sent SyncGroup, and its monotonic time."""

    def note(self, note: Note) -> Draft | None:
        """The record if this note ends one: all members of a stable generation have their assignments."""
        return _NOTED[type(note)](self, note)

    def add(self, event: GroupEvent) -> Draft | None:
        """The record if this event ends one."""
        if event.kind is Kind.STATE_CHANGED:
            return self._change_state(event)
        if event.reason is Reason.LOADED:
            return None
        changes = self._changes or self._begin_changes()
        changes.counts[event.kind, event.reason] += 1
        if len(changes.first) < FIRST_CHANGES:
            changes.first.append(event)
        if self.open is not None:
            self.open.change_members(event)
        return None

    def _begin_changes(self) -> Changes:
        self._changes = Changes()
        return self._changes

    def _change_state(self, event: GroupEvent) -> Draft | None:
        held, self._held = self._held, None
        ended = self._enter(event)
        self._state, self.phase_ms = event.state, event.monotonic_ms
        return ended or (None if held is None else held[0])

    def _enter(self, event: GroupEvent) -> Draft | None:
        if event.state in FIRST_PHASES:
            self._begin(event)
            return None
        rebalance = self.open
        if rebalance is None:
            return None
        rebalance.enter(PHASES.get(event.state, ""), event.monotonic_ms)
        if event.state not in OUTCOMES:
            self._is_synced = False
            return None
        draft = self._end(rebalance, event)
        if event.state == "Stable" and not event.is_epoch and not self._is_synced:
            self._held = draft, event.monotonic_ms
            return None
        return draft

    def _begin(self, event: GroupEvent) -> None:
        phase = FIRST_PHASES[event.state]
        if self.open is None:
            is_initial = self._state in OUTSIDE and phase == "join"
            self.open = OpenRebalance(event, "initial_delay" if is_initial else phase)
        else:
            self.open.restarts += 1
            self.open.enter(phase, event.monotonic_ms)

    def _end(self, rebalance: OpenRebalance, event: GroupEvent) -> Draft:
        if event.is_epoch and event.state == "Stable" and event.member_id:
            rebalance.last.append((event, event.monotonic_ms))
        now = self._now if event.state == "Stable" else None
        record = _record_of(self._group_id, rebalance, event, self._changes or Changes(), now)
        draft = Draft(record, self._before, now)
        self._before, self._now = now, None
        self.open = self._changes = None
        return draft

    # Notes -----------------------------------------------------------------------------------------------------------

    def _rejoined(self, note: Rejoined) -> None:
        if self.open is not None:
            self.open.last.append((note.member, note.monotonic_ms))

    def _kept_absent(self, note: KeptAbsent) -> None:
        if self.open is not None:
            self.open.add_absent(note.member, "kept")

    def _leader_synced(self, note: LeaderSynced) -> None:
        if self.open is not None:
            self.open.enter("log", note.monotonic_ms)

    def _all_synced(self, note: AllSynced) -> Draft | None:
        self._is_synced = True
        if self._held is None:
            return None
        (draft, stable_ms), self._held = self._held, None
        phases = (*draft.record.phases_ms, ("followers", note.monotonic_ms - stable_ms))
        return draft._replace(record=draft.record._replace(phases_ms=phases))

    def _assigned(self, note: Assigned) -> None:
        if note.is_loaded:
            self._before, self._state = note, "Stable"
        else:
            self._now = note

    def _refused(self, note: Refusal) -> None:
        self.refusals[type(note)] = (*self.refusals.get(type(note), ()), note)[-REFUSALS_KEPT:]


_NOTED: Mapping[type, Callable[[RebalanceTracker, Any], Draft | None]] = {
    Rejoined: RebalanceTracker._rejoined,
    KeptAbsent: RebalanceTracker._kept_absent,
    LeaderSynced: RebalanceTracker._leader_synced,
    AllSynced: RebalanceTracker._all_synced,
    Assigned: RebalanceTracker._assigned,
    Fenced: RebalanceTracker._refused,
    JoinRefused: RebalanceTracker._refused,
    CommitRefused: RebalanceTracker._refused,
}


def _record_of(
    group_id: str, rebalance: OpenRebalance, ended: GroupEvent, changes: Changes, now: Assigned | None
) -> RebalanceRecord:
    cause = rebalance.cause
    joined, members = changes.members(Kind.MEMBER_ADDED), None if now is None else now.member_count
    late = (LateMember(name_of(member), at_ms - cause.monotonic_ms) for member, at_ms in reversed(rebalance.last))
    return RebalanceRecord(
        group_id=group_id,
        generation=ended.generation,
        is_epoch=ended.is_epoch,
        began_ms=cause.wall_ms,
        ended_ms=ended.wall_ms,
        duration_ms=ended.monotonic_ms - cause.monotonic_ms,
        outcome=OUTCOMES[ended.state],
        why=Why(
            cause_of(cause.reason, cause.client_reason),
            name_of(cause) if cause.member_id else None,
            cause.client_reason,
            changes.causes(cause),
            rebalance.restarts,
        ),
        members=MemberChanges(
            joined,
            changes.members(Kind.MEMBER_REMOVED),
            None if members is None else max(members - joined.members, 0),
            tuple(late),
            tuple(AbsentMember(name_of(member), decision) for member, decision in rebalance.absent),
            rebalance.absent_count,
        ),
        phases_ms=tuple(rebalance.phases.items()),
        protocol="" if now is None else now.protocol[:NAME_CHARACTERS_MAX],
        leader="" if now is None else now.leader[:NAME_CHARACTERS_MAX],
    )
