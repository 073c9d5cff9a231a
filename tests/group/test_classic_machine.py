"""A classic group under random steps of clients, time and disk.

After every step the observable state (generations, leaders, replies) and the internal state (counts, deadlines) must be
consistent. At the end, time alone must complete all parked requests.
"""

from __future__ import annotations

from typing import Any

from actor_system.ports import RecordedReply
from actor_system.requests import offers
from actor_system.simulated_group import SimulatedGroup
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from callboard.actors.errors import ErrorCode
from callboard.actors.group.classic import ClassicGroup
from callboard.actors.group.effects import Deadline
from callboard.actors.group.group_value import replay, value_of
from callboard.actors.group.states import State
from callboard.actors.messages import Joined, LeavingMember, Protocol
from callboard.actors.records import GroupValue
from callboard.actors.steps import run_steps

ALARMS_MAX = 10_000  # more than any of these groups needs until it has no alarms

timeouts_ms = st.sampled_from([6000, 10_000, 45_000, 300_000])
instances = st.sampled_from([None, None, "a", "b"])
protocol_lists = st.sampled_from(
    [
        offers("range"),
        offers("range", metadata=b"v2"),
        offers("range", "sticky"),
        offers("sticky", "range"),
        offers("sticky"),
    ]
)
generation_deltas = st.sampled_from([0, 0, 0, 0, -1, 1])  # added to the current generation
member_picks = st.integers(0, 20)


