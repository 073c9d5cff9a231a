"""Players: an actor that notes what it is told, and stages of every kind for it to play on.

A ``Stage`` is a system that a test drives from outside, whatever runs the actors: a loop or threads in the background,
or the simulation, which runs when somebody waits for an answer. ``play_on`` is for what only a coroutine on the actors'
own loop can try.
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

PATIENCE_S = 120  # how long a test waits before it says that nothing will come
LOOPS = ("asyncio", "uvloop")
THREADS = ("threads-1", "threads-4")
REAL = (*LOOPS, *THREADS)
SIMULATIONS = ("simulation", "simulation-1", "simulation-2", "simulation-3")  # without a seed, and with three

Body = Callable[[System], Coroutine[Any, Any, None]]
Play = Callable[[Body], None]


class Say(str):
    """A message that is noted."""

    __slots__ = ()


class Fail(str):
    """A message whose handler has a bug."""

    __slots__ = ()


class Call(tuple[Callable[..., Any]]):
    """A message that brings what to do along: it is called with the actor."""

    __slots__ = ()


class Player(Actor):
    """Notes what it is told in a list that the test holds."""

    handlers = {Say: "say", Fail: "fail", Call: "call"}

    def __init__(self, heard: list[Any] | None = None, name: str = "") -> None:
        super().__init__()
        self.heard: list[Any] = heard if heard is not None else []
        self.name = name
        self.kept: ReplyTo | None = None

    def say(self, message: Say) -> str:
        self.heard.append(f"{self.name}{message}")
        return f"heard {message}"

    def fail(self, message: Fail) -> None:
        raise ValueError(str(message))

    def call(self, message: Call) -> Any:
        return message[0](self)

    def on_start(self) -> None:
        self.heard.append(f"{self.name}start")

    def on_stop(self) -> None:
        self.heard.append(f"{self.name}stop")


def do(what: Callable[..., Any]) -> Call:
    """A message that makes a player call ``what`` with itself."""
    return Call((what,))


def keep_the_reply(player: Player) -> object:
    """For ``Call``: the answer comes later, when the test says so."""
    player.kept = player.reply_to
    return DEFERRED


def settle_the_reply(player: Player) -> None:
    assert player.kept is not None
    player.kept.set("at last")


class Stage:
    """A system, and what a test needs to know of what runs it."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.spawn = system.spawn

    def is_simulated(self) -> bool:
        return isinstance(self.system.dispatcher, Simulation)

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the actors work until ``condition`` holds."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline_s, "what the test waits for does not come"
            if isinstance(self.system.dispatcher, Simulation):
                assert self.system.dispatcher.step(), "what the test waits for will not come: nothing is left to run"
            else:
                time.sleep(0.0002)

    def is_heard(self, ref: ActorRef) -> None:
        """Until all that was sent to ``ref`` so far is handled."""
        ref.ask(do(lambda _: None), timeout=PATIENCE_S)

    @contextmanager
    def held(self, ref: ActorRef) -> Iterator[None]:
        """In this block the player handles nothing: what is sent to it waits."""
        if self.is_simulated():  # nobody does anything until somebody waits
            yield
            return
        arrived, go_on = threading.Event(), threading.Event()

        def hold(_: Player) -> None:
            arrived.set()
            go_on.wait(PATIENCE_S)

        ref.tell(do(hold))
        assert arrived.wait(PATIENCE_S)
        try:
            yield
        finally:
            go_on.set()


@contextmanager
def stage_on(name: str) -> Iterator[Stage]:
    """A stage of this kind; at the end its actors are stopped and its threads are gone."""
    kind, _, number = name.partition("-")
    if kind == "threads":
        with System.on_threads(int(number)) as system:
            yield Stage(system)
    elif kind == "simulation":
        with System.simulated(int(number) if number else None) as system:
            yield Stage(system)
    else:
        with loop_in_background(kind) as loop, System.on_loop(loop) as system:
            yield Stage(system)


@contextmanager
def loop_in_background(kind: str) -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs on a thread of its own."""
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
def no_garbage_collector() -> Iterator[None]:
    """What goes in this block goes by itself. Nothing is logged, since pytest keeps each record with its error."""
    gc.collect()
    gc.disable()
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()


def stage_fixture(*names: str) -> Any:
    """A fixture: each test that asks for it is played on all these stages."""

    @pytest.fixture(params=names)
    def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
        with stage_on(request.param) as stage:
            yield stage

    return stage


def play_on(request: pytest.FixtureRequest) -> Play:
    """A fixture for the params asyncio and uvloop: runs a coroutine on such a loop, with a system on it."""

    def run(body: Body) -> None:
        async def main() -> None:
            system = System(LoopDispatcher(asyncio.get_running_loop()))
            await asyncio.wait_for(body(system), PATIENCE_S)

        with asyncio.Runner(loop_factory=lambda: new_loop(request.param)) as runner:
            runner.run(main())

    return run
