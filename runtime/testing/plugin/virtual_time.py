"""Moves the clock of a running coordinator from alarm to alarm, and completes all work of each before the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from inspect import isawaitable
from typing import Any, Protocol, TypeVar

from ....actors.consumer_group.group import ConsumerGroup
from ....actors.group.actor import GroupActor
from ....actors.group.classic import ClassicGroup
from ....actors.text import did_you_mean
from ...embed.lifecycle import ON_ANOTHER_LOOP
from ...node.node import Node
from .clock import MovableClock, MovableDispatcher
from .presence import ActiveGroup, DeadlinePostponement, Presence

IDLE_CHECKS_MIN = 2
"""The dispatcher must be idle in so many turns of the loop in a row: a message that an actor sends to itself after its
turn is in no mailbox for one turn."""

SETTLE_CHECKS_MAX = 1000
"""The limit of checks of a coordinator that never becomes idle; then time moves on anyway."""

UNTIL_S = 30 * 24 * 3600.0
"""The default limit of ``advance_until``."""

ADVANCE_MAX_S = 100 * 365 * 24 * 3600.0
"""More is surely a mistake, and would take very long: there is an alarm every ten minutes."""

NAMES_SHOWN = 20

T = TypeVar("T")
Blocking = Callable[[Coroutine[Any, Any, T]], T]
Predicate = Callable[[], object]


class ClockOwner(Protocol):
    """The parts of a coordinator that a moving clock uses."""

    clock: MovableClock
    presence: Presence

    @property
    def node(self) -> Node: ...

    def note_move(self, moved_ms: int, silent: Iterable[str]) -> None:
        """Record a move of the clock."""


class ClockMover:
    """Moves the clock of one coordinator, on its loop."""

    def __init__(self, owner: ClockOwner) -> None:
        self._owner = owner
        self._clock = owner.clock
        self._lock = asyncio.Lock()

    async def advance(self, seconds: float, silent: Iterable[str]) -> None:
        async with self.moving(seconds, silent) as move:
            while await self.step(move):
                pass

    @asynccontextmanager
    async def moving(self, seconds: float, silent: Iterable[str]) -> AsyncIterator[ClockMove]:
        """Hold the clock during the block; only ``step`` moves it."""
        names = validate_move(seconds, silent)
        if self._dispatcher().loop is not asyncio.get_running_loop():
            raise RuntimeError(ON_ANOTHER_LOOP)  # the actors do not run while this loop does
        if _EVALUATING.get() is self:
            raise RuntimeError("the predicate of advance_until must not move the clock")
        self._refuse_unknown_names(names)
        async with self._lock:
            self._clock.hold()
            began_ms = self._clock.monotonic_ms()
            try:
                await self.settle()
                yield ClockMove(began_ms + round(seconds * 1000), DeadlinePostponement(self._owner.presence, names))
            finally:
                moved_ms = self._clock.monotonic_ms() - began_ms
                self._clock.release()
                self._owner.note_move(moved_ms, names)

    def _refuse_unknown_names(self, names: frozenset[str]) -> None:
        """Raise ValueError for an unknown name: it would silence no member, and the test would wait for ever."""
        known_names = self._owner.presence.names.union(*map(member_names, active_groups(self._owner.node)))
        if unknown := sorted(names - known_names):
            known_text = ", ".join(sorted(known_names)[:NAMES_SHOWN]) or "none"
            raise ValueError(
                f"silent={unknown}: no member or client of that name has sent a request;"
                f"{did_you_mean(unknown[0], known_names)} known names are {known_text}"
            )

    async def step(self, move: ClockMove) -> bool:
        """Move to the next alarm, or to the target. Returns False at the target."""
        now_ms = self._clock.monotonic_ms()
        for group in active_groups(self._owner.node):
            move.deadlines.postpone(group, move.target_ms - now_ms)
        due_ms = self._clock.next_due_ms()
        if due_ms is None or due_ms > move.target_ms:
            self._clock.move_to(move.target_ms)
            return False
        self._clock.move_to(due_ms)
        self._clock.fire_due_alarms()
        await self.settle()
        return True

    async def evaluate(self, predicate: Callable[[], object | Awaitable[object]]) -> bool:
        """Whether the predicate is true. It must not move the clock."""
        token = _EVALUATING.set(self)
        try:
            result = predicate()
            return bool(await result if isawaitable(result) else result)
        finally:
            _EVALUATING.reset(token)

    async def settle(self) -> None:
        """Wait until all actors are idle and all records are durable."""
        node, dispatcher = self._owner.node, self._dispatcher()
        await self._idle(dispatcher)
        for _ in range(SETTLE_CHECKS_MAX):
            if not node.actors.is_writing:
                return
            await node.actors.drain()
            await self._idle(dispatcher)

    def _dispatcher(self) -> MovableDispatcher:
        dispatcher = self._owner.node.actors.system.dispatcher
        assert isinstance(dispatcher, MovableDispatcher), "a coordinator whose clock moves has such a dispatcher"
        return dispatcher

    async def _idle(self, dispatcher: MovableDispatcher) -> None:
        evaluate = 0
        for _ in range(SETTLE_CHECKS_MAX):
            await asyncio.sleep(0)
            evaluate = evaluate + 1 if dispatcher.is_idle and not self._clock.is_waking else 0
            if evaluate == IDLE_CHECKS_MIN:
                return


_EVALUATING: ContextVar[ClockMover | None] = ContextVar("_LOOKS", default=None)
"""The mover that evaluates its predicate in this context, which the thread of a predicate inherits."""


class ClockMove:
    """The target of a move, and the deadlines that it postpones."""

    def __init__(self, target_ms: int, deadlines: DeadlinePostponement) -> None:
        self.target_ms = target_ms
        self.deadlines = deadlines


class VirtualTime:
    """The clock of a coordinator, for tests on its loop."""

    def __init__(self, owner: ClockOwner) -> None:
        self._mover = ClockMover(owner)
        self._clock = owner.clock

    def now(self) -> float:
        """Seconds of the coordinator's time since it was made, as in the timeline."""
        return self._clock.since_start_ms() / 1000

    async def advance(self, seconds: float, *, silent: Iterable[str] = ()) -> None:
        """Move the clock. Returns when all events that became due have been processed, in order.

        Connected members count as alive during the move, except those whose member id, instance id or client id is in
        ``silent``. ValueError for a time below 0 or above 100 years, and for an unknown name; RuntimeError on another
        event loop than the coordinator's.
        """
        await self._mover.advance(seconds, silent)

    async def advance_until(
        self,
        predicate: Callable[[], object | Awaitable[object]],
        *,
        within: float = UNTIL_S,
        silent: Iterable[str] = (),
    ) -> float:
        """Move from alarm to alarm until ``predicate()`` is true. Returns the elapsed seconds.

        TimeoutError if it is not true after ``within`` seconds.
        """
        began = self.now()
        async with self._mover.moving(within, silent) as move:
            may_step = True
            while not await self._mover.evaluate(predicate):
                if not may_step:
                    raise timeout_error(within)
                may_step = await self._mover.step(move)
        return self.now() - began