def comparable_value(value: GroupValue | None) -> dict[str, Any]:
    """The fields that all members agree on.

    Static members are named by instance id, because a failed append may leave a member id that no client received.
    """
    assert value is not None
    name = {member.member_id: member.group_instance_id or member.member_id for member in value.members}
    return {
        "generation": value.generation,
        "protocol": (value.protocol_type, value.protocol),
        "leader": name.get(value.leader or ""),
        "assignments": {name[member.member_id]: member.assignment for member in value.members},
    }


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.simulated_group = SimulatedGroup(holds_appends=True)
        self.ids: list[str] = ["ghost"]
        self.joins: list[RecordedReply] = []
        self.syncs: list[tuple[RecordedReply, str, int]] = []
        self.replaced: list[RecordedReply] = []
        self.generation = 0
        self.assigners: dict[int, str] = {}  # generation -> the member id that computes its assignment
        self.parts = 0

    @property
    def group(self) -> ClassicGroup:
        return self.simulated_group.group

    def pick_member(self, pick: int) -> tuple[str, str | None]:
        """Return one of all assigned member ids, 0 being the latest, and the member's instance id."""
        member_id = self.ids[-1 - pick % len(self.ids)]
        member = self.group.members.by_id.get(member_id)
        return member_id, member.group_instance_id if member is not None else None

    def parked(self, member_id: str) -> tuple[Any, Any]:
        member = self.group.members.by_id.get(member_id)
        return (member.joining, member.syncing) if member is not None else (None, None)

    # Clients ---------------------------------------------------------------------------------------------------------

    @rule(
        instance=instances,
        session_ms=timeouts_ms,
        rebalance_ms=timeouts_ms,
        protocols=protocol_lists,
        version=st.sampled_from([3, 4, 9]),
    )
    def join_new(
        self, instance: str | None, session_ms: int, rebalance_ms: int, protocols: tuple[Protocol, ...], version: int
    ) -> None:
        self._send_join("", instance, session_ms, rebalance_ms, protocols, version)

    @rule(
        member_pick=member_picks,
        session_ms=timeouts_ms,
        rebalance_ms=timeouts_ms,
        protocols=protocol_lists,
        version=st.sampled_from([3, 9]),
    )
    def join_known(
        self, member_pick: int, session_ms: int, rebalance_ms: int, protocols: tuple[Protocol, ...], version: int
    ) -> None:
        member_id, instance = self.pick_member(member_pick)
        parked_reply = self.parked(member_id)[0]
        self._send_join(member_id, instance, session_ms, rebalance_ms, protocols, version)
        if parked_reply is not None and parked_reply.is_waiting and self.parked(member_id)[0] is not parked_reply:
            self.replaced.append(parked_reply)

    def _send_join(
        self, member_id: str, instance: str | None, session_ms: int, rebalance_ms: int, protocols: Any, version: int
    ) -> None:
        reply = self.simulated_group.join(
            member_id,
            instance=instance,
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
            protocols=protocols,
            version=version,
        )
        self.joins.append(reply)

    @rule(member_pick=member_picks, generation_delta=generation_deltas, all_parts=st.booleans())
    def sync(self, member_pick: int, generation_delta: int, all_parts: bool) -> None:
        member_id, instance = self.pick_member(member_pick)
        generation = self.group.generation + generation_delta
        parked_reply = self.parked(member_id)[1]
        self.parts += 1
        assignments = (
            {assigned_id: b"%d of " % self.parts + assigned_id.encode() for assigned_id in self.group.members.by_id}
            if all_parts
            else {}
        )
        reply = self.simulated_group.sync(member_id, generation, assignments, instance=instance)
        self.syncs.append((reply, member_id, generation))
        if parked_reply is not None and parked_reply.is_waiting and self.parked(member_id)[1] is not parked_reply:
            self.replaced.append(parked_reply)

    @rule(member_pick=member_picks, generation_delta=generation_deltas)
    def heartbeat(self, member_pick: int, generation_delta: int) -> None:
        member_id, instance = self.pick_member(member_pick)
        error = self.simulated_group.heartbeat(member_id, self.group.generation + generation_delta, instance=instance)
        if error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            assert generation_delta == 0 and member_id in self.group.members.by_id, (
                "a heartbeat of another generation is accepted"
            )

    @rule(member_pick=member_picks, generation_delta=generation_deltas)
    def commit(self, member_pick: int, generation_delta: int) -> None:
        member_id, instance = self.pick_member(member_pick)
        error = self.simulated_group.commit(
            member_id=member_id, generation_id=self.group.generation + generation_delta, instance=instance
        )
        if error is ErrorCode.NONE and self.group.generation + generation_delta >= 0:
            assert generation_delta == 0 and member_id in self.group.members.by_id, (
                "a commit of an unknown member or another generation is accepted"
            )

    @rule(first_pick=member_picks, second_pick=st.none() | member_picks, by_instance=st.booleans())
    def leave(self, first_pick: int, second_pick: int | None, by_instance: bool) -> None:
        leaving_members = []
        for pick in (first_pick, *([second_pick] if second_pick is not None else [])):
            member_id, instance = self.pick_member(pick)
            leaving_members.append(LeavingMember("" if by_instance and instance else member_id, instance))
        self.simulated_group.leave(*leaving_members)

    # Time, disk and settings -----------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([0, 1, 2999, 3000, 6000, 10_000, 100_000]))
    def advance(self, ms: int) -> None:
        self.simulated_group.advance(ms)

    @precondition(lambda self: self.simulated_group.alarms)
    @rule()
    def advance_to_next_alarm(self) -> None:
        self.simulated_group.advance_to_next_alarm()

    @precondition(lambda self: self.simulated_group.pending_appends)
    @rule()
    def complete_append(self) -> None:
        self.simulated_group.complete_append()

    @precondition(lambda self: self.simulated_group.pending_appends)
    @rule()
    def fail(self) -> None:
        self.simulated_group.fail()

    @rule(size=st.sampled_from([1, 3, 1000, 1000]))
    def resize(self, size: int) -> None:
        self.simulated_group.settings.group_max_size = size

    @rule()
    def join_and_sync_all(self) -> None:
        """All members join and sync. This makes the group Stable more often than random steps do."""
        for member in list(self.group.members):
            if self.group.state is State.PREPARING_REBALANCE and member.joining is None:
                instance, protocols = member.group_instance_id, member.protocols
                self._send_join(member.member_id, instance, 10_000, 10_000, protocols, 9)
        if self.group.state is State.PREPARING_REBALANCE and self.simulated_group.alarms:
            self.simulated_group.advance_to_next_alarm()
        if self.group.state is State.COMPLETING_REBALANCE and self.group.leader_id is not None:
            self.ids.append(self.group.leader_id)
            self.sync(0, 0, True)
        while self.simulated_group.pending_appends:
            self.simulated_group.complete_append()

    # Invariants ------------------------------------------------------------------------------------------------------

    @invariant()
    def generation_never_decreases(self) -> None:
        assert self.group.generation >= self.generation
        self.generation = self.group.generation

    @invariant()
    def leader_is_member(self) -> None:
        group = self.group
        assert group.leader_id is None or group.leader_id in group.members.by_id
        if group.state in (State.COMPLETING_REBALANCE, State.STABLE):
            assert group.leader_id is not None
            assert group.members.supports(offers(group.protocol_name or "")), (
                "some members do not support the chosen protocol"
            )
        for reply in self.joins:
            if reply.is_waiting:
                continue
            response: Joined = reply.value
            if response.member_id and response.member_id not in self.ids:
                self.ids.append(response.member_id)
            if response.members and not response.skip_assignment:
                assert response.leader == response.member_id
                assert self.assigners.setdefault(response.generation_id, response.member_id) == response.member_id
        self.joins = [reply for reply in self.joins if reply.is_waiting]

    @invariant()
    def assignments_are_durable_before_responses(self) -> None:
        for reply, member_id, generation in self.syncs:
            if not reply.is_waiting and reply.error is ErrorCode.NONE:
                durable_assignments = [
                    member.assignment
                    for value in self.simulated_group.durable
                    if value.generation == generation
                    for member in value.members
                    if member.member_id == member_id
                ]
                assert reply.value.assignment in durable_assignments
        self.syncs = [sync for sync in self.syncs if sync[0].is_waiting]

    @invariant()
    def stable_group_equals_replayed_group(self) -> None:
        if self.group.state is not State.STABLE or self.simulated_group.pending_appends:
            return
        replayed = self.simulated_group.new_group()
        run_steps(replay(replayed, self.simulated_group.durable[-1]))
        assert comparable_value(run_steps(value_of(replayed))) == comparable_value(run_steps(value_of(self.group)))

    @invariant()
    def members_have_deadlines(self) -> None:
        group = self.group
        for member in group.members:
            assert member.joining is None or member.syncing is None
            if member.joining is not None and group.state is not State.STABLE:
                assert group.state is State.PREPARING_REBALANCE
                assert group.join_phase.deadline.due_ms is not None
            elif member.joining is not None:
                assert self.simulated_group.pending_appends, "a static rejoin waits only for its record"
            elif member.syncing is not None:
                assert group.state is State.COMPLETING_REBALANCE
                assert group.sync_phase.deadline.due_ms is not None or self.simulated_group.pending_appends
            else:
                assert member.session.due_ms is not None, f"{member.member_id} has no session deadline"

    @invariant()
    def rebalance_states_have_deadlines(self) -> None:
        group = self.group
        if group.state is State.PREPARING_REBALANCE:
            assert group.join_phase.deadline.due_ms is not None
        if group.state is State.COMPLETING_REBALANCE:
            assert group.sync_phase.deadline.due_ms is not None or self.simulated_group.pending_appends
        for member_id, deadline in group.members.pending.items():
            assert deadline.due_ms is not None, f"pending id {member_id} has no deadline"

    @invariant()
    def alarms_agree_with_deadlines(self) -> None:
        group, alarms = self.group, dict(self.simulated_group.alarms)
        deadlines: list[Deadline] = [member.session for member in group.members]
        deadlines += [*group.members.pending.values(), group.join_phase.deadline, group.sync_phase.deadline]
        for deadline in deadlines:
            scheduled_ms = alarms.pop(deadline.name, None)
            assert deadline.scheduled_ms == scheduled_ms
            assert deadline.due_ms is None or (scheduled_ms is not None and scheduled_ms <= deadline.due_ms)
        assert not alarms, f"alarms without a deadline: {alarms}"

    def teardown(self) -> None:
        """Without further requests, all appends complete, all requests get replies and the group becomes Empty."""
        for _ in range(ALARMS_MAX):
            if self.simulated_group.pending_appends:
                self.simulated_group.complete_append()
            elif self.simulated_group.alarms:
                self.simulated_group.advance_to_next_alarm()
            else:
                break
        note(f"at the end: {self.group.state}, {list(self.group.members.by_id)}")
        assert self.group.state is State.EMPTY
        assert len(self.group.members) == 0
        replies = [*self.joins, *(reply for reply, _, _ in self.syncs)]
        unanswered = [reply for reply in replies if reply.is_waiting and reply not in self.replaced]
        assert not unanswered, f"{len(unanswered)} requests are never answered"


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(
    max_examples=100, stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow]
)
