"""The events of a decision: members that come and go, and the states that the group passes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..engine_ports import Clock
from ..group.events import Cause, GroupEvent, Kind, Reason, event_of
from ..group.leave_causes import leave_cause
from ..group.reset_messages import ResetOffsets
from ..messages import JoinGroup, LeaveGroup
from ..steps import Steps, pieces
from .messages import LEAVE_STATIC_EPOCH, ConsumerHeartbeat
from .plan import Plan
from .records import MemberRecord
from .state import GroupPhase, GroupState, Member
from .timers import CLASSIC_JOIN, CLASSIC_SYNC, SESSION, DeadlinePassed, RebalanceExpired


class Identified(NamedTuple):
    """The names of a member in an event."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


class Before(NamedTuple):
    """What the events need of the state before the decision."""

    phase: GroupPhase
    epoch: int
    removed: tuple[Member, ...]
    added: tuple[Member, ...]


def before(state: GroupState, plan: Plan) -> Steps[Before]:
    removed = tuple(state.members[member_id] for member_id in plan.removed if member_id in state.members)
    gone, added = set(plan.removed), dict[str, Member]()
    for piece in pieces(plan.records):
        for record in piece:
            if isinstance(record, MemberRecord) and record.value is not None:
                added[record.member_id] = Member(record.member_id, record.value)
        yield
    new = tuple(member for member_id, member in added.items() if member_id in gone or member_id not in state.members)
    return Before(state.phase, state.epoch.epoch, removed, new)


def event_at(clock: Clock, state: GroupState, kind: Kind, cause: Cause, state_name: str) -> GroupEvent:
    wall_ms, monotonic_ms = clock.wall_ms(), clock.monotonic_ms()
    event = event_of(kind, cause, str(state_name), state.epoch.epoch, wall_ms=wall_ms, monotonic_ms=monotonic_ms)
    return event._replace(is_epoch=True)


def events_of(message: Any, earlier: Before, state: GroupState, clock: Clock) -> Iterator[GroupEvent]:
    """``state``: after the decision about ``message``."""
    phase = state.phase
    reason = Reason.STATIC_MEMBER_REPLACED if earlier.removed else Reason.MEMBER_JOINED
    added = [Cause(reason, identify(member)) for member in earlier.added]
    first_removed = None
    for removed in _causes_of_removal(message, map(identify, earlier.removed), bool(added)):
        first_removed = first_removed or removed
        yield event_at(clock, state, Kind.MEMBER_REMOVED, removed, phase)
    for cause in added:
        yield event_at(clock, state, Kind.MEMBER_ADDED, cause, phase)
    cause = next(iter(added), first_removed) or _cause_of_change(message, state)
    last = earlier.phase
    if state.epoch.epoch != earlier.epoch and state.members:
        last = GroupPhase.ASSIGNING
        yield event_at(clock, state, Kind.STATE_CHANGED, cause, last)
    if phase is not last:
        yield event_at(
            clock, state, Kind.STATE_CHANGED, cause._replace(reason=_REASONS.get(phase, cause.reason)), phase
        )


_REASONS = {
    GroupPhase.EMPTY: Reason.NO_MEMBERS,
    GroupPhase.RECONCILING: Reason.TARGET_CHANGED,
    GroupPhase.STABLE: Reason.ALL_HAVE_TARGET,
}


def identify(member: Member) -> Identified:
    about = member.about
    return Identified(member.member_id, about.instance_id, about.client_id, about.client_host)


def _causes_of_removal(message: Any, removed: Iterable[Identified], is_replaced: bool) -> Iterator[Cause]:
    if isinstance(message, LeaveGroup):
        return _causes_of_leaving(message, removed)
    if isinstance(message, ResetOffsets):
        return (Cause(Reason.RESET, identity, message.reason) for identity in removed)
    reason = Reason.STATIC_MEMBER_REPLACED if is_replaced else _reason_of_removal(message)
    return (Cause(reason, identity) for identity in removed)


def _reason_of_removal(message: Any) -> Reason:
    if isinstance(message, RebalanceExpired):
        return Reason.DID_NOT_REVOKE
    return _PASSED[message.kind] if isinstance(message, DeadlinePassed) else Reason.MEMBER_LEFT


_PASSED = {
    SESSION: Reason.SESSION_EXPIRED,
    CLASSIC_JOIN: Reason.DID_NOT_REJOIN,
    CLASSIC_SYNC: Reason.SYNC_TIMEOUT,
}


def _causes_of_leaving(request: LeaveGroup, removed: Iterable[Identified]) -> Iterator[Cause]:
    """An instance id may come with the member id or without. Of several identities of a member the first counts."""
    by_id = {leaving.member_id: leaving for leaving in reversed(request.members)}
    by_instance = {leaving.group_instance_id: leaving for leaving in reversed(request.members)}
    for identity in removed:
        leaving = by_id.get(identity.member_id) or by_instance[identity.group_instance_id]
        yield leave_cause(leaving, request, identity)


def _cause_of_change(message: Any, state: GroupState) -> Cause:
    """No member comes or goes: the sender subscribes to other topics, or has given partitions back."""
    if not isinstance(message, ConsumerHeartbeat | JoinGroup) or message.member_id not in state.members:
        return Cause(Reason.TOPICS_CHANGED)
    identity = identify(state.members[message.member_id])
    if isinstance(message, JoinGroup):
        return Cause(Reason.SUBSCRIPTION_CHANGED, identity, message.reason)
    if message.member_epoch == LEAVE_STATIC_EPOCH:
        return Cause(Reason.LEFT_FOR_A_WHILE, identity)
    is_new_subscription = message.topics is not None or message.regex is not None
    return Cause(Reason.SUBSCRIPTION_CHANGED if is_new_subscription else Reason.TOPICS_CHANGED, identity)
