"""Players: an actor that notes what it is told, and loops of both kinds to run it on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from callboard.actors.base import DEFERRED, Actor
from callboard.actors.ports import ReplyTo
from callboard.runtime.dispatcher import LoopDispatcher
from callboard.runtime.system import System

PATIENCE_S = 30  # how long a test waits before it says that nothing will come

Body = Callable[[System], Coroutine[Any, Any, None]]


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


Play = Callable[[Body], None]


def play_on(request: pytest.FixtureRequest) -> Play:
    """A fixture for the params asyncio and uvloop: runs a test's body on such a loop, with a system on it."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def run(body: Body) -> None:
        async def main() -> None:
            system = System(LoopDispatcher(asyncio.get_running_loop()))
            await asyncio.wait_for(body(system), PATIENCE_S)

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())

    return run


def keep_the_reply(player: Player) -> object:
    """For ``Call``: the answer comes later, when the test says so."""
    player.kept = player.reply_to
    return DEFERRED


def settle_the_reply(player: Player) -> None:
    assert player.kept is not None
    player.kept.set("at last")
