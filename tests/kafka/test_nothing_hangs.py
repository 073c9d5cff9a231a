"""No request waits for ever: each waiting request has a timer or a record in flight, with any clients, bugs and disk.

``test_classic_machine.py`` checks this for the group alone. This test runs the whole coordinator, with the real timer
and writer, groups that restart after a bug, and a process that is killed. After every step, each unanswered request
must wait for a timer or for a record in flight. At the end clients send nothing more; then the expiry of timers must
complete all requests and leave the group Empty.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any
from unittest.mock import patch

from actor_system.ports import ManualLog, RecordedReply
from actor_system.requests import GROUP, commit, fetch, heartbeat, join, leave, offers, sync
from actor_system.simulation import CoordinatorSimulation, classic_group
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from property_examples import examples

from callboard.actors.base import ActorRef
from callboard.actors.errors import ErrorCode
from callboard.actors.group.actor import GroupActor
from callboard.actors.group.classic import ClassicGroup
from callboard.actors.group.failed_group import FailedGroup
from callboard.actors.group.joining import NEW_MEMBER_JOIN_TIMEOUT_MS
from callboard.actors.group.members import GroupMember
from callboard.actors.group.states import State
from callboard.actors.messages import (
    DeleteGroup,
    DescribeGroup,
    ExpireOffsets,
    GroupRequest,
    JoinGroup,
    Protocol,
    SyncGroup,
)
from callboard.actors.timer.actor import TimerActor
from callboard.actors.writer import OffsetWriterActor

LONGEST_MS = 300_000
"""The longest session and rebalance timeout in these tests."""

WAIT_MAX_MS = NEW_MEMBER_JOIN_TIMEOUT_MS + 2 * LONGEST_MS
"""The longest wait if no client sends anything: the timeout of a new member, a join phase, and a sync phase."""

AT_REST_MS = 3 * WAIT_MAX_MS

REQUESTS = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "DescribeGroup")
METHODS = ("expired", "appended", "append_failed")

times = st.sampled_from([6000, 10_000, 45_000, LONGEST_MS])
picks = st.integers(0, 20)
generations = st.sampled_from([0, 0, 0, 0, -1, 1])  # relative to the current one
outcomes = st.sampled_from(["kept", "failed", "late"])
protocols = st.sampled_from([offers("range"), offers("range", metadata=b"v2"), offers("sticky", "range")])


class Bug(Exception):
    """The error that ``Fuse`` raises in a group."""


class Fuse:
    """Selects the method of groups that fails, how often, and whether before or after its work."""

    def __init__(self) -> None:
        self.method = ""
        self.after = False
        self.times = 0

    def light(self, method: str, after: bool, times: int) -> None:
        self.method, self.after, self.times = method, after, times

    def blow(self, method: str, after: bool) -> None:
        if self.times and (method, after) == (self.method, self.after):
            self.times -= 1
            raise Bug(method)


def fused(fuse: Fuse) -> type[ClassicGroup]:
    """Return a group class whose methods fail according to the fuse; ``handle`` by the class of the request."""

    def around(name: str) -> Any:
        def method(self: ClassicGroup, *args: Any) -> Any:
            what = type(args[0]).__name__ if name == "handle" else name
            fuse.blow(what, after=False)
            result = getattr(ClassicGroup, name)(self, *args)
            fuse.blow(what, after=True)
            return result

        return method

    return type("FusedGroup", (ClassicGroup,), {name: around(name) for name in ("handle", *METHODS)})


class AnyWorld(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.fuse = Fuse()
        self.patch = patch("callboard.actors.group.classic_kind.ClassicGroup", fused(self.fuse))
        self.patch.start()
        self.simulation = CoordinatorSimulation(holds_appends=True)
        self.restarts = 0
        self.ids = ["ghost"]
        self.sent: dict[tuple[type, str], list[RecordedReply]] = {}
        self.given_up: list[RecordedReply] = []

    # State that is checked --------------------------------------------------------------------------------------------

    @property
    def ref(self) -> ActorRef | None:
        return self.simulation.directory.groups.get(GROUP)

    @property
    def actor(self) -> GroupActor | None:
        """The instance of the group; None if it is not in memory or is replaced by a placeholder."""
        actor = self.ref.actor_inbox.actor if self.ref is not None else None
        return actor if isinstance(actor, GroupActor) else None

    @property
    def generation(self) -> int:
        return classic_group(self.actor).generation if self.actor is not None else 0

    @property
    def alarms(self) -> set[Hashable]:
        """The names of alarms that the timer has scheduled for the group."""
        return set(self.timer._timers._timers.get(self.ref, {}))

    @property
    def timer(self) -> TimerActor:
        timer = self.simulation.timer.actor_inbox.actor
        assert isinstance(timer, TimerActor)
        return timer

    @property
    def is_writing(self) -> bool:
        writer = self.simulation.writer.actor_inbox.actor
        assert isinstance(writer, OffsetWriterActor)
        return bool(writer._in_flight or writer._waiting)

    def member(self, member_id: str) -> GroupMember | None:
        return classic_group(self.actor).members.by_id.get(member_id) if self.actor is not None else None

    def members(self) -> list[GroupMember]:
        return list(classic_group(self.actor).members) if self.actor is not None else []

    def waiting(self) -> list[RecordedReply]:
        return [reply for reply in self.simulation.replies if reply.is_waiting and reply not in self.given_up]

    # Actions of clients -----------------------------------------------------------------------------------------------

    def someone(self, pick: int) -> tuple[str, str | None]:
        member_id = self.ids[-1 - pick % len(self.ids)]
        member = self.member(member_id)
        return member_id, member.group_instance_id if member is not None else None

    def post(self, request: GroupRequest) -> RecordedReply:
        """Send a request. It replaces the client's previous one of that type, which the group may answer or drop."""
        kind = (type(request), getattr(request, "member_id", ""))
        if isinstance(request, JoinGroup | SyncGroup) and request.member_id:
            member = self.member(request.member_id)
            parked = (member.joining if isinstance(request, JoinGroup) else member.syncing) if member else None
            older = [*self.sent.pop(kind, ()), *([parked] if isinstance(parked, RecordedReply) else ())]
            self.given_up += [reply for reply in older if reply.is_waiting]
        reply = self.simulation.post(request)
        self.sent.setdefault(kind, []).append(reply)
        return reply

    @rule(instance=st.sampled_from([None, None, "a", "b"]), times=st.tuples(times, times), offered=protocols)
    def join_new(self, instance: str | None, times: tuple[int, int], offered: tuple[Protocol, ...]) -> None:
        self._join("", instance, times, offered, 3)

    @rule(times=st.tuples(times, times), offered=protocols)
    def ask_for_a_member_id(self, times: tuple[int, int], offered: tuple[Protocol, ...]) -> None:
        self._join("", None, times, offered, 9)

    @rule(pick=picks, times=st.tuples(times, times), offered=protocols)
    def join_known(self, pick: int, times: tuple[int, int], offered: tuple[Protocol, ...]) -> None:
        member_id, instance = self.someone(pick)
        self._join(member_id, instance, times, offered, 9)

    def _join(
        self, member_id: str, instance: str | None, times: tuple[int, int], offered: tuple[Protocol, ...], version: int
    ) -> None:
        self.post(
            join(
                member_id,
                instance=instance,
                session_ms=times[0],
                rebalance_ms=times[1],
                protocols=offered,
                version=version,
            )
        )

    @rule(pick=picks, off=generations)
    def sync(self, pick: int, off: int) -> None:
        member_id, instance = self.someone(pick)
        everyone = classic_group(self.actor).members.by_id if self.actor is not None else {}
        self.post(sync(member_id, self.generation + off, dict.fromkeys(everyone, b"part"), instance=instance))

    @rule(pick=picks, off=generations)
    def heartbeat(self, pick: int, off: int) -> None:
        member_id, instance = self.someone(pick)
        self.post(heartbeat(member_id, self.generation + off, instance=instance))

    @rule(pick=picks, simple=st.booleans())
    def commit(self, pick: int, simple: bool) -> None:
        member_id, instance = ("", None) if simple else self.someone(pick)
        self.post(commit(member_id=member_id, generation_id=-1 if simple else self.generation, instance=instance))

    @rule(pick=picks)
    def leave(self, pick: int) -> None:
        self.post(leave(self.someone(pick)[0]))

    @rule(request=st.sampled_from([*[fetch(require_stable=True), DescribeGroup(GROUP)] * 3, DeleteGroup(GROUP)]))
    def administer(self, request: GroupRequest) -> None:
        self.post(request)

    @rule(newcomers=st.integers(0, 2), syncs=st.integers(0, 3), outcome=outcomes)
    def settle(self, newcomers: int, syncs: int, outcome: str) -> None:
        """All clients follow the protocol, so that the group leaves its join phase more often."""
        for _ in range(newcomers):
            self._join("", None, (10_000, 10_000), offers("range"), 3)
        for member in self.members():
            if member.joining is None:
                self._join(member.member_id, member.group_instance_id, (10_000, 10_000), member.protocols, 9)
        self.simulation.advance(3000)
        for member in self.members()[:syncs]:
            self.ids.append(member.member_id)
            self.sync(0, 0)
        self.end_rounds(outcome)

    # Time, disk, bugs and operator ------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([10, 3000, 6000, 10_000, 60_000, 100_000]))
    def wait(self, ms: int) -> None:
        self.simulation.advance(ms)

    @precondition(lambda self: self.simulation.log.in_flight)
    @rule(outcome=outcomes)
    def end_rounds(self, outcome: str) -> None:
        """Complete the records in flight; the writer begins the next round itself."""
        while outcome != "late" and self.simulation.log.in_flight:
            if outcome == "kept":
                self.simulation.complete_append()
            else:
                self.simulation.fail()

    @rule(method=st.sampled_from((*REQUESTS, *METHODS)), after=st.booleans(), times=st.sampled_from([1, 1, 1, 5]))
    def have_bugs(self, method: str, after: bool, times: int) -> None:
        """Let the method fail at its next calls. A group is restarted after a failure, but not after five."""
        self.fuse.light(method, after, times)
        provoke = {
            "JoinGroup": lambda: self._join(self.ids[-1], None, (10_000, 10_000), offers("range"), 9),
            "SyncGroup": lambda: self.sync(0, 0),
            "Heartbeat": lambda: self.heartbeat(0, 0),
            "LeaveGroup": lambda: self.leave(0),
            "OffsetCommit": lambda: self.commit(0, False),
            "DescribeGroup": lambda: self.administer(DescribeGroup(GROUP)),
        }
        for _ in range(times if method in provoke else 0):
            provoke[method]()

    @precondition(lambda self: self.ref is not None)
    @rule()
    def sweep(self) -> None:
        assert self.ref is not None
        reply = RecordedReply()
        self.simulation.replies.append(reply)
        self.ref.post(ExpireOffsets(), reply)
        self.simulation.run()

    @rule()
    def restart(self) -> None:
        """Kill the process: waiting clients lose their connections, and records that were not durable are lost."""
        log = ManualLog()
        log.durable = list(self.simulation.log.durable)
        self.restarts += 1
        self.simulation = CoordinatorSimulation(
            log.groups(), holds_appends=True, log=log, seed=self.restarts
        )  # so that new ids differ

    # Invariants -------------------------------------------------------------------------------------------------------

    @invariant()
    def collect_member_ids(self) -> None:
        if self.actor is not None:
            classic_group(self.actor).check()
            members = classic_group(self.actor).members
            self.ids += [member_id for member_id in (*members.by_id, *members.pending) if member_id not in self.ids]

    @invariant()
    def waiting_request_is_in_group_or_writer(self) -> None:
        parked = [reply for member in self.members() for reply in (member.joining, member.syncing)]
        for reply in self.waiting():
            assert reply in parked or self.is_writing, "an unanswered request is neither in the group nor in the writer"

    @invariant()
    def pending_request_has_timer(self) -> None:
        if self.actor is None:
            return
        group, alarms = classic_group(self.actor), self.alarms
        for member in group.members:
            if member.joining is not None:
                assert ("join",) in alarms or (group.state is State.STABLE and self.is_writing)
            elif member.syncing is not None:
                assert ("sync",) in alarms or self.is_writing
            else:
                assert ("session", member.member_id) in alarms, f"{member.member_id} has no session timer"

    @invariant()
    def temporary_state_has_timer(self) -> None:
        if self.actor is None:
            return
        group, alarms = classic_group(self.actor), self.alarms
        if group.state is State.PREPARING_REBALANCE:
            assert ("join",) in alarms
        if group.state is State.COMPLETING_REBALANCE:
            assert ("sync",) in alarms or self.is_writing
        for member_id in group.members.pending:
            assert ("pending", member_id) in alarms, f"{member_id} has no timer"

    @invariant()
    def alarm_is_set_for_earliest_deadline(self) -> None:
        """The alarm of the timer is not later than the earliest deadline."""
        due_ms = min(timer.due_tick for names in self.timer._timers._timers.values() for timer in names.values())
        assert self.simulation.alarm.due_ms is not None and self.simulation.alarm.due_ms <= due_ms

    def teardown(self) -> None:
        try:
            self._let_time_pass()
        finally:
            self.patch.stop()

    def _let_time_pass(self) -> None:
        self.fuse.light("", False, 0)
        self.simulation.complete_all_appends()
        self.simulation.holds_appends = False
        self.simulation.advance(WAIT_MAX_MS)
        assert not self.waiting(), f"{len(self.waiting())} requests are never answered"
        self.simulation.advance(AT_REST_MS)
        actor = self.ref.actor_inbox.actor if self.ref is not None else None
        note(f"final actor: {actor}")
        assert actor is None or isinstance(actor, FailedGroup), "the group must be passivated, deleted or failed"
        if GROUP in self.simulation.directory.passivated:
            answer = self.simulation.post(DescribeGroup(GROUP)).value
            assert (answer.error, answer.state) == (ErrorCode.NONE, State.EMPTY.value)


TestAnyWorld = AnyWorld.TestCase
TestAnyWorld.settings = settings(
    max_examples=examples(40), stateful_step_count=50, suppress_health_check=[HealthCheck.too_slow]
)