class BlockingTime:
    """The same for tests on another thread."""

    def __init__(self, time: VirtualTime, run: Blocking[Any]) -> None:
        self._time = time
        self._run = run

    def now(self) -> float:
        """See ``VirtualTime.now``."""
        return self._time.now()

    def advance(self, seconds: float, *, silent: Iterable[str] = ()) -> None:
        """See ``VirtualTime.advance``."""
        self._run(self._time.advance(seconds, silent=silent))

    def advance_until(self, predicate: Predicate, *, within: float = UNTIL_S, silent: Iterable[str] = ()) -> float:
        """See ``VirtualTime.advance_until``. ``predicate`` is called on a separate thread, and may block."""

        async def call_in_thread() -> bool:
            return bool(await asyncio.to_thread(predicate))

        elapsed_s: float = self._run(self._time.advance_until(call_in_thread, within=within, silent=silent))
        return elapsed_s


def active_groups(node: Node) -> Iterator[ActiveGroup]:
    """The active groups. They do not change during the call, since the caller runs on the loop's thread."""
    for ref in node.groups.groups.values():
        actor = ref.actor_inbox.actor
        if isinstance(actor, GroupActor) and isinstance(actor.group, ClassicGroup | ConsumerGroup):
            yield actor.group


def member_names(group: ActiveGroup) -> set[str]:
    """The names by which a test may call its members silent."""
    if isinstance(group, ConsumerGroup):
        members = ((member.member_id, member.about) for member in group.soft.members.values())
        return {
            name
            for member_id, about in members
            for name in (member_id, about.client_id, about.instance_id or member_id)
        }
    result = (
        (member.member_id, member.client_id, member.group_instance_id or member.member_id) for member in group.members
    )
    return {name for names in result for name in names}


def validate_move(seconds: float, silent: Iterable[str]) -> frozenset[str]:
    if not isinstance(seconds, int | float):
        raise TypeError(f"the clock cannot be moved by {seconds!r}: expected a number of seconds")
    if not 0 <= seconds <= ADVANCE_MAX_S:
        limits = f"expected 0 to {ADVANCE_MAX_S:.0f}, which is 100 years; time cannot go back"
        raise ValueError(f"the clock cannot be moved by {seconds} s: {limits}")
    if isinstance(silent, str):
        raise TypeError(f"silent={silent!r} is one name: expected a list of member, instance or client ids")
    names = frozenset(silent)
    if invalid := [name for name in names if not isinstance(name, str)]:
        raise TypeError(f"silent names {invalid[0]!r}: expected member, instance or client ids, which are strings")
    return names


def timeout_error(seconds: float) -> TimeoutError:
    return TimeoutError(f"it was not true within {seconds:g} s of the coordinator's time")
