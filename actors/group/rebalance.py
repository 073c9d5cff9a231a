"""How a classic group gets from one generation to the next: pure, with every wait on a named deadline.

Names of deadlines: ``("session", member id)``, ``("pending", member id)``, ``("join",)`` and ``("sync",)``. The join
deadline is the initial delay of an empty group, else the longest rebalance timeout; by the sync deadline every member
must have asked for its assignment.
Source of the rules: Kafka's GroupMetadataManager (4.x), ClassicGroup.
"""

from __future__ import annotations

from ..engine_ports import Clock
from ..errors import ErrorCode, IllegalTransition
from ..messages import Joined, Synced
from ..ports import GroupSettings
from ..records import GroupRecord, GroupValue
from .effects import Deadline, Effects
from .members import Member, Members
from .states import ANSWERS, CAME_FROM, State
from .subscription import CONSUMER, subscribed_topics

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""A member that joins for the first time is given up after this, parked or not (Kafka's constant, KAFKA-7610)."""

NOBODY_CAME_WAIT_MS = 1000
"""While none of a group's static members rejoins, we look again after this at the earliest. Kafka looks after each
rebalance timeout, so a client whose timeout is nothing at all keeps it busy; here that would keep the loop busy."""

GENERATIONS_BEGAN_S = 1_577_836_800
"""The first second of 2020. Generations have 31 bits, so those that begin at the clock's seconds last until 2088."""


class Rebalance:
    """State, members and generation of a group, and the steps between generations."""

    def __init__(self, group_id: str, settings: GroupSettings, clock: Clock) -> None:
        self.group_id = group_id
        self.settings = settings
        self.clock = clock
        self.state = State.EMPTY
        self.previous_state = State.DEAD
        self.answers = ANSWERS[State.EMPTY]  # the state's row of the table
        self.state_timestamp_ms = clock.wall_ms()
        self.generation = self._generation_of_clock() if settings.group_generation_from_clock else 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members = Members()
        self._subscriptions: tuple[bytes, ...] | None = None  # of the last generation that began, until they are read
        self._topics: frozenset[str] | None = None  # what they say
        self.pending_sync: set[str] = set()
        self.assigned_generation = -1  # the last one whose assignment was handed to the log
        self.join_deadline = Deadline(("join",))
        self.sync_deadline = Deadline(("sync",))
        self._new_member_added = False
        self._initial_delay_ms = 0
        self._initial_remaining_ms = 0
        self._look_again_ms: int | None = None  # nobody has come, and this is how soon Kafka would look again

    def _generation_of_clock(self) -> int:
        """More than any that a group of this name has had, unless it had more than one a second."""
        return max(self.state_timestamp_ms // 1000 - GENERATIONS_BEGAN_S, 0)

    # Deadlines -------------------------------------------------------------------------------------------------------

    def _set(self, deadline: Deadline, in_ms: int, effects: Effects) -> None:
        deadline.set(self.clock.monotonic_ms() + in_ms, effects)

    def _renew_session(self, member: Member, effects: Effects) -> None:
        member.session.set(self.clock.monotonic_ms() + member.session_timeout_ms, effects)

    # From state to state ---------------------------------------------------------------------------------------------

    def _move(self, state: State) -> None:
        if self.state not in CAME_FROM[state]:
            came_from = sorted(s.value for s in CAME_FROM[state])
            raise IllegalTransition(
                f"group {self.group_id!r}: {state.value} is entered from {came_from}, it was {self.state.value}"
            )
        self.previous_state = self.state
        self._enter(state)
        self.state_timestamp_ms = self.clock.wall_ms()

    def _enter(self, state: State) -> None:
        self.state = state
        self.answers = ANSWERS[state]

    def _rebalance(self, effects: Effects) -> None:
        """Members have changed: begin the join phase, or see whether the one that is open is complete."""
        if self.state is State.PREPARING_REBALANCE:
            self._complete_join_if_all_are_there(effects)
            self._look_again_soon(effects)
        else:
            self._start_rebalance(effects)

    def _start_rebalance(self, effects: Effects) -> None:
        if self.state is State.COMPLETING_REBALANCE:
            self._drop_assignments(ErrorCode.REBALANCE_IN_PROGRESS, effects)
        self.pending_sync.clear()
        self.sync_deadline.cancel(effects)
        if self.state is State.EMPTY:
            self._start_initial_delay(effects)
            return
        self._move(State.PREPARING_REBALANCE)
        if self.members.all_joined():
            self._complete_join(effects)
        else:
            self._set(self.join_deadline, self.members.max_rebalance_timeout_ms(), effects)

    def _start_initial_delay(self, effects: Effects) -> None:
        """A new group waits a little, so that members that start together get one generation and not one each."""
        self._initial_delay_ms = self.settings.group_initial_rebalance_delay_ms
        self._initial_remaining_ms = max(self.members.max_rebalance_timeout_ms() - self._initial_delay_ms, 0)
        self._set(self.join_deadline, self._initial_delay_ms, effects)
        self._move(State.PREPARING_REBALANCE)

    def _in_initial_delay(self) -> bool:
        return self.state is State.PREPARING_REBALANCE and self.previous_state is State.EMPTY

    def _join_deadline_passed(self, effects: Effects) -> None:
        """The time to join is over. The initial delay is extended while new members keep coming."""
        if self.state is not State.PREPARING_REBALANCE:
            return
        if not (self._in_initial_delay() and self._new_member_added and self._initial_remaining_ms):
            self._complete_join(effects)
            return
        self._new_member_added = False
        used_ms = self._initial_delay_ms
        self._initial_delay_ms = min(self.settings.group_initial_rebalance_delay_ms, self._initial_remaining_ms)
        self._initial_remaining_ms = max(self._initial_remaining_ms - used_ms, 0)
        self._set(self.join_deadline, self._initial_delay_ms, effects)

    def _complete_join_if_all_are_there(self, effects: Effects) -> None:
        if self.state is State.PREPARING_REBALANCE and not self._in_initial_delay() and self.members.all_joined():
            self._complete_join(effects)

    def _look_again_soon(self, effects: Effects) -> None:
        """Somebody may have come where nobody was: that is noticed as soon as Kafka would notice it."""
        if self._look_again_ms is not None and self.state is State.PREPARING_REBALANCE:
            self._set(self.join_deadline, self._look_again_ms, effects)

    def _wait_for_anybody(self, effects: Effects) -> None:
        timeout_ms = self.members.max_rebalance_timeout_ms()
        self._look_again_ms = max(timeout_ms, 0) if timeout_ms < NOBODY_CAME_WAIT_MS else None
        self._set(self.join_deadline, max(timeout_ms, NOBODY_CAME_WAIT_MS), effects)

    def _complete_join(self, effects: Effects) -> None:
        """The join phase is over: those who came form the next generation."""
        self.join_deadline.cancel(effects)
        self._new_member_added = False
        self._look_again_ms = None
        for member in [m for m in self.members if m.joining is None and m.group_instance_id is None]:
            self._remove(member, effects)
        if not self._elect_leader():
            self._wait_for_anybody(effects)
            return
        self.generation += 1
        self.pending_sync.clear()
        if len(self.members):
            self._begin_generation(effects)
        else:
            self._become_empty(effects)

    def _elect_leader(self) -> bool:
        """See to it that the leader is one who came. False if only absent static members are left."""
        leader = self.members.by_id.get(self.leader_id) if self.leader_id is not None else None
        if not len(self.members) or (leader is not None and leader.joining is not None):
            return True
        came = next((member for member in self.members if member.joining is not None), None)
        if came is not None:
            self.leader_id = came.member_id
        return came is not None

    def _become_empty(self, effects: Effects) -> None:
        self.protocol_name = None
        self._move(State.EMPTY)
        self._note_subscriptions()
        effects.keep(GroupRecord(self.group_id, self._value(())))

    def _begin_generation(self, effects: Effects) -> None:
        self.protocol_name = self.members.vote()
        self._move(State.COMPLETING_REBALANCE)
        effects.counts.rebalances += 1
        self._note_subscriptions()
        for member in self.members:
            effects.answer(self.members.take_join(member), self._joined(member))
            self._renew_session(member, effects)
            member.is_new = False
            self.pending_sync.add(member.member_id)
        self._set(self.sync_deadline, self.members.max_rebalance_timeout_ms(), effects)

    def _joined(self, member: Member, *, list_members: bool = True) -> Joined:
        """The current generation, as the answer to a JoinGroup; the leader gets the list of members."""
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
        """Members that never asked for their assignment are out, static ones too (KAFKA-12890)."""
        if self.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not self.pending_sync:
            return
        for member_id in list(self.pending_sync):
            member = self.members.by_id.get(member_id)
            if member is not None:
                effects.answer(self.members.take_join(member), Joined(ErrorCode.UNKNOWN_MEMBER_ID))  # a static one
                self._remove(member, effects)
        self._start_rebalance(effects)

    # Subscriptions ---------------------------------------------------------------------------------------------------

    def _note_subscriptions(self) -> None:
        """Keep what the generation's members subscribe to. It is read when somebody asks, and that is rare."""
        self._subscriptions = self._topics = None
        if self.protocol_type == CONSUMER:
            self._subscriptions = tuple(member.metadata(self.protocol_name) for member in self.members)

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics of the last generation's consumers; None if unknown: no such group, no generation, no sense."""
        if self._subscriptions is not None:
            self._topics = subscribed_topics(self._subscriptions)
            self._subscriptions = None
        return self._topics

    def is_subscribed_to(self, topic: str) -> bool:
        """Kafka's ``isSubscribedToTopic``: consumers whose subscriptions are unknown may subscribe to anything."""
        topics = self.subscribed_topics()
        return self.protocol_type == CONSUMER if topics is None else topic in topics

    # Members and assignments -----------------------------------------------------------------------------------------

    def _remove(self, member: Member, effects: Effects) -> None:
        member.session.cancel(effects)
        self.members.remove(member)
        self.pending_sync.discard(member.member_id)
        if member.member_id == self.leader_id:
            heir = next(iter(self.members), None)
            self.leader_id = heir.member_id if heir is not None else None

    def _drop_assignments(self, error: ErrorCode, effects: Effects) -> None:
        """The generation is void: whoever waits for an assignment hears so."""
        for member in self.members:
            member.assignment = b""
            self._answer_sync(member, Synced(error), effects)

    def _answer_sync(self, member: Member, answer: Synced, effects: Effects) -> None:
        if member.syncing is None:
            return
        effects.answer(member.syncing, answer)
        member.syncing = None
        self._renew_session(member, effects)

    def first_record(self) -> GroupRecord:
        """What keeps a group in the log that has nobody yet, or only members that are about to come, as in Kafka."""
        return GroupRecord(self.group_id, GroupValue("", 0, None, None, self.state_timestamp_ms, ()))

    def _value(self, assignments: tuple[tuple[str, bytes], ...] | None = None) -> GroupValue:
        """The group as its record; ``assignments`` None keeps those that the members have."""
        given = dict(assignments) if assignments is not None else None
        return GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(
                m.to_record(self.protocol_name, m.assignment if given is None else given.get(m.member_id, b""))
                for m in self.members
            ),
        )
