"""The member's side of the consumer protocol (KIP-848) as a table: ``TRANSITIONS``. Pure.

A member sends heartbeats with its epoch, and an answer says what it is assigned. It first gives back what it is no
longer assigned, and names the rest in the next heartbeat. It begins work on a new partition when a heartbeat that names
it was answered: so the coordinator gives the partition to nobody else before this member has stopped.

Source: Kafka's ``ConsumerMembershipManager``. One difference: Kafka's client begins with a new partition before its
heartbeat names it, so a late heartbeat can free a partition that is in use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, NamedTuple

from ...actors.consumer_group.messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
)
from ...actors.consumer_group.records import Partition

Partitions = frozenset[Partition]
NOTHING: Partitions = frozenset()
NO_EPOCHS: Mapping[Partition, int] = MappingProxyType({})


class Phase(Enum):
    JOINING = auto()  # not in the group, owns nothing; the next heartbeat joins
    STABLE = auto()  # works on all that it is assigned
    RELEASING = auto()  # work on partitions that it must give back has to end
    TAKING = auto()  # new partitions are named by a heartbeat, and their offsets fetched
    ABANDONING = auto()  # all partitions are lost, and work on them is ending; joins after that
    LEAVING = auto()  # work on all partitions has to end; takes nothing new
    LEFT = auto()  # has left, or cannot continue


class Event(Enum):
    ANSWERED = auto()  # a heartbeat without an error; the argument is an ``Answer``
    UNANSWERED = auto()  # a heartbeat whose answer was lost
    FENCED = auto()  # the coordinator does not know the member, or its epoch
    LEASE_OVER = auto()
    RELEASED = auto()  # work on these partitions has ended
    TAKEN = auto()  # work on these partitions begins
    ABANDONED = auto()  # work on the lost partitions has ended
    LEAVE = auto()
    END = auto()


class Answer(NamedTuple):
    """``assigned``: None if it has not changed. ``named``: what the heartbeat said or meant that the member owns."""

    epoch: int
    assigned: Collection[Partition] | None
    named: Partitions


class ConsumerState(NamedTuple):
    """One member, as it sees itself.

    ``assigned``: with the epoch in which each partition came to this member, which is its fencing token.
    ``held``: what it works on, also what it has to give back and has not yet. ``named``: what the last answered
    heartbeat said that it owns; None if an answer was lost, and the next heartbeat says everything again.
    ``joins``: grows when all is lost. An answer to a heartbeat from before that is ignored.
    """

    phase: Phase = Phase.JOINING
    epoch: int = JOIN_EPOCH
    assigned: Mapping[Partition, int] = NO_EPOCHS
    held: Partitions = NOTHING
    named: Partitions | None = None
    joins: int = 0

    @property
    def is_in_group(self) -> bool:
        return self.epoch > JOIN_EPOCH

    def owned(self) -> Partitions:
        """What a heartbeat names: what others must not get."""
        return self.held.union(self.assigned)

    def to_release(self) -> Partitions:
        return self.held.difference(self.assigned)

    def to_take(self) -> Partitions:
        return NOTHING if self.phase is Phase.LEAVING else frozenset(self.assigned) - self.held

    def may_take(self) -> Partitions:
        """Those that an answered heartbeat has named, and whose assignment its answer did not end."""
        return self.to_take() & (self.named or NOTHING)

    def has_news(self) -> bool:
        """Whether the next heartbeat should be sent at once."""
        return self.phase in IN_GROUP and self.named != self.owned()


Transition = Callable[[ConsumerState, Any], ConsumerState]


def step(state: ConsumerState, event: Event, argument: Any = None) -> ConsumerState:
    """The state after an event. Raises KeyError for an event that cannot happen in this phase."""
    return TRANSITIONS[state.phase][event](state, argument)


# Transitions ----------------------------------------------------------------------------------------------------------


def _keep(state: ConsumerState, _argument: Any) -> ConsumerState:
    return state


def _accept(state: ConsumerState, answer: Answer) -> ConsumerState:
    """A partition that stays keeps the epoch in which it came."""
    before, assigned = state.assigned, state.assigned
    if answer.assigned is not None:
        assigned = {partition: before.get(partition, answer.epoch) for partition in answer.assigned}
    return _settle(state._replace(epoch=answer.epoch, assigned=assigned, named=answer.named))


def _accept_epoch(state: ConsumerState, answer: Answer) -> ConsumerState:
    """A member that leaves takes nothing new. Commits need the newest epoch."""
    return state._replace(epoch=answer.epoch, named=answer.named)


def _missed_answer(state: ConsumerState, _argument: Any) -> ConsumerState:
    return state._replace(named=None)


def _released(state: ConsumerState, partitions: Partitions) -> ConsumerState:
    return _settle(_drop(state, partitions))


def _drop(state: ConsumerState, partitions: Partitions) -> ConsumerState:
    return state._replace(held=state.held - partitions)


def _taken(state: ConsumerState, partitions: Partitions) -> ConsumerState:
    return _settle(state._replace(held=state.held | partitions))


def _settle(state: ConsumerState) -> ConsumerState:
    """The phase follows from what has to be done. Partitions are given back before others are taken."""
    if state.to_release():
        return state._replace(phase=Phase.RELEASING)
    return state._replace(phase=Phase.TAKING if state.to_take() else Phase.STABLE)


def _abandon(state: ConsumerState, _argument: Any) -> ConsumerState:
    return ConsumerState(Phase.ABANDONING, joins=state.joins + 1)


def _join(state: ConsumerState, _argument: Any) -> ConsumerState:
    return state._replace(phase=Phase.JOINING)


def _leave(state: ConsumerState, _argument: Any) -> ConsumerState:
    """What was not begun is given back at once."""
    assigned = {partition: epoch for partition, epoch in state.assigned.items() if partition in state.held}
    return state._replace(phase=Phase.LEAVING, assigned=assigned)


def _lose(state: ConsumerState, _argument: Any) -> ConsumerState:
    """All is lost while the member leaves. The coordinator is still told, in case it has not removed the member."""
    return ConsumerState(Phase.LEAVING, state.epoch, joins=state.joins)


def _end(state: ConsumerState, _argument: Any) -> ConsumerState:
    return ConsumerState(Phase.LEFT, joins=state.joins + 1)


_ENDS: Mapping[Event, Transition] = {Event.LEAVE: _leave, Event.END: _end}

_IN_GROUP: Mapping[Event, Transition] = {
    **_ENDS,
    Event.ANSWERED: _accept,
    Event.UNANSWERED: _missed_answer,
    Event.FENCED: _abandon,
    Event.LEASE_OVER: _abandon,
    Event.RELEASED: _released,  # in any phase: an answer may have changed it meanwhile
}
_OUTSIDE: Mapping[Event, Transition] = {**_ENDS, Event.FENCED: _keep, Event.LEASE_OVER: _keep, Event.UNANSWERED: _keep}

TRANSITIONS: Mapping[Phase, Mapping[Event, Transition]] = {
    Phase.JOINING: {**_OUTSIDE, Event.ANSWERED: _accept},
    Phase.STABLE: _IN_GROUP,
    Phase.RELEASING: _IN_GROUP,
    Phase.TAKING: {**_IN_GROUP, Event.TAKEN: _taken},
    Phase.ABANDONING: {**_OUTSIDE, Event.ABANDONED: _join},
    Phase.LEAVING: {
        Event.ANSWERED: _accept_epoch,
        Event.UNANSWERED: _missed_answer,
        Event.FENCED: _lose,
        Event.LEASE_OVER: _lose,
        Event.RELEASED: _drop,
        Event.LEAVE: _keep,
        Event.END: _end,
    },
    Phase.LEFT: {Event.LEAVE: _keep, Event.END: _keep, Event.FENCED: _keep, Event.LEASE_OVER: _keep},
}
"""What an event does in each phase. A pair that is missing is a mistake of the caller."""

IN_GROUP = frozenset({Phase.STABLE, Phase.RELEASING, Phase.TAKING})

# Heartbeats -----------------------------------------------------------------------------------------------------------


class About(NamedTuple):
    """What a member says of itself when it joins and after errors."""

    instance_id: str | None
    rebalance_timeout_ms: int
    topics: tuple[str, ...]
    server_assignor: str | None


def make_heartbeat(
    state: ConsumerState, group_id: str, member_id: str, about: About, told: About | None, is_full: bool
) -> ConsumerHeartbeat:
    """The next heartbeat. ``told``: what the coordinator knows of the member; None if nothing is certain.

    ``is_full``: say everything, although no answer is missing.
    """
    if state.named is None or is_full:
        told = None
    owned = state.owned()
    request = ConsumerHeartbeat(group_id, member_id, state.epoch, instance_id=about.instance_id)
    if told is None or owned != state.named:
        request = request._replace(owned=tuple(sorted(owned)))
    if told != about:
        request = request._replace(topics=about.topics, server_assignor=about.server_assignor)
    if told is None:
        request = request._replace(rebalance_timeout_ms=about.rebalance_timeout_ms)
    return request


def leave_epoch(instance_id: str | None) -> int:
    """A static member may return before its session ends."""
    return LEAVE_EPOCH if instance_id is None else LEAVE_STATIC_EPOCH


def answer_of(reply: ConsumerHeartbeatReply, named: Partitions) -> Answer:
    return Answer(reply.member_epoch, reply.assigned, named)
