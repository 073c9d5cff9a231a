"""System: a dispatcher and the actors that run on it. Programs that embed the engine begin here.

    async with System.on_loop() as system:              # on the running asyncio or uvloop loop
    with System.on_threads(workers=1) as system:        # on threads of its own
    system = System.simulated(seed=7)                   # in a test: seeded order, virtual time

docs/runtime.md is the guide; ``examples/`` has programs that run.
"""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Any, Self

from ...actors.base import Actor, ActorRef, running_on
from ...actors.engine_ports import Clock
from ...actors.timer.actor import TimerActor
from .alarm import Alarm, WhenRead, without_input
from .clock import SystemClock
from .dispatcher import Dispatcher, LoopDispatcher
from .registry import Registry
from .simulation import Simulation
from .stats import Stats, collect
from .threads import ThreadsDispatcher
from .trace import Hook, Tracer

log = logging.getLogger("callboard.runtime")


class System:
    """Spawns actors, lists them, and stops them in reverse order. Each system has its own registry."""

    def __init__(self, dispatcher: Dispatcher, clock: Clock | None = None) -> None:
        """``clock`` drives ``start_timer``; None means the system clock, or the virtual clock of a simulation."""
        self.dispatcher = dispatcher
        self._alarms: list[Alarm] = []
        self.clock: Clock = clock or (dispatcher.clock if isinstance(dispatcher, Simulation) else SystemClock())

    @classmethod
    def on_loop(cls, loop: asyncio.AbstractEventLoop | None = None, clock: Clock | None = None) -> Self:
        """Actors on an event loop's own thread; None means the running loop."""
        return cls(LoopDispatcher(loop or asyncio.get_running_loop()), clock)

    @classmethod
    def on_threads(cls, workers: int = 1) -> Self:
        """Actors on worker threads. Raises ValueError for less than one."""
        return cls(ThreadsDispatcher(workers))

    @classmethod
    def simulated(cls, seed: int | None = None) -> Self:
        """Actors that run on the caller's thread, and only when the caller runs them; see ``Simulation``."""
        return cls(Simulation(seed))

    @property
    def registry(self) -> Registry:
        """Like ``pykka.ActorRegistry``, but for this system only."""
        return self.dispatcher.registry

    @property
    def ask_timeout_s(self) -> float:
        """Default timeout of ``ask``, in seconds; ``float("inf")`` for none."""
        return self.dispatcher.ask_timeout_s

    @ask_timeout_s.setter
    def ask_timeout_s(self, seconds: float) -> None:
        self.dispatcher.ask_timeout_s = seconds

    def spawn(self, actor_class: type[Actor], *args: Any, **kwargs: Any) -> ActorRef:
        """Start an actor on this system. Its constructor gets the arguments and runs on the caller's thread."""
        with running_on(self.dispatcher):
            ref: ActorRef = actor_class.start(*args, **kwargs)
        return ref

    def start_timer(self, when_read: WhenRead = without_input) -> ActorRef:
        """Start a TimerActor. After ``Schedule(ref, name, due_ms)`` it sends ``Expired((name,))`` to ``ref``.

        ``due_ms`` is a time of ``system.clock.monotonic_ms()``, which is virtual in a simulation.

        ``when_read(callback)`` calls back once all input that is there now is in the mailboxes of actors. It is called
        before ``Expired`` is sent, so that input in time can still move a deadline, however busy the program is.
        """
        alarm = self.dispatcher.new_alarm(self.clock)
        alarm.when_read = when_read
        self._alarms.append(alarm)
        alarm.actor = timer = self.spawn(TimerActor, self.clock, alarm)
        return timer

    def actors(self) -> list[Any]:
        """References to all running actors, oldest first."""
        return self.registry.get_all()

    def stop_all(self, *, block: bool = True, timeout: float | None = None) -> list[Any]:
        """Stop all actors, youngest first; see ``Registry.stop_all``. On a loop: ``await system.stop()``."""
        return self.registry.stop_all(block=block, timeout=timeout)

    async def stop(self) -> list[bool]:
        """Like ``stop_all()``, but awaitable."""
        results: list[bool] = await self.registry.stop_in_order()
        return results

    def halt(self) -> None:
        """Stop like a killed process: no more messages are handled, and pending and later asks fail at once."""
        for alarm in self._alarms:
            alarm.clear()
        self.dispatcher.abandon_all()

    def stats(self) -> Stats:
        """Counts of actors, waiting and handled messages; see ``Stats``. Iterates once over all actors."""
        return collect(self.dispatcher)

    def trace(self, hook: Hook | None) -> None:
        """Call ``hook(Traced(...))`` for every message from now on; None disables tracing."""
        self.dispatcher.trace(None if hook is None else Tracer(hook, self._hook_failed))

    def _hook_failed(self, error: Exception) -> None:
        log.error("tracing is disabled: its hook raised an error", exc_info=error)
        self.dispatcher.trace(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        are_stopped = False
        try:
            self.stop_all()
            are_stopped = True
        finally:  # an actor that does not stop must not block the end of the program
            self.dispatcher.close(wait=are_stopped)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        are_stopped = False
        try:
            await self.stop()
            are_stopped = True
        finally:
            await asyncio.to_thread(self.dispatcher.close, wait=are_stopped)
