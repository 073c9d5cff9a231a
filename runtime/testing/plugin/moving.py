"""Moving the clock of a coordinator that runs: from alarm to alarm, with all that follows from each before the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from inspect import isawaitable
from typing import Any, Protocol, TypeVar

from ....actors.group.actor import GroupActor
from ....actors.group.classic import ClassicGroup
from ...node.node import Node
from .clock import MovableClock, MovableDispatcher
from .silence import Presence, Sparing

IDLE_LOOKS = 2
"""So many turns of the loop in a row without anything to run mean that all is done: what an actor sends to itself for
later is in nobody's mailbox for one turn."""

SETTLE_MAX = 1000
"""Looks at a coordinator that is asked all the time and never has nothing to do; then time goes on all the same."""

UNTIL_S = 30 * 24 * 3600.0
"""How far ``advance_until`` goes unless it is told."""

ADVANCE_MAX_S = 100 * 365 * 24 * 3600.0
"""More is a slip, and would take the machine for ever: there is an alarm every ten minutes."""

NAMES_SHOWN = 20

T = TypeVar("T")
Blocking = Callable[[Coroutine[Any, Any, T]], T]
Predicate = Callable[[], object]


class Moved(Protocol):
    """What a moving clock needs to know of its coordinator."""

    clock: MovableClock
    presence: Presence

    @property
    def node(self) -> Node: ...

    def note_move(self, moved_ms: int, silent: Iterable[str]) -> None:
        """Time was skipped."""


class Mover:
    """One coordinator's time, on its loop."""

    def __init__(self, moved: Moved) -> None:
        self._moved = moved
        self._clock = moved.clock
        self._lock = asyncio.Lock()

    async def advance(self, seconds: float, silent: Iterable[str]) -> None:
        async with self.moving(seconds, silent) as move:
            while await self.step(move):
                pass

    @asynccontextmanager
    async def moving(self, seconds: float, silent: Iterable[str]) -> AsyncIterator[Move]:
        """The clock stands still meanwhile, but for the steps."""
        names = checked(seconds, silent)
        if _LOOKS.get() is self:
            raise RuntimeError("the clock is moved already, by the advance_until whose predicate moves it again")
        self._refuse_strangers(names)
        async with self._lock:
            self._clock.hold()
            began_ms = self._clock.monotonic_ms()
            try:
                await self.settle()
                yield Move(began_ms + round(seconds * 1000), Sparing(self._moved.presence, names))
            finally:
                moved_ms = self._clock.monotonic_ms() - began_ms
                self._clock.release()
                self._moved.note_move(moved_ms, names)

    def _refuse_strangers(self, names: frozenset[str]) -> None:
        """A name that is misspelt would silence nobody, and the test would wait for ever."""
        known = self._moved.presence.names.union(*map(names_of, groups(self._moved.node)))
        if strangers := sorted(names - known):
            said = ", ".join(sorted(known)[:NAMES_SHOWN]) or "nobody"
            raise ValueError(
                f"silent={strangers}: nobody of that name has spoken to the coordinator; it has heard {said}"
            )

    async def step(self, move: Move) -> bool:
        """To the next alarm, or to the end: then it returns False."""
        now_ms = self._clock.monotonic_ms()
        for group in groups(self._moved.node):
            move.sparing.spare(group, move.target_ms - now_ms)
        due_ms = self._clock.next_due_ms()
        if due_ms is None or due_ms > move.target_ms:
            self._clock.move_to(move.target_ms)
            return False
        self._clock.move_to(due_ms)
        self._clock.ring_what_is_due()
        await self.settle()
        return True

    async def looks(self, predicate: Callable[[], object | Awaitable[object]]) -> bool:
        """Whether it is so. The predicate must not move the clock."""
        token = _LOOKS.set(self)
        try:
            found = predicate()
            return bool(await found if isawaitable(found) else found)
        finally:
            _LOOKS.reset(token)

    async def settle(self) -> None:
        """Until all actors have done what they had to do, and all of it is durable."""
        node = self._moved.node
        dispatcher = node.system.dispatcher
        assert isinstance(dispatcher, MovableDispatcher), "a coordinator whose clock moves has such a dispatcher"
        await self._idle(dispatcher)
        for _ in range(SETTLE_MAX):
            if not node.is_writing:
                return
            await node.drain()
            await self._idle(dispatcher)

    async def _idle(self, dispatcher: MovableDispatcher) -> None:
        looks = 0
        for _ in range(SETTLE_MAX):
            await asyncio.sleep(0)
            looks = looks + 1 if dispatcher.is_idle else 0
            if looks == IDLE_LOOKS:
                return


