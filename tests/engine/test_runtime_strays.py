"""Rare cases: actors started during a stop, second stops, pykka's actors, failing callbacks, cancelled tasks."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pykka
import pytest
from actor_system.players import (
    LOOPS,
    REAL,
    SIMULATIONS,
    Play,
    Player,
    Say,
    SystemHarness,
    do,
    play_on,
    system_fixture,
)

from callboard.actors.base import Supervision
from callboard.runtime.engine.registry import STOP_ROUNDS
from callboard.runtime.engine.reply import Reply
from callboard.runtime.engine.system import System

actor_system = system_fixture(*REAL, *SIMULATIONS)
play = pytest.fixture(params=LOOPS)(play_on)


class Parent(Player):
    """Spawns a child in on_start, in on_stop and on request, down to ``generations`` levels."""

    def __init__(self, received: list[Any], generations: int) -> None:
        super().__init__(received)
        self.generations = generations

    def on_start(self) -> None:
        super().on_start()
        self.spawn_child()

    def on_stop(self) -> None:
        super().on_stop()
        self.spawn_child()

    def spawn_child(self) -> None:
        if self.generations:
            self.spawn(Parent, self.received, self.generations - 1)


def test_stop_all_stops_actors_started_meanwhile(actor_system: SystemHarness) -> None:
    received: list[Any] = []
    parent = actor_system.spawn(Parent, received, 2)
    parent.tell(do(Parent.spawn_child))
    results = actor_system.system.stop_all()
    assert actor_system.system.actors() == []
    assert (received.count("start"), received.count("stop")) == (10, 10)
    assert results == [True] * 10


def test_stop_on_loop_waits_for_actors_started_meanwhile(play: Play) -> None:
    received: list[Any] = []

    async def body(system: System) -> None:
        system.spawn(Parent, received, 2)
        await system.stop()
        assert system.actors() == []

    play(body)
    assert (received.count("start"), received.count("stop")) == (7, 7)


def test_stop_all_ends_although_actors_start_for_ever(actor_system: SystemHarness) -> None:
    received: list[Any] = []

    class StartsActorInStop(Player):
        def on_stop(self) -> None:
            super().on_stop()
            if len(received) < 100 * STOP_ROUNDS:
                self.spawn(StartsActorInStop, received)

    actor_system.spawn(StartsActorInStop, received)
    assert len(actor_system.system.stop_all()) == STOP_ROUNDS
    received.extend("end" for _ in range(100 * STOP_ROUNDS))


def test_awaited_stop_stops_registered_pykka_actors(play: Play) -> None:
    """They have threads of their own, so they are stopped without waiting."""

    class PykkaActor(pykka.ThreadingActor):
        pass

    async def body(system: System) -> None:
        player, pykka_actor = system.spawn(Player), PykkaActor.start()
        system.registry.register(pykka_actor)  # type: ignore[arg-type]
        assert await system.stop() == [True, True]
        assert not player.is_alive()
        assert system.actors() == []
        await asyncio.to_thread(pykka_actor.actor_stopped.wait, 30)
        assert not pykka_actor.is_alive()

    play(body)


def test_second_stop_is_not_a_dead_letter(actor_system: SystemHarness, caplog: pytest.LogCaptureFixture) -> None:
    def stop_twice(player: Player) -> None:
        player.stop()
        player.stop()

    player = actor_system.spawn(Player)
    with caplog.at_level(logging.WARNING, "callboard.runtime"):
        player.ask(do(stop_twice))
        actor_system.until(lambda: actor_system.system.actors() == [])
        player.stop()
    assert actor_system.system.stats().dead_letters == 0
    assert caplog.text == ""


# A cancelled task ----------------------------------------------------------------------------------------------------


class Supervised(Player):
    supervision = Supervision()


def raise_cancelled_error(_: Player) -> None:
    raise asyncio.CancelledError("of a task")


def test_cancelled_error_in_handler_stops_only_that_actor(actor_system: SystemHarness) -> None:
    """The caller, which was not cancelled itself, gets a RuntimeError. Other actors are not affected."""
    player, other = actor_system.spawn(Player), actor_system.spawn(Player)
    with pytest.raises(RuntimeError, match=r"a handler of Player.* raised CancelledError\('of a task'\)"):
        player.ask(do(raise_cancelled_error))
    assert player.ask(Say("x")) == "heard x"
    player.tell(do(raise_cancelled_error))
    actor_system.until(lambda: not player.is_alive())
    assert other.ask(Say("y")) == "heard y"


def test_cancelled_error_restarts_supervised_actor(actor_system: SystemHarness) -> None:
    received: list[Any] = []
    player = actor_system.spawn(Supervised, received)
    player.tell(do(raise_cancelled_error))
    assert player.ask(Say("x")) == "heard x"
    assert received == ["start", "start", "x"]


def test_cancelled_task_read_by_actor_on_loop_stops_only_that_actor(play: Play) -> None:
    async def body(system: System) -> None:
        player, other = system.spawn(Player), system.spawn(Player)
        task = asyncio.create_task(asyncio.sleep(3600))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        with pytest.raises(RuntimeError, match="CancelledError"):
            await player.ask(do(lambda _: task.result()), block=False)
        assert await other.ask(Say("x"), block=False) == "heard x"

    play(body)


def test_cancelled_error_in_on_start_stops_only_that_actor(actor_system: SystemHarness) -> None:
    class BadStart(Player):
        def on_start(self) -> None:
            raise asyncio.CancelledError("of a task")

    other = actor_system.spawn(Player)
    actor_system.wait_until_handled(other)
    reply = actor_system.spawn(BadStart).ask(Say("x"), block=False)
    if actor_system.is_simulated():
        with pytest.raises(asyncio.CancelledError):
            actor_system.until(reply.done)
    with pytest.raises(pykka.ActorDeadError):
        reply.get()
    assert other.ask(Say("x")) == "heard x"


# Callbacks and conversions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError, GeneratorExit])
def test_base_exception_in_callback_does_not_harm_actor(
    actor_system: SystemHarness, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Reply) -> None:
        raise kind("in the callback")

    player, other = actor_system.spawn(Player), actor_system.spawn(Player)
    with actor_system.paused(player):
        reply = player.ask(Say("x"), block=False)
        reply.on_done(fail)
    assert reply.get() == "heard x"
    assert player.ask(Say("y")) == "heard y"
    assert other.ask(Say("z")) == "heard z"
    assert "in the callback" in caplog.text


def test_system_exit_in_callback_stops_all_actors() -> None:
    def exit_program(_: Reply) -> None:
        raise SystemExit("enough")

    reply = Reply()
    reply.on_done(exit_program)
    with pytest.raises(SystemExit):
        reply.set(1)


def test_long_chain_of_conversions_does_not_recurse() -> None:
    """Callbacks within the chain are called in its order."""
    received: list[int] = []
    last = first = Reply()
    for number in range(2000):
        last = last.converted(lambda error: error)
        if number % 1000 == 0:
            last.on_done(lambda _, number=number: received.append(number))  # type: ignore[misc]
    first.set_exception((ValueError, ValueError("x"), None))
    assert last.done()
    assert last.get() is None, "the first conversion turned the error into a value"
    assert received == [0, 1000]


@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError])
def test_error_in_conversion_is_its_result(kind: type[BaseException]) -> None:
    def fail(_: BaseException | None) -> None:
        raise kind("in the conversion")

    reply = Reply()
    derived = reply.converted(fail)
    set_before = reply.converted(lambda _: "converted")
    set_before.set("set")
    reply.set(1)
    with pytest.raises(kind, match="in the conversion"):
        derived.get()
    assert set_before.get() == "set"
