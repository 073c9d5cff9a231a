"""System: a dispatcher and the actors that live on it. The door to the runtime for programs that embed it.

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
from .alarm import Alarm
from .clock import SystemClock
from .dispatcher import Dispatcher, LoopDispatcher
from .registry import Registry
from .simulation import Simulation
from .stats import Stats, collect
from .threads import ThreadsDispatcher
from .trace import Hook, Tracer

log = logging.getLogger("callboard.runtime")


class System:
    """Spawns actors, knows them all, stops them in the opposite order. It has a registry of its own."""

    def __init__(self, dispatcher: Dispatcher, clock: Clock | None = None) -> None:
        """``clock`` is what ``start_timer`` goes by; None means the machine's, or a simulation's own."""
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
        """Actors on the caller's thread, when it says so; see ``runtime.simulation``."""
        return cls(Simulation(seed))

    @property
    def registry(self) -> Registry:
        """As ``pykka.ActorRegistry``, for this system alone."""
        return self.dispatcher.registry

    @property
    def ask_timeout_s(self) -> float:
        """How long an answer is waited for where the ask does not say; ``float("inf")`` for ever."""
        return self.dispatcher.ask_timeout_s

    @ask_timeout_s.setter
    def ask_timeout_s(self, seconds: float) -> None:
        self.dispatcher.ask_timeout_s = seconds

    def spawn(self, actor_class: type[Actor], *args: Any, **kwargs: Any) -> ActorRef:
        """Start an actor here. Arguments go to its constructor, on the caller's thread."""
        with running_on(self.dispatcher):
            ref: ActorRef = actor_class.start(*args, **kwargs)
        return ref

    def start_timer(self) -> ActorRef:
        """Start a TimerActor: tell it ``Schedule(ref, name, due_ms)``, and ``ref`` gets ``Expired((name,))``.

        ``due_ms`` is on ``system.clock.monotonic_ms()``, which is virtual in a simulation.
        """
        alarm = self.dispatcher.new_alarm(self.clock)
        self._alarms.append(alarm)
        alarm.actor = timer = self.spawn(TimerActor, self.clock, alarm)
        return timer

    def actors(self) -> list[Any]:
        """References to all that live, oldest first."""
        return self.registry.get_all()

    def stop_all(self, *, block: bool = True, timeout: float | None = None) -> list[Any]:
        """Stop all actors, youngest first; see ``Registry.stop_all``. On a loop: ``await system.stop()``."""
        return self.registry.stop_all(block=block, timeout=timeout)

    async def stop(self) -> list[bool]:
        """The awaitable twin of ``stop_all()``."""
        results: list[bool] = await self.registry.stop_in_order()
        return results

    def halt(self) -> None:
        """End as a process does that is killed: no message is handled any more, and whoever asks is told so at once."""
        for alarm in self._alarms:
            alarm.clear()
        self.dispatcher.abandon_all()

    def stats(self) -> Stats:
        """What lives, what waits, what was done; see ``runtime.stats``. Costs one walk through all actors."""
        return collect(self.dispatcher)

    def trace(self, hook: Hook | None) -> None:
        """Call ``hook(Traced(...))`` for every message from now on; None ends it. See ``runtime.trace``."""
        self.dispatcher.trace(None if hook is None else Tracer(hook, self._hook_failed))

    def _hook_failed(self, error: Exception) -> None:
        log.error("the tracer is off: its hook raised an error", exc_info=error)
        self.dispatcher.trace(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_over = False
        try:
            self.stop_all()
            is_over = True
        finally:  # an actor that does not end must not keep the program from its end
            self.dispatcher.close(wait=is_over)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_over = False
        try:
            await self.stop()
            is_over = True
        finally:
            await asyncio.to_thread(self.dispatcher.close, wait=is_over)
