"""Handlers on worker threads that block until another actor has answered, and the stop of all actors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pykka
import pytest
from actor_system.players import REAL, SIMULATIONS, Player, Say, do, open_system, system_fixture

from callboard.actors.base import ActorRef
from callboard.runtime.engine.registry import StopReply
from callboard.runtime.engine.reply import Reply, WouldDeadlock
from callboard.runtime.engine.simulation import Simulation
from callboard.runtime.engine.system import System
from callboard.runtime.testing.simulation.loop import VirtualLoop

actor_system = system_fixture(*REAL, *SIMULATIONS)

# The blocking calls.
CALLS: dict[str, Callable[[ActorRef], Any]] = {
    "ask": lambda ref: ref.ask(Say("blocking")),
    "get": lambda ref: ref.proxy().name.get(),
    "call": lambda ref: ref.proxy().say(Say("called")).get(),
    "set": lambda ref: setattr(ref.proxy(), "name", "x"),
    "stop": lambda ref: ref.stop(),
}


@pytest.mark.parametrize(
    ("call", "answer"),
    [("ask", "heard blocking"), ("get", ""), ("call", "heard called"), ("set", None), ("stop", True)],
)
def test_blocking_ask_in_handler_works_while_another_worker_is_free(call: str, answer: Any) -> None:
    with open_system("threads-2") as actor_system:
        other, player = actor_system.spawn(Player), actor_system.spawn(Player)
        assert player.ask(do(lambda _: CALLS[call](other))) == answer


def test_blocking_stop_of_all_in_handler_raises_would_deadlock_on_many_threads() -> None:
    with open_system("threads-4") as actor_system:
        player = actor_system.spawn(Player)
        with pytest.raises(WouldDeadlock, match="a blocking wait"):
            player.ask(do(lambda _: actor_system.system.stop_all()))


def test_blocking_ask_in_handler_is_refused_if_no_worker_would_be_left() -> None:
    with open_system("threads-2") as actor_system:
        first, second, third = (actor_system.spawn(Player) for _ in range(3))
        with pytest.raises(WouldDeadlock, match="no other worker is free"):
            first.ask(do(lambda _: second.ask(do(lambda _: third.ask(Say("x"))))))
        assert first.ask(do(lambda _: second.ask(Say("x")))) == "heard x"


def test_actors_that_ask_each_other_raise_would_deadlock_on_many_threads() -> None:
    with open_system("threads-4") as actor_system:
        first, second = actor_system.spawn(Player), actor_system.spawn(Player)
        with pytest.raises(WouldDeadlock, match="for an actor that waits too"):
            first.ask(do(lambda _: second.ask(do(lambda _: first.ask(Say("x"))))))
        assert first.ask(Say("x")) == "heard x"


def test_wait_of_a_worker_ends_with_its_timeout() -> None:
    """A worker whose wait has timed out is free again."""
    with open_system("threads-2") as actor_system:
        other, player = actor_system.spawn(Player), actor_system.spawn(Player)
        with actor_system.paused(other), pytest.raises(pykka.Timeout):
            player.ask(do(lambda _: other.ask(Say("x"), timeout=0.01)))
        assert player.ask(do(lambda _: other.ask(Say("x")))) == "heard x"


def test_stop_all_waits_while_actors_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeout is for each actor: a stop that takes many times as long succeeds while actors stop."""
    system = fifty_players()
    waits = limit_steps(monkeypatch, system, steps=3)
    assert system.stop_all() == [True] * 50
    assert len(waits) >= 50 // 3
    assert system.stats().late_replies == 0


def test_stop_all_with_timeout_ends_although_actors_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    system = fifty_players()
    limit_steps(monkeypatch, system, steps=3)
    with pytest.raises(pykka.Timeout, match="within 20 s"):
        system.stop_all(timeout=20)


def test_stop_all_without_progress_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    system = fifty_players()
    waits = limit_steps(monkeypatch, system, steps=0)
    with pytest.raises(pykka.Timeout):
        system.stop_all()
    assert len(waits) == 1


def fifty_players() -> System:
    system = System.simulated(seed=1)
    for _ in range(50):
        system.spawn(Player)
    simulation_of(system).run()
    return system


def simulation_of(system: System) -> Simulation:
    assert isinstance(system.dispatcher, Simulation)
    return system.dispatcher


def limit_steps(monkeypatch: pytest.MonkeyPatch, system: System, steps: int) -> list[float]:
    """From now on each wait times out after this many steps. Returns the list of the waits' timeouts."""
    simulation, waits = simulation_of(system), list[float]()

    def wait_for(reply: Reply, timeout_s: float) -> None:
        waits.append(timeout_s)
        for _ in range(steps):
            simulation.step()
        if not reply.done():
            raise reply.mark_timed_out(timeout_s)

    monkeypatch.setattr(simulation, "wait_for", wait_for)
    return waits


def test_awaited_stop_reply_waits_while_actors_stop() -> None:
    loop, reply = VirtualLoop(1), StopReply()
    reply.timeout_s = 10.0
    for number in range(1, 6):
        loop.call_later(8.0 * number, reply.results.append, True)
    loop.call_later(45.0, reply.set, reply.results)

    async def wait() -> Any:
        return await reply

    assert loop.run_until_complete(wait()) == [True] * 5


def test_awaited_stop_reply_without_progress_times_out() -> None:
    loop, reply = VirtualLoop(1), StopReply()
    reply.timeout_s = 10.0
    began_s = loop.time()
    loop.call_later(8.0, reply.results.append, True)

    async def wait() -> Any:
        return await reply

    with pytest.raises(pykka.Timeout, match="within 10 s"):
        loop.run_until_complete(wait())
    assert loop.time() - began_s == pytest.approx(20.0)
