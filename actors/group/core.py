"""GroupCore: what all rules of a classic group share: its data, its state machine and its deadlines. Pure.

The rules are functions in modules of their own; they get the group as their first argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ..engine_ports import Clock, ReplyTo
from ..errors import NO_ERROR, ErrorCode, IllegalTransition
from ..ports import ClassicGroupSettings, Random
from . import requests
from .deadlines import Deadlines
from .effects import Deadline, Effects
from .events import Cause, Kind, event_of
from .machine import StateMachine, Tables
from .members import GroupMember, Members
from .phases import JoinPhase, SyncPhase
from .rebalance_notes import Fenced
from .states import Event, Request, State
from .subscription import Subscriptions

GENERATION_EPOCH_S = 1_577_836_800
"""The first second of 2020. Generations have 31 bits, so they can begin at the clock's seconds until 2088."""

FIRST_GENERATION_MAX = 2**31 - 1 - 2**24
"""Of a clock that shows a later year. It leaves room for 16 million rebalances."""


class GroupCore:
    """The data of a classic group."""

    tables: ClassVar[Tables]
    deadlines: ClassVar[Deadlines[GroupCore]]

    def __init__(self, group_id: str, settings: ClassicGroupSettings, clock: Clock, random: Random) -> None:
        self.group_id = group_id
        self.settings = settings
        self.clock = clock
        self.random = random
        self.refuses_new_members: Callable[[], bool] = _has_memory  # whether the limit of memory is reached
        self.machine = StateMachine(self.tables, clock.wall_ms())
        self.generation = first_generation(self.machine.since_ms) if settings.group_generation_from_clock else 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members = Members()
        self.subscriptions = Subscriptions()
        self.join_phase = JoinPhase()
        self.sync_phase = SyncPhase()

    @property
    def state(self) -> State:
        return self.machine.state

    def handle(self, request: Any, reply: ReplyTo | None, effects: Effects, kind: Request | None = None) -> Any:
        """Handle a request as the table says. Returns the reply, or DEFERRED; see ``kind.Group``.

        ``kind``: of an admitted JoinGroup. All other kinds have a class of their own.
        """
        try:
            check, act, refuse = self.machine.row[kind or type(request)]
        except KeyError:
            return requests.refuse(request)
        error = check(self, request)
        if error is not NO_ERROR:
            if error is ErrorCode.FENCED_INSTANCE_ID:
                effects.note_refusal(Fenced(self.clock.monotonic_ms(), request.group_instance_id))
            return refuse(request, reply, effects, error)
        return act(self, request, reply, effects)

    def apply(self, event: Event, cause: Cause, effects: Effects) -> None:
        """Enter the next state of the table, and do what the table says. Raises IllegalTransition, which is a bug."""
        previous = self.machine.state
        try:
            act = self.machine.apply(event, self.clock.wall_ms())
        except IllegalTransition as error:
            raise IllegalTransition(f"group {self.group_id!r}: {error}; last events: {effects.last_events()}") from None
        if self.machine.state is not previous:
            self.note(Kind.STATE_CHANGED, cause, effects)
        if act is not None:
            act(self, cause, effects)

    def note(self, kind: Kind, cause: Cause, effects: Effects) -> None:
        """Add an event to the effects."""
        clock = self.clock
        wall_ms, monotonic_ms = clock.wall_ms(), clock.monotonic_ms()
        event = event_of(kind, cause, self.state, self.generation, wall_ms=wall_ms, monotonic_ms=monotonic_ms)
        effects.events.append(event)

    def set_deadline(self, deadline: Deadline, in_ms: int, effects: Effects) -> None:
        deadline.set(self.clock.monotonic_ms() + in_ms, effects)

    def renew_session(self, member: GroupMember, effects: Effects) -> None:
        member.session.set(self.clock.monotonic_ms() + member.session_timeout_ms, effects)


def _has_memory() -> bool:
    """The default of ``refuses_new_members``."""
    return False


def first_generation(now_ms: int) -> int:
    """Higher than the generations of a deleted group of this name, if those were at most one per second.

    Not if the clock shows a time before 2020 or after 2086.
    """
    return min(max(now_ms // 1000 - GENERATION_EPOCH_S, 0), FIRST_GENERATION_MAX)
