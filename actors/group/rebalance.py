"""The steps of a classic group from one generation to the next. Pure; every wait has a named deadline.

Names of deadlines: ``("session", member id)``, ``("pending", member id)``, ``("join",)`` and ``("sync",)``. The join
deadline is the initial delay for an empty group, otherwise the maximum rebalance timeout. By the sync deadline every
member must have sent SyncGroup.
Source of the rules: Kafka's GroupMetadataManager (4.x), ClassicGroup.
"""

from __future__ import annotations

from ..engine_ports import Clock
from ..errors import ErrorCode, IllegalTransition
from ..messages import Described, Joined, JoinGroup, Synced
from ..ports import GroupSettings
from ..records import GroupRecord, GroupValue
from .effects import Deadline, Effects
from .events import Cause, Kind, Reason, event_of
from .kind import CLASSIC, GroupType, OffsetExpiry
from .members import GroupMember, Members
from .states import ALLOWED_PREVIOUS_STATES, ANSWERS, Action, Request, State
from .subscription import CONSUMER, subscribed_topics

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""A member that joins for the first time is removed after this time, parked or not (Kafka's constant, KAFKA-7610)."""

NO_REJOIN_WAIT_MS = 1000
"""Minimum time between checks while no static member rejoins. Kafka checks after each rebalance timeout; here a timeout
of 0 would keep the event loop busy."""

GENERATION_EPOCH_S = 1_577_836_800
"""The first second of 2020. Generations have 31 bits, so they can begin at the clock's seconds until 2088."""


class Rebalance:
    """State, members and generation of a group, and the steps between generations."""

    def __init__(self, group_id: str, settings: GroupSettings, clock: Clock) -> None:
        self.group_id = group_id
        self.settings = settings
        self.clock = clock
        self.state = State.EMPTY
        self.previous_state = State.DEAD
        self.answers = ANSWERS[State.EMPTY]  # the row of the state in the table
        self.state_timestamp_ms = clock.wall_ms()
        self.generation = self._generation_of_clock() if settings.group_generation_from_clock else 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members = Members()
        self._subscriptions: tuple[bytes, ...] | None = None  # of the last generation, until they are parsed
        self._topics: frozenset[str] | None = None  # the parsed subscriptions
        self.pending_sync: set[str] = set()
        self.assigned_generation = -1  # the last one whose assignment was appended
        self.join_deadline = Deadline(("join",))
        self.sync_deadline = Deadline(("sync",))
        self._new_member_added = False
        self._initial_delay_ms = 0
        self._initial_remaining_ms = 0
        self._retry_ms: int | None = None  # until Kafka's next check, if no member joined

    def _generation_of_clock(self) -> int:
        """Higher than the generations of a deleted group of this name, if those were at most one per second."""
        return max(self.state_timestamp_ms // 1000 - GENERATION_EPOCH_S, 0)

    @property
    def type(self) -> GroupType:
        return CLASSIC

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    # Deadlines -------------------------------------------------------------------------------------------------------

    def _set(self, deadline: Deadline, in_ms: int, effects: Effects) -> None:
        deadline.set(self.clock.monotonic_ms() + in_ms, effects)

    def _renew_session(self, member: GroupMember, effects: Effects) -> None:
        member.session.set(self.clock.monotonic_ms() + member.session_timeout_ms, effects)

    # From state to state ---------------------------------------------------------------------------------------------

    def _transition_to(self, state: State, cause: Cause, effects: Effects) -> None:
        if self.state not in ALLOWED_PREVIOUS_STATES[state]:
            came_from = sorted(s.value for s in ALLOWED_PREVIOUS_STATES[state])
            raise IllegalTransition(
                f"group {self.group_id!r}: {state.value} is entered from {came_from}, it was {self.state.value};"
                f" last events: {effects.last_events()}"
            )
        self.previous_state = self.state
        self._set_state(state)
        self.state_timestamp_ms = self.clock.wall_ms()
        self._note(Kind.STATE_CHANGED, cause, effects)

    def _set_state(self, state: State) -> None:
        self.state = state
        self.answers = ANSWERS[state]

    def _note(self, kind: Kind, cause: Cause, effects: Effects) -> None:
        clock = self.clock
        wall_ms, monotonic_ms = clock.wall_ms(), clock.monotonic_ms()
        event = event_of(kind, cause, self.state, self.generation, wall_ms=wall_ms, monotonic_ms=monotonic_ms)
        effects.events.append(event)

    def _rebalance(self, cause: Cause, effects: Effects) -> None:
        """Handle a change of the members: begin the join phase, or check whether the current one is complete."""
        if self.state is State.PREPARING_REBALANCE:
            self._complete_join_if_all_joined(effects)
            self._schedule_retry(effects)
        else:
            self._start_rebalance(cause, effects)

    def _start_rebalance(self, cause: Cause, effects: Effects) -> None:
        if self.state is State.COMPLETING_REBALANCE:
            self._drop_assignments(ErrorCode.REBALANCE_IN_PROGRESS, effects)
        self.pending_sync.clear()
        self.sync_deadline.cancel(effects)
        if self.state is State.EMPTY:
            self._start_initial_delay(cause, effects)
            return
        self._transition_to(State.PREPARING_REBALANCE, cause, effects)
        if self.members.all_joined():
            self._complete_join(Reason.ALL_JOINED, effects)
        else:
            self._set(self.join_deadline, self.members.max_rebalance_timeout_ms(), effects)

    def _start_initial_delay(self, cause: Cause, effects: Effects) -> None:
        """Delay the first generation, so that members that start together are in the same one."""
        self._initial_delay_ms = self.settings.group_initial_rebalance_delay_ms
        self._initial_remaining_ms = max(self.members.max_rebalance_timeout_ms() - self._initial_delay_ms, 0)
        self._set(self.join_deadline, self._initial_delay_ms, effects)
        self._transition_to(State.PREPARING_REBALANCE, cause, effects)

    def _in_initial_delay(self) -> bool:
        return self.state is State.PREPARING_REBALANCE and self.previous_state is State.EMPTY

    def _join_deadline_passed(self, effects: Effects) -> None:
        """End the join phase. The initial delay is extended while new members keep joining."""
        if self.state is not State.PREPARING_REBALANCE:
            return
        is_initial = self._in_initial_delay()
        if not (is_initial and self._new_member_added and self._initial_remaining_ms):
            self._complete_join(Reason.INITIAL_DELAY_ENDED if is_initial else Reason.REBALANCE_TIMEOUT, effects)
            return
        self._new_member_added = False
        used_ms = self._initial_delay_ms
        self._initial_delay_ms = min(self.settings.group_initial_rebalance_delay_ms, self._initial_remaining_ms)
        self._initial_remaining_ms = max(self._initial_remaining_ms - used_ms, 0)
        self._set(self.join_deadline, self._initial_delay_ms, effects)

    def _complete_join_if_all_joined(self, effects: Effects) -> None:
        if self.state is State.PREPARING_REBALANCE and not self._in_initial_delay() and self.members.all_joined():
            self._complete_join(Reason.ALL_JOINED, effects)

    def _complete_join_if_all_joined_early(self, effects: Effects) -> None:
        """After an expiry Kafka only checks whether all have joined. This may end the initial delay."""
        if self.state is State.PREPARING_REBALANCE and self.members.all_joined():
            self._complete_join(Reason.ALL_JOINED, effects)

    def _schedule_retry(self, effects: Effects) -> None:
        """After the first member has rejoined, check again as soon as Kafka would."""
        if self._retry_ms is not None and self.state is State.PREPARING_REBALANCE:
            self._set(self.join_deadline, self._retry_ms, effects)

    def _wait_for_any_member(self, effects: Effects) -> None:
        timeout_ms = self.members.max_rebalance_timeout_ms()
        self._retry_ms = max(timeout_ms, 0) if timeout_ms < NO_REJOIN_WAIT_MS else None
        self._set(self.join_deadline, max(timeout_ms, NO_REJOIN_WAIT_MS), effects)

    def _complete_join(self, reason: Reason, effects: Effects) -> None:
        """End the join phase: the members that joined form the next generation. ``reason``: why it ends now."""
        self.join_deadline.cancel(effects)
        self._new_member_added = False
        self._retry_ms = None
        for member in [m for m in self.members if m.joining is None and m.group_instance_id is None]:
            self._remove(member, Cause(Reason.DID_NOT_REJOIN, member), effects)
        if not self._elect_leader():
            self._wait_for_any_member(effects)
            return
        self.generation += 1
        self.pending_sync.clear()
        if len(self.members):
            self._begin_generation(reason, effects)
        else:
            self._become_empty(effects)

    def _elect_leader(self) -> bool:
        """Ensure that the leader has joined. False if only absent static members are left."""
        leader = self.members.by_id.get(self.leader_id) if self.leader_id is not None else None
        if not len(self.members) or (leader is not None and leader.joining is not None):
            return True
        new_leader = next((member for member in self.members if member.joining is not None), None)
        if new_leader is not None:
            self.leader_id = new_leader.member_id
        return new_leader is not None

    def _become_empty(self, effects: Effects) -> None:
        self.protocol_name = None
        self._transition_to(State.EMPTY, Cause(Reason.NO_MEMBERS), effects)
        self._store_subscriptions()
        effects.append_record(GroupRecord(self.group_id, self._value(())))

    def _begin_generation(self, reason: Reason, effects: Effects) -> None:
        self.protocol_name = self.members.vote()
        self._transition_to(State.COMPLETING_REBALANCE, Cause(reason), effects)
        effects.counters.rebalances += 1
        self._store_subscriptions()
        for member in self.members:
            effects.answer(self.members.pop_join(member), self._joined(member))
            self._renew_session(member, effects)
            member.is_new = False
            self.pending_sync.add(member.member_id)
        self._set(self.sync_deadline, self.members.max_rebalance_timeout_ms(), effects)

    def _joined(self, member: GroupMember, *, list_members: bool = True) -> Joined:
        """The reply to a JoinGroup for the current generation. The leader gets the list of members."""
        is_leader = member.member_id == self.leader_id
        return Joined(
            ErrorCode.NONE,
            member_id=member.member_id,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id or "",
            members=self.members.joined(self.protocol_name) if is_leader and list_members else (),
        )

    def _sync_deadline_passed(self, effects: Effects) -> None:
        """Remove members that have not sent SyncGroup, static ones too (KAFKA-12890)."""
        if self.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not self.pending_sync:
            return
        cause = Cause(Reason.SYNC_TIMEOUT)
        for member_id in list(self.pending_sync):
            member = self.members.by_id.get(member_id)
            if member is not None:
                effects.answer(
                    self.members.pop_join(member), Joined(ErrorCode.UNKNOWN_MEMBER_ID)
                )  # parked by a static member
                cause = Cause(Reason.SYNC_TIMEOUT, member)
                self._remove(member, cause, effects)
        self._start_rebalance(cause, effects)

    # Subscriptions ---------------------------------------------------------------------------------------------------

    def _store_subscriptions(self) -> None:
        """Store the subscriptions of the generation. They are parsed on demand, which is rare."""
        self._subscriptions = self._topics = None
        if self.protocol_type == CONSUMER:
            self._subscriptions = tuple(member.metadata(self.protocol_name) for member in self.members)

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics of the last generation; None if unknown: no consumer group, no generation, or invalid bytes."""
        if self._subscriptions is not None:
            self._topics = subscribed_topics(self._subscriptions)
            self._subscriptions = None
        return self._topics

    def is_subscribed_to(self, topic: str) -> bool:
        """Kafka's ``isSubscribedToTopic``: unknown subscriptions of consumers count as subscribed to every topic."""
        topics = self.subscribed_topics()
        return self.protocol_type == CONSUMER if topics is None else topic in topics

    def offset_expiry(self) -> OffsetExpiry | None:
        """In an Empty group and a simple one, and in a Stable consumer group for topics without subscribers."""
        is_empty, topics = self.state is State.EMPTY, self.subscribed_topics()
        if not self.protocol_type or is_empty:
            since_ms = self.state_timestamp_ms if self.protocol_type else -1
            return OffsetExpiry(since_ms, topics or frozenset())
        if self.state is not State.STABLE or self.protocol_type != CONSUMER or topics is None:
            return None
        return OffsetExpiry(-1, topics)

    # Members and assignments -----------------------------------------------------------------------------------------

    def _remove(self, member: GroupMember, cause: Cause, effects: Effects) -> None:
        member.session.cancel(effects)
        self.members.remove(member)
        self._note(Kind.MEMBER_REMOVED, cause, effects)
        self.pending_sync.discard(member.member_id)
        if member.member_id == self.leader_id:
            new_leader = next(iter(self.members), None)
            self.leader_id = new_leader.member_id if new_leader is not None else None

    def _drop_assignments(self, error: ErrorCode, effects: Effects) -> None:
        """Discard the assignments of this generation; parked SyncGroup requests get ``error``."""
        for member in self.members:
            member.assignment = b""
            self._answer_sync(member, Synced(error), effects)

    def _answer_sync(self, member: GroupMember, answer: Synced, effects: Effects) -> None:
        if member.syncing is None:
            return
        effects.answer(member.syncing, answer)
        member.syncing = None
        self._renew_session(member, effects)

    def _assignment_of(self, member: GroupMember) -> Synced:
        return Synced(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def creation_record(self, request: object) -> GroupRecord | None:
        """The record of a group without a generation, as in Kafka: members may still be joining."""
        if not isinstance(request, JoinGroup) or request.member_id:
            return None
        return GroupRecord(self.group_id, GroupValue("", 0, None, None, self.state_timestamp_ms, ()))

    def _value(self, assignments: tuple[tuple[str, bytes], ...] | None = None) -> GroupValue:
        """The value of the group's record. ``assignments`` None: the current ones of the members."""
        given = dict(assignments) if assignments is not None else None
        return GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(
                m.to_record(
                    self.protocol_name,
                    m.assignment if given is None else given.get(m.member_id, b""),
                )
                for m in self.members
            ),
        )

    # Deletion ---------------------------------------------------------------------------------------------------------

    def _offset_delete_error(self) -> ErrorCode:
        answer = self.answers[Request.DELETE_OFFSETS]
        if answer is Action.DELETE_OFFSETS_OF_CONSUMERS and self.protocol_type != CONSUMER:
            return ErrorCode.NON_EMPTY_GROUP
        return _error_of(answer)

    def _delete_error(self) -> ErrorCode:
        return _error_of(self.answers[Request.DELETE])

    # Closing and description -----------------------------------------------------------------------------------------

    def close(self, error: ErrorCode, reason: Reason, effects: Effects) -> None:
        """Reply to all parked requests with ``error``, and enter Dead."""
        for member in self.members:
            effects.answer(self.members.pop_join(member), Joined(error, member_id=member.member_id))
            effects.answer(member.syncing, Synced(error))
            member.syncing = None
        sessions = [member.session for member in self.members]
        for deadline in (*sessions, *self.members.pending.values(), self.join_deadline, self.sync_deadline):
            deadline.cancel(effects)
        self.members = Members()  # so that no session is renewed
        self._transition_to(State.DEAD, Cause(reason), effects)

    @property
    def may_be_passivated(self) -> bool:
        """Whether the group is Empty, without pending member ids."""
        return self.state is State.EMPTY and not self.members.by_id and not self.members.pending

    def describe(self) -> Described:
        if self.state is State.DEAD:
            return Described(ErrorCode.NONE, self.group_id, State.DEAD.value)
        protocol = self.protocol_name if self.state is State.STABLE else None
        members = tuple(member.described(protocol) for member in self.members)
        return Described(
            ErrorCode.NONE, self.group_id, self.state.value, self.protocol_type or "", protocol or "", members
        )


def _error_of(answer: Action | ErrorCode) -> ErrorCode:
    return answer if isinstance(answer, ErrorCode) else ErrorCode.NONE
