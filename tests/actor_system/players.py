"""Player: an actor that records its messages, and actor systems of every kind to run it on.

A ``SystemHarness`` is a system that a test controls from outside: on an event loop or threads in the background, or the
simulation, which runs while a test waits for a reply. ``play_on`` is for tests that need a coroutine on the loop of the
actors.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop

from callboard.actors.base import DEFERRED, Actor, ActorRef
from callboard.actors.engine_ports import ReplyTo
from callboard.runtime.engine.dispatcher import LoopDispatcher
from callboard.runtime.engine.simulation import Simulation
from callboard.runtime.engine.system import System

WAIT_TIMEOUT_S = 120  # a test that waits longer fails
LOOPS = ("asyncio", "uvloop")
THREADS = ("threads-1", "threads-4")
REAL = (*LOOPS, *THREADS)
SIMULATIONS = ("simulation", "simulation-1", "simulation-2", "simulation-3")  # without a seed, and with three

Body = Callable[[System], Coroutine[Any, Any, None]]
Play = Callable[[Body], None]


class Say(str):
    """A message that is recorded."""

    __slots__ = ()


class Fail(str):
    """A message whose handler has a bug."""

    __slots__ = ()


class Call(tuple[Callable[..., Any]]):
    """A message with a function, which is called with the actor."""

    __slots__ = ()


class Player(Actor):
    """Records its messages in a list of the test."""

    handlers = {Say: "say", Fail: "fail", Call: "call"}

    def __init__(self, received: list[Any] | None = None, name: str = "") -> None:
        super().__init__()
        self.received: list[Any] = received if received is not None else []
        self.name = name
        self.kept: ReplyTo | None = None

    def say(self, message: Say) -> str:
        self.received.append(f"{self.name}{message}")
        return f"heard {message}"

    def fail(self, message: Fail) -> None:
        raise ValueError(str(message))

    def call(self, message: Call) -> Any:
        return message[0](self)

    def on_start(self) -> None:
        self.received.append(f"{self.name}start")

    def on_stop(self) -> None:
        self.received.append(f"{self.name}stop")


def do(function: Callable[..., Any]) -> Call:
    """A message that makes a player call ``function`` with itself."""
    return Call((function,))


def keep_reply(player: Player) -> object:
    """For ``Call``: store the reply_to; the test replies later."""
    player.kept = player.reply_to
    return DEFERRED


def settle_reply(player: Player) -> None:
    assert player.kept is not None
    player.kept.set("at last")


class SystemHarness:
    """A system with helpers that work on every kind of dispatcher."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.spawn = system.spawn

    def is_simulated(self) -> bool:
        return isinstance(self.system.dispatcher, Simulation)

    def until(self, condition: Callable[[], bool]) -> None:
        """Run the actors until ``condition`` is true."""
        deadline_s = time.monotonic() + WAIT_TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline_s, "the condition is not met in time"
            if isinstance(self.system.dispatcher, Simulation):
                assert self.system.dispatcher.step(), "the condition cannot be met: no actor has messages"
            else:
                time.sleep(0.0002)

    def wait_until_handled(self, ref: ActorRef) -> None:
        """Wait until all messages that were sent to ``ref`` so far are handled."""
        ref.ask(do(lambda _: None), timeout=WAIT_TIMEOUT_S)

    @contextmanager
    def paused(self, ref: ActorRef) -> Iterator[None]:
        """Within this block the player handles no messages."""
        if self.is_simulated():  # actors run only while a test waits
            yield
            return
        arrived, go_on = threading.Event(), threading.Event()

        def hold(_: Player) -> None:
            arrived.set()
            go_on.wait(WAIT_TIMEOUT_S)

        ref.tell(do(hold))
        assert arrived.wait(WAIT_TIMEOUT_S)
        try:
            yield
        finally:
            go_on.set()


@contextmanager
def open_system(name: str) -> Iterator[SystemHarness]:
    """Open a system of this kind. At the end its actors are stopped and its threads have ended."""
    kind, _, number = name.partition("-")
    if kind == "threads":
        with System.on_threads(int(number)) as system:
            yield SystemHarness(system)
    elif kind == "simulation":
        with System.simulated(int(number) if number else None) as system:
            yield SystemHarness(system)
    else:
        with loop_in_background(kind) as loop, System.on_loop(loop) as system:
            yield SystemHarness(system)


@contextmanager
def loop_in_background(kind: str) -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop on its own thread."""
    loop = new_loop(kind)
    thread = threading.Thread(target=loop.run_forever, name=f"{kind} of a test")
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def new_loop(kind: str) -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop() if kind == "asyncio" else uvloop.new_event_loop()


@contextmanager
def without_garbage_collector() -> Iterator[None]:
    """Disable the garbage collector, and logging, because pytest keeps each log record with its error."""
    gc.disable()
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()


def system_fixture(*names: str) -> Any:
    """A fixture that runs each test on all of these kinds of systems."""

    @pytest.fixture(params=names)
    def actor_system(request: pytest.FixtureRequest) -> Iterator[SystemHarness]:
        with open_system(request.param) as actor_system:
            yield actor_system

    return actor_system


def play_on(request: pytest.FixtureRequest) -> Play:
    """A fixture for the params asyncio and uvloop: runs a coroutine on such a loop, with a system on it."""

    def run(body: Body) -> None:
        async def main() -> None:
            system = System(LoopDispatcher(asyncio.get_running_loop()))
            await asyncio.wait_for(body(system), WAIT_TIMEOUT_S)

        with asyncio.Runner(loop_factory=lambda: new_loop(request.param)) as runner:
            runner.run(main())

    return run
