"""Checks the events of groups (``actors/group/events.py``), against each other and against the answers.

Members are added once and removed once. A member that has left with an answer without an error was removed.

In groups of the classic protocol a generation begins when the join phase ends, and is one higher than that before. Only
a group with members is CompletingRebalance or Stable, only one without is Empty. An answered generation has begun. In
groups of the consumer protocol the epoch never falls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from ....actors.base import ActorRef
from ....actors.consumer_group.group import ConsumerGroup
from ....actors.consumer_group.invariants import check as check_consumer_group
from ....actors.consumer_group.messages import ConsumerHeartbeat
from ....actors.errors import ErrorCode
from ....actors.group.actor import GroupActor
from ....actors.group.classic import ClassicGroup
from ....actors.group.events import GroupEvent, Kind
from ....actors.messages import Joined, JoinGroup, LeaveGroup
from .history import Exchange, Listener

PREPARING, COMPLETING, STABLE, EMPTY, DEAD = (
    *("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead"),
)
NEXT_STATES = {
    "": {PREPARING, DEAD},  # of a new group, or one that was loaded
    PREPARING: {COMPLETING, EMPTY, DEAD},
    COMPLETING: {PREPARING, STABLE, DEAD},
    STABLE: {PREPARING, DEAD},
    EMPTY: {PREPARING, DEAD},
}
BEGIN_A_GENERATION = frozenset({COMPLETING, EMPTY})


class EventGroup:
    """A group according to its events. ``generation`` None: not known yet. ``state`` "": not changed yet."""

    def __init__(self) -> None:
        self.state = ""
        self.generation: int | None = None
        self.members: set[str] = set()


class GroupEventChecker(Listener):
    """``fail`` is called with a text for each violation."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self.checked = 0
        self._fail = fail
        self._groups: defaultdict[str, EventGroup] = defaultdict(EventGroup)
        self._consumer_groups: set[str] = set()

    def coordinator_starts(self) -> None:
        self._groups.clear()

    def sent(self, exchange: Exchange) -> None:
        if isinstance(exchange.message, ConsumerHeartbeat):
            self._consumer_groups.add(exchange.message.group_id)

    def group_changed(self, group_id: str, event: GroupEvent) -> None:
        self.checked += 1
        is_state = event.kind is Kind.STATE_CHANGED
        group = self._groups[group_id]
        if not is_state and (event.member_id in group.members) is (event.kind is Kind.MEMBER_ADDED):
            self._fail(f"{group_id!r}: {event}, with members {sorted(group.members)}")
        if group_id in self._consumer_groups:
            self._check_epoch(group_id, group, event)
        else:
            self._check_classic(group_id, group, event)
        self._apply(group_id, event)

    def _check_epoch(self, group_id: str, group: EventGroup, event: GroupEvent) -> None:
        """A group without members that is used with the other protocol begins again."""
        is_new = event.kind is Kind.MEMBER_ADDED and not group.members
        if group.generation is not None and event.generation < group.generation and not is_new:
            self._fail(f"{group_id!r}: {event} after epoch {group.generation}")

    def _check_classic(self, group_id: str, group: EventGroup, event: GroupEvent) -> None:
        expected = group.generation
        if event.kind is Kind.STATE_CHANGED:
            if event.state not in NEXT_STATES[group.state]:
                self._fail(f"{group_id!r}: {event} after {group.state or 'the start'}")
            expected = None if expected is None else expected + (event.state in BEGIN_A_GENERATION)
            group.state = event.state
            if event.state not in (PREPARING, DEAD) and bool(group.members) is (event.state == EMPTY):
                self._fail(f"{group_id!r}: {event}, with members {sorted(group.members)}")
        if expected is not None and event.generation != expected:
            self._fail(f"{group_id!r}: {event}, expected generation {expected}")

    def _apply(self, group_id: str, event: GroupEvent) -> None:
        group = self._groups[group_id]
        group.generation = event.generation
        if event.kind is Kind.MEMBER_ADDED:
            group.members.add(event.member_id)
        elif event.kind is Kind.MEMBER_REMOVED:
            group.members.discard(event.member_id)
        elif event.state == DEAD:
            del self._groups[group_id]

    def answered(self, exchange: Exchange) -> None:
        """In groups of the consumer protocol the events follow the answer."""
        message, answer = exchange.message, exchange.answer
        if getattr(message, "group_id", None) in self._consumer_groups:
            return
        if isinstance(message, LeaveGroup):
            self._check_left(exchange, message, answer)
        elif isinstance(message, JoinGroup) and isinstance(answer, Joined) and answer.error is ErrorCode.NONE:
            generation = self._groups[message.group_id].generation
            if generation is not None and answer.generation_id > generation:
                self._fail(f"{exchange} was answered generation {answer.generation_id}, which has not begun")

    def _check_left(self, exchange: Exchange, message: LeaveGroup, answer: Any) -> None:
        members = self._groups[message.group_id].members
        for leaving, left in zip(message.members, answer.members, strict=False):
            if left.error is ErrorCode.NONE and leaving.member_id in members:
                self._fail(f"{exchange} was answered NONE, but no event has removed {leaving.member_id}")


def check_groups(groups: Iterable[ActorRef], fail: Callable[[str], None]) -> None:
    """Check the invariants of the groups in memory."""
    for ref in groups:
        actor = ref.actor_inbox.actor
        if isinstance(actor, GroupActor):
            _check_group(actor, fail)


def _check_group(actor: GroupActor, fail: Callable[[str], None]) -> None:
    group = actor.group
    try:
        if isinstance(group, ClassicGroup):
            group.check()
        elif isinstance(group, ConsumerGroup):
            check_consumer_group(group)
    except AssertionError as error:
        fail(f"{actor}: {error}")
    if isinstance(group, ClassicGroup) and actor.active.in_flight.is_all_appended:
        _check_appended(actor, group, fail)


def _check_appended(actor: GroupActor, group: ClassicGroup, fail: Callable[[str], None]) -> None:
    """Check a group without appends in flight: nobody waits for one, and its members, if it is Stable, are durable."""
    if group.sync_phase.awaited is not None:
        fail(f"{actor} waits for an assignment that is not being appended")
    value = actor.data.value
    if value is None or not group.state.is_stable:
        return
    unknown = {member.member_id for member in group.members} - {member.member_id for member in value.members}
    if unknown:
        fail(f"{actor} is Stable, and has members that are not in its record: {sorted(unknown)}")
