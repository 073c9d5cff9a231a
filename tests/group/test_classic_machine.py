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
from callboard.actors.group.states import State
from callboard.actors.messages import Joined, LeavingMember, Protocol
from callboard.actors.records import GroupValue

ALARMS_MAX = 10_000  # more than any of these groups has before it is at rest

times = st.sampled_from([6000, 10_000, 45_000, 300_000])
instances = st.sampled_from([None, None, "a", "b"])
protocols = st.sampled_from(
    [
        offers("range"),
        offers("range", metadata=b"v2"),
        offers("range", "sticky"),
        offers("sticky", "range"),
        offers("sticky"),
    ]
)
generations = st.sampled_from([0, 0, 0, 0, -1, 1])  # from the current one
picks = st.integers(0, 20)


def seen(value: GroupValue | None) -> dict[str, Any]:
    """What a group agrees on; static members by instance, since an id of theirs may be one that nobody heard of."""
    assert value is not None
    name = {member.member_id: member.group_instance_id or member.member_id for member in value.members}
    return {
        "generation": value.generation,
        "protocol": (value.protocol_type, value.protocol),
        "leader": name.get(value.leader or ""),
        "assignments": {name[member.member_id]: member.assignment for member in value.members},
    }


class AnyCompany(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.simulated_group = SimulatedGroup(holds_appends=True)
        self.ids: list[str] = ["ghost"]
        self.joins: list[RecordedReply] = []
        self.syncs: list[tuple[RecordedReply, str, int]] = []
        self.replaced: list[RecordedReply] = []
        self.generation = 0
        self.assigners: dict[int, str] = {}  # generation -> who was asked to assign it
        self.parts = 0

    @property
    def group(self) -> ClassicGroup:
        return self.simulated_group.group

    def someone(self, pick: int) -> tuple[str, str | None]:
        """The ids that were ever given out, the latest first; and the instance that the member is."""
        member_id = self.ids[-1 - pick % len(self.ids)]
        member = self.group.members.by_id.get(member_id)
        return member_id, member.group_instance_id if member is not None else None

    def parked(self, member_id: str) -> tuple[Any, Any]:
        member = self.group.members.by_id.get(member_id)
        return (member.joining, member.syncing) if member is not None else (None, None)

    # What clients do -------------------------------------------------------------------------------------------------

    @rule(instance=instances, session=times, rebalance=times, offered=protocols, version=st.sampled_from([3, 4, 9]))
    def join_new(
        self, instance: str | None, session: int, rebalance: int, offered: tuple[Protocol, ...], version: int
    ) -> None:
        self._join("", instance, session, rebalance, offered, version)

    @rule(pick=picks, session=times, rebalance=times, offered=protocols, version=st.sampled_from([3, 9]))
    def join_known(self, pick: int, session: int, rebalance: int, offered: tuple[Protocol, ...], version: int) -> None:
        member_id, instance = self.someone(pick)
        before = self.parked(member_id)[0]
        self._join(member_id, instance, session, rebalance, offered, version)
        if before is not None and before.is_waiting and self.parked(member_id)[0] is not before:
            self.replaced.append(before)

    def _join(self, member_id: str, instance: str | None, session: int, rebalance: int, offered: Any, v: int) -> None:
        reply = self.simulated_group.join(
            member_id, instance=instance, session_ms=session, rebalance_ms=rebalance, protocols=offered, version=v
        )
        self.joins.append(reply)

    @rule(pick=picks, off=generations, all_parts=st.booleans())
    def sync(self, pick: int, off: int, all_parts: bool) -> None:
        member_id, instance = self.someone(pick)
        generation = self.group.generation + off
        before = self.parked(member_id)[1]
        self.parts += 1
        parts = {one: b"%d of " % self.parts + one.encode() for one in self.group.members.by_id} if all_parts else {}
        reply = self.simulated_group.sync(member_id, generation, parts, instance=instance)
        self.syncs.append((reply, member_id, generation))
        if before is not None and before.is_waiting and self.parked(member_id)[1] is not before:
            self.replaced.append(before)

    @rule(pick=picks, off=generations)
    def heartbeat(self, pick: int, off: int) -> None:
        member_id, instance = self.someone(pick)
        answer = self.simulated_group.heartbeat(member_id, self.group.generation + off, instance=instance)
        if answer in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            assert off == 0 and member_id in self.group.members.by_id, "two generations are current"

    @rule(pick=picks, off=generations)
    def commit(self, pick: int, off: int) -> None:
        member_id, instance = self.someone(pick)
        answer = self.simulated_group.commit(
            member_id=member_id, generation_id=self.group.generation + off, instance=instance
        )
        if answer is ErrorCode.NONE and self.group.generation + off >= 0:
            assert off == 0 and member_id in self.group.members.by_id, "a commit of nobody, or of another generation"

    @rule(first=picks, second=st.none() | picks, by_instance=st.booleans())
    def leave(self, first: int, second: int | None, by_instance: bool) -> None:
        leaving = []
        for pick in (first, *([second] if second is not None else [])):
            member_id, instance = self.someone(pick)
            leaving.append(LeavingMember("" if by_instance and instance else member_id, instance))
        self.simulated_group.leave(*leaving)

    # What time, disk and the administrator do ------------------------------------------------------------------------

    @rule(ms=st.sampled_from([0, 1, 2999, 3000, 6000, 10_000, 100_000]))
    def wait(self, ms: int) -> None:
        self.simulated_group.advance(ms)

    @precondition(lambda self: self.simulated_group.alarms)
    @rule()
    def wait_for_an_alarm(self) -> None:
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
    def settle(self) -> None:
        """Everybody does what a good client does: the group gets to Stable more often than by chance."""
        for member in list(self.group.members):
            if self.group.state is State.PREPARING_REBALANCE and member.joining is None:
                instance, offered = member.group_instance_id, member.protocols
                self._join(member.member_id, instance, 10_000, 10_000, offered, 9)
        if self.group.state is State.PREPARING_REBALANCE and self.simulated_group.alarms:
            self.simulated_group.advance_to_next_alarm()
        if self.group.state is State.COMPLETING_REBALANCE and self.group.leader_id is not None:
            self.ids.append(self.group.leader_id)
            self.sync(0, 0, True)
        while self.simulated_group.pending_appends:
            self.simulated_group.complete_append()

    # What must hold --------------------------------------------------------------------------------------------------

    @invariant()
    def generations_never_go_back(self) -> None:
        assert self.group.generation >= self.generation
        self.generation = self.group.generation

    @invariant()
    def one_leads(self) -> None:
        group = self.group
        assert group.leader_id is None or group.leader_id in group.members.by_id
        if group.state in (State.COMPLETING_REBALANCE, State.STABLE):
            assert group.leader_id is not None
            assert group.members.supports(offers(group.protocol_name or "")), "a protocol that not all have"
        for reply in self.joins:
            if reply.is_waiting:
                continue
            answer: Joined = reply.value
            if answer.member_id and answer.member_id not in self.ids:
                self.ids.append(answer.member_id)
            if answer.members and not answer.skip_assignment:
                assert answer.leader == answer.member_id
                assert self.assigners.setdefault(answer.generation_id, answer.member_id) == answer.member_id
        self.joins = [reply for reply in self.joins if reply.is_waiting]

    @invariant()
    def assignments_are_durable_before_they_are_told(self) -> None:
        for reply, member_id, generation in self.syncs:
            if not reply.is_waiting and reply.error is ErrorCode.NONE:
                kept = [
                    member.assignment
                    for value in self.simulated_group.durable
                    if value.generation == generation
                    for member in value.members
                    if member.member_id == member_id
                ]
                assert reply.value.assignment in kept
        self.syncs = [one for one in self.syncs if one[0].is_waiting]

    @invariant()
    def stable_is_what_the_log_says(self) -> None:
        if self.group.state is not State.STABLE or self.simulated_group.pending_appends:
            return
        fresh = self.simulated_group.new_group()
        fresh.replay(self.simulated_group.durable[-1])
        assert seen(fresh._value()) == seen(self.group._value())

    @invariant()
    def whoever_waits_has_something_to_wait_for(self) -> None:
        group = self.group
        for member in group.members:
            assert member.joining is None or member.syncing is None
            if member.joining is not None and group.state is not State.STABLE:
                assert group.state is State.PREPARING_REBALANCE
                assert group.join_deadline.due_ms is not None
            elif member.joining is not None:
                assert self.simulated_group.pending_appends, "a takeover waits for its record"
            elif member.syncing is not None:
                assert group.state is State.COMPLETING_REBALANCE
                assert group.sync_deadline.due_ms is not None or self.simulated_group.pending_appends
            else:
                assert member.session.due_ms is not None, f"{member.member_id} lives for ever"

    @invariant()
    def no_state_but_stable_and_empty_lasts(self) -> None:
        group = self.group
        if group.state is State.PREPARING_REBALANCE:
            assert group.join_deadline.due_ms is not None
        if group.state is State.COMPLETING_REBALANCE:
            assert group.sync_deadline.due_ms is not None or self.simulated_group.pending_appends
        for member_id, deadline in group.members.pending.items():
            assert deadline.due_ms is not None, f"{member_id} is awaited for ever"

    @invariant()
    def alarms_agree_with_deadlines(self) -> None:
        group, alarms = self.group, dict(self.simulated_group.alarms)
        deadlines: list[Deadline] = [member.session for member in group.members]
        deadlines += [*group.members.pending.values(), group.join_deadline, group.sync_deadline]
        for deadline in deadlines:
            scheduled_ms = alarms.pop(deadline.name, None)
            assert deadline.scheduled_ms == scheduled_ms
            assert deadline.due_ms is None or (scheduled_ms is not None and scheduled_ms <= deadline.due_ms)
        assert not alarms, f"alarms without an owner: {alarms}"

    def teardown(self) -> None:
        """Nobody does anything any more: the log settles, time passes, everybody is answered and the group is Empty."""
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
        waiting = [*self.joins, *(reply for reply, _, _ in self.syncs)]
        lost = [reply for reply in waiting if reply.is_waiting and reply not in self.replaced]
        assert not lost, f"{len(lost)} requests are never answered"


TestAnyCompany = AnyCompany.TestCase
TestAnyCompany.settings = settings(
    max_examples=100, stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow]
)
