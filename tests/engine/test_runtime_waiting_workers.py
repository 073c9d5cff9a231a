"""Handlers on worker threads that block until another actor has answered, and the stop of all actors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pykka
import pytest
from actor_system.players import REAL, SIMULATIONS, Player, Say, SystemHarness, do, open_system, system_fixture

from callboard.actors.base import ActorRef
from callboard.runtime.engine.registry import STOP_ACTOR_S
from callboard.runtime.engine.reply import WouldDeadlock

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


def test_timeout_of_stop_all_grows_with_actors(actor_system: SystemHarness) -> None:
    actor_system.system.ask_timeout_s = 20.0
    for _ in range(50):
        actor_system.spawn(Player)
    stopping = actor_system.system.registry.stop_in_order()
    assert stopping.timeout_s == pytest.approx(20.0 + 50 * STOP_ACTOR_S)
    assert stopping.get() == [True] * 50