_LOOKS: ContextVar[Mover | None] = ContextVar("_LOOKS", default=None)
"""Whose ``advance_until`` asks its predicate here. A context goes along to the thread that a predicate runs on."""


class Move:
    """Where to, and who is spared."""

    def __init__(self, target_ms: int, sparing: Sparing) -> None:
        self.target_ms = target_ms
        self.sparing = sparing


class VirtualTime:
    """A coordinator's clock, for a test on its loop."""

    def __init__(self, moved: Moved) -> None:
        self._mover = Mover(moved)
        self._clock = moved.clock

    def now(self) -> float:
        """Seconds of the coordinator's time since it was made; the timeline shows the same."""
        return self._clock.since_start_ms() / 1000

    async def advance(self, seconds: float, *, silent: Iterable[str] = ()) -> None:
        """Let so much time pass in the coordinator: all that becomes due happens, in its order, before this returns.

        Members that are there count as alive meanwhile, but for those whose member id, instance id or client id is in
        ``silent``. ValueError for a time below 0 or above 100 years, and for a name that nobody has.
        """
        await self._mover.advance(seconds, silent)

    async def advance_until(
        self,
        predicate: Callable[[], object | Awaitable[object]],
        *,
        within: float = UNTIL_S,
        silent: Iterable[str] = (),
    ) -> float:
        """From alarm to alarm until ``predicate()`` is true, however long that is; the seconds that it took.

        TimeoutError when it is not true ``within`` so many seconds.
        """
        began = self.now()
        async with self._mover.moving(within, silent) as move:
            goes_on = True
            while not await self._mover.looks(predicate):
                if not goes_on:
                    raise not_within(within)
                goes_on = await self._mover.step(move)
        return self.now() - began


class BlockingTime:
    """The same for a test on another thread than the coordinator's."""

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
        """See ``VirtualTime.advance_until``. ``predicate`` is called on a thread of its own, and may block."""

        async def beside() -> bool:
            return bool(await asyncio.to_thread(predicate))

        took: float = self._run(self._time.advance_until(beside, within=within, silent=silent))
        return took


def groups(node: Node) -> Iterator[ClassicGroup]:
    """The groups in memory. Whoever looks is on the loop's thread, so they hold still."""
    for ref in node.groups.groups.values():
        actor = ref.actor_inbox.actor
        if isinstance(actor, GroupActor):
            yield actor._group


def names_of(group: ClassicGroup) -> set[str]:
    """All by which its members may be called silent."""
    found = ((one.member_id, one.client_id, one.group_instance_id or one.member_id) for one in group.members)
    return {name for names in found for name in names}


def checked(seconds: float, silent: Iterable[str]) -> frozenset[str]:
    if not isinstance(seconds, int | float):
        raise TypeError(f"the clock cannot be moved by {seconds!r}: expected a number of seconds")
    if not 0 <= seconds <= ADVANCE_MAX_S:
        limits = f"expected 0 to {ADVANCE_MAX_S:.0f}, which is 100 years; time does not go back"
        raise ValueError(f"the clock cannot be moved by {seconds} s: {limits}")
    if isinstance(silent, str):
        raise TypeError(f"silent={silent!r} is one name: expected a list of member, instance or client ids")
    names = frozenset(silent)
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise TypeError(f"silent names {wrong[0]!r}: expected member, instance or client ids, which are strings")
    return names


def not_within(seconds: float) -> TimeoutError:
    return TimeoutError(f"it was not so within {seconds:g} s of the coordinator's time")
