"""The end of actors, dispatchers and the program, on every dispatcher: in order, and with all requests settled."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

import pykka
import pytest
from actor_system.players import (
    LOOPS,
    REAL,
    SIMULATIONS,
    THREADS,
    WAIT_TIMEOUT_S,
    Call,
    Fail,
    Player,
    Say,
    SystemHarness,
    do,
    loop_in_background,
    new_loop,
    system_fixture,
)
from actor_system.ports import RecordedReply

from callboard.actors.base import ActorRef, Envelope
from callboard.runtime.engine.simulation import Simulation
from callboard.runtime.engine.system import System
from callboard.runtime.engine.threads import ThreadsDispatcher

actor_system = system_fixture(*REAL, *SIMULATIONS)
real_system = system_fixture(*REAL)
threads_system = system_fixture(*THREADS)
loop_system = system_fixture(*LOOPS)


# One actor -----------------------------------------------------------------------------------------------------------


def test_stop_handles_earlier_messages_and_rejects_later_ones(actor_system: SystemHarness) -> None:
    received: list[Any] = []
    player = actor_system.spawn(Player, received)
    with actor_system.paused(player):
        before = player.ask(Say("before"), block=False)
        stopped, again = player.stop(block=False), player.stop(block=False)
        after = player.ask(Say("after"), block=False)
    assert before.get() == "heard before"
    assert (stopped.get(), again.get()) == (True, True)
    with pytest.raises(pykka.ActorDeadError):
        after.get()
    assert received == ["start", "before", "stop"]
    assert actor_system.system.actors() == []


def test_ask_of_stopped_actor_fails_at_once(actor_system: SystemHarness) -> None:
    """The request is refused before the call returns, with the error text of pykka."""
    player = actor_system.spawn(Player)
    assert player.stop() is True
    assert not player.is_alive()
    late = player.ask(Say("late"), block=False)
    assert late.done()
    for call in (late.get, lambda: player.ask(Say("late")), lambda: player.tell(Say("late")), player.proxy):
        with pytest.raises(pykka.ActorDeadError) as raised:
            call()
        assert str(raised.value) == f"{player} not found"
    reply = RecordedReply()
    player.post(Say("late"), reply)
    assert [str(error) for error in reply.errors] == [f"{player} not found"]


def test_stop_of_stopped_actor_returns_false(actor_system: SystemHarness) -> None:
    player = actor_system.spawn(Player)
    assert player.stop() is True
    assert player.stop() is False
    assert player.stop(block=False).get() is False
    assert actor_system.system.stop_all() == []
    assert actor_system.system.stop_all(block=False) == []


def test_actor_stops_itself_after_earlier_messages(actor_system: SystemHarness) -> None:
    """Messages sent before the stop are handled before it."""
    received: list[Any] = []
    player = actor_system.spawn(Player, received)

    def stop_twice(actor: Player) -> None:
        actor.actor_ref.tell(Say("to myself"))
        actor.stop()
        actor.stop()

    player.tell(do(stop_twice))
    actor_system.until(lambda: "stop" in received)
    assert received == ["start", "to myself", "stop"]
    assert player.actor_stopped.wait(WAIT_TIMEOUT_S)


class StopsInStart(Player):
    def on_start(self) -> None:
        self.stop()


class FailsInStart(Player):
    def on_start(self) -> None:
        raise ValueError("error in on_start")


class FailsInStop(Player):
    def on_stop(self) -> None:
        raise ValueError("error in on_stop")


class FailsInFailure(Player):
    def on_failure(self, *_: Any) -> None:
        raise ValueError("error in on_failure")


@pytest.mark.parametrize(
    ("kind", "expected_text"),
    [
        (StopsInStart, ""),
        (FailsInStart, "error in on_start"),
        (FailsInStop, "error in on_stop"),
        (FailsInFailure, "error in on_failure"),
    ],
)
def test_error_in_on_start_or_on_stop_affects_only_that_actor(
    actor_system: SystemHarness, kind: type[Player], expected_text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The actor is stopped and unregistered, the log has the cause, waiting requests fail, other actors go on."""
    bad, healthy = actor_system.spawn(kind), actor_system.spawn(Player)
    with caplog.at_level(logging.ERROR, "pykka"):
        if kind is FailsInFailure:
            bad.tell(Fail("first"))
        waiting = bad.stop(block=False)
        later = bad.ask(Say("x"), block=False)
        assert waiting.get() in (True, False), "the actor may have stopped already"
        with pytest.raises(pykka.ActorDeadError):
            later.get()
    assert expected_text in caplog.text
    assert not bad.is_alive()
    assert healthy.ask(Say("x")) == "heard x"
    assert actor_system.system.actors() == [healthy]


# All -----------------------------------------------------------------------------------------------------------------


def test_stop_all_stops_youngest_actor_first(actor_system: SystemHarness) -> None:
    """They stop one after the other, so an actor may use older ones until it has stopped."""
    received: list[Any] = []
    for number in range(50):
        actor_system.wait_until_handled(actor_system.spawn(Player, received, f"{number} "))
    received.clear()
    assert actor_system.system.stop_all() == [True] * 50
    assert received == [f"{number} stop" for number in reversed(range(50))]
    assert actor_system.system.actors() == []


def test_stop_all_without_block_returns_futures(actor_system: SystemHarness) -> None:
    for _ in range(3):
        actor_system.spawn(Player)
    replies = actor_system.system.stop_all(block=False)
    assert [reply.get() for reply in replies] == [True, True, True]
    assert actor_system.system.actors() == []


def test_stop_all_with_stuck_actor_raises_timeout_in_time(real_system: SystemHarness) -> None:
    """The timeout covers all actors together; an actor that does not stop in time is not waited for."""
    busy = real_system.spawn(Player)
    real_system.spawn(Player)
    with real_system.paused(busy), pytest.raises(pykka.Timeout, match=r"within 0\.05 s"):
        real_system.system.stop_all(timeout=0.05)
    real_system.until(lambda: real_system.system.actors() == [])


def test_stop_all_of_many_actors_does_not_recurse(actor_system: SystemHarness) -> None:
    """The depth of the stack does not grow with the number of actors."""
    refs = [actor_system.spawn(Player) for _ in range(2 * sys.getrecursionlimit())]
    assert actor_system.system.stop_all() == [True] * len(refs)
    assert not any(ref.is_alive() for ref in refs)


def test_stop_all_stops_registered_pykka_actors(actor_system: SystemHarness) -> None:
    """Actors of pykka may be registered, as in pykka's own registry."""

    class PykkaActor(pykka.ThreadingActor):
        pass

    player, pykka_actor = actor_system.spawn(Player), PykkaActor.start()
    actor_system.system.registry.register(pykka_actor)  # type: ignore[arg-type]
    assert actor_system.system.stop_all() == [True, True]
    assert not player.is_alive()
    assert not pykka_actor.is_alive()
    actor_system.system.registry.unregister(pykka_actor)  # type: ignore[arg-type]
    assert actor_system.system.actors() == []


def test_registry_lists_only_actors_of_its_system(actor_system: SystemHarness) -> None:
    """Pykka's registry does not list them, so ``ActorRegistry.stop_all()`` of a host program does not stop them."""
    with System.simulated() as other:
        first, second = actor_system.spawn(Player), actor_system.spawn(Player)
        foreign = other.spawn(Player)
        assert actor_system.system.actors() == [first, second]
        assert other.actors() == [foreign]
        assert pykka.ActorRegistry.get_all() == []
        assert pykka.ActorRegistry.stop_all() == []
        assert actor_system.system.stop_all() == [True, True]
        assert foreign.is_alive()


# SystemExit and KeyboardInterrupt ------------------------------------------------------------------------------------


def raising(kind: type[BaseException]) -> Callable[[Player], None]:
    def turn(_: Player) -> None:
        raise kind("exit")

    return turn


class ExitsInStart(Player):
    def on_start(self) -> None:
        raise SystemExit("exit")


class ExitsInStop(Player):
    def on_stop(self) -> None:
        self.received.append("stop")
        raise SystemExit("exit")


class ExitsInFailure(Player):
    def on_failure(self, *_: Any) -> None:
        raise SystemExit("exit")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_system_exit_in_handler_on_threads_stops_all_actors(
    threads_system: SystemHarness, kind: type[BaseException]
) -> None:
    """As in pykka, all actors are stopped and the request fails. The workers go on and run new actors."""
    received: list[Any] = []
    others = [threads_system.spawn(Player, received) for _ in range(3)]
    for other in others:
        threads_system.wait_until_handled(other)
    leaving = threads_system.spawn(Player)
    with pytest.raises(pykka.ActorDeadError, match="was stopped by"):
        leaving.ask(do(raising(kind)))
    threads_system.until(lambda: threads_system.system.actors() == [])
    assert received == ["start"] * 3 + ["stop"] * 3
    assert threads_system.spawn(Player).ask(Say("later")) == "heard later"


@pytest.mark.parametrize("kind", [ExitsInStart, ExitsInStop, ExitsInFailure])
def test_system_exit_in_any_hook_on_threads_stops_all_actors(threads_system: SystemHarness, kind: type[Player]) -> None:
    """``on_start``, ``on_stop`` and ``on_failure`` may raise it too; the worker goes on."""
    received: list[Any] = []
    other, leaving = threads_system.spawn(Player), threads_system.spawn(kind, received)
    leaving.actor_inbox.put(Envelope(Fail("x") if kind is ExitsInFailure else Say("x")))
    later = leaving.stop(block=False)
    assert isinstance(later.get(), bool)
    threads_system.until(lambda: threads_system.system.actors() == [])
    assert not other.is_alive()
    assert received.count("stop") <= 1, "on_stop runs at most once"
    assert threads_system.spawn(Player).ask(Say("later")) == "heard later"


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_system_exit_in_simulation_is_raised_by_step(seed: int | None) -> None:
    system = System.simulated(seed)
    leaving, other = system.spawn(Player), system.spawn(Player)
    failed, later = leaving.ask(do(raising(KeyboardInterrupt)), block=False), leaving.ask(Say("x"), block=False)
    with pytest.raises(KeyboardInterrupt):
        while system.dispatcher.step():  # type: ignore[attr-defined]
            pass
    with pytest.raises(pykka.ActorDeadError, match="was stopped by"):
        failed.get()
    with pytest.raises(pykka.ActorDeadError):
        later.get()
    system.dispatcher.run()  # type: ignore[attr-defined]
    assert not other.is_alive()


@pytest.mark.parametrize("kind", [ExitsInStart, ExitsInStop, ExitsInFailure])
def test_system_exit_in_any_hook_in_simulation_stops_all_actors(kind: type[Player]) -> None:
    """Waiting requests are settled and the other actors are stopped."""
    system = System.simulated()
    leaving, other = system.spawn(kind), system.spawn(Player)
    leaving.tell(Fail("x") if kind is ExitsInFailure else Say("x"))
    waiting = [leaving.stop(block=False), leaving.ask(Say("x"), block=False)]
    dispatcher = system.dispatcher
    assert isinstance(dispatcher, Simulation)
    with pytest.raises(SystemExit):
        dispatcher.run()
    dispatcher.run()
    assert all(reply.done() for reply in waiting)
    assert (leaving.is_alive(), other.is_alive(), system.actors()) == (False, False, [])


@pytest.mark.parametrize("loop_kind", LOOPS)
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_system_exit_on_loop_is_raised_by_run_until_complete(loop_kind: str, kind: type[BaseException]) -> None:
    """The loop raises it, as if the handler had been a callback, and all actors are stopped."""
    loop = new_loop(loop_kind)
    received: list[Any] = []
    system = System.on_loop(loop)
    other, leaving = system.spawn(Player, received), system.spawn(Player)
    reply = leaving.ask(do(raising(kind)), block=False)
    try:
        with pytest.raises(kind, match="exit"):
            loop.run_forever()
        loop.run_until_complete(system.stop())
        assert received == ["start", "stop"]
        assert not other.is_alive()
        with pytest.raises(pykka.ActorDeadError, match="was stopped by"):
            reply.get()
    finally:
        loop.close()


class StartsActorInStop(Player):
    started: ActorRef | None = None

    def on_stop(self) -> None:
        type(self).started = Player.start()


def test_actor_started_after_system_exit_runs(threads_system: SystemHarness) -> None:
    """An actor started by ``on_stop`` of the one that exits still runs."""
    other, leaving = threads_system.spawn(Player), threads_system.spawn(StartsActorInStop)
    with pytest.raises(pykka.ActorDeadError, match="was stopped by"):
        leaving.ask(do(raising(SystemExit)))
    threads_system.until(lambda: not other.is_alive())
    started = StartsActorInStop.started
    assert started is not None
    assert started.ask(Say("x")) == "heard x"


class OtherBaseException(BaseException):
    """Neither an Exception nor one that ends the program."""


def test_base_exception_on_loop_stops_all_actors_and_is_not_raised(loop_system: SystemHarness) -> None:
    """As in pykka, all actors are stopped; the loop's exception handler is not called."""
    loop, contexts = loop_system.system.dispatcher.loop, list[Any]()  # type: ignore[attr-defined]
    loop.set_exception_handler(lambda _, context: contexts.append(context))
    other, leaving = loop_system.spawn(Player), loop_system.spawn(Player)
    with pytest.raises(pykka.ActorDeadError, match="was stopped by OtherBaseException"):
        leaving.ask(do(raising(OtherBaseException)))
    loop_system.until(lambda: loop_system.system.actors() == [])
    assert not other.is_alive()
    assert loop_system.spawn(Player).ask(Say("later")) == "heard later"
    assert contexts == []


# The end of the dispatcher -------------------------------------------------------------------------------------------


def test_closed_threads_system_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with System.on_threads(3) as system:
        timer = system.start_timer()
        assert len(set(threading.enumerate()) - before) == 4, "three workers and the alarm thread"
        assert timer.is_alive()
    assert set(threading.enumerate()) == before


def test_threads_system_with_no_worker_is_refused() -> None:
    with pytest.raises(ValueError, match="workers is 0; expected at least 1 thread"):
        System.on_threads(0)


def assert_asks_fail_at_once(started: ActorRef, spawn: Callable[[], ActorRef]) -> None:
    """After the dispatcher has ended, requests to old and new actors fail without the ask timeout."""
    reply = started.ask(Say("x"), block=False)
    assert reply.done()
    with pytest.raises(pykka.ActorDeadError):
        reply.get()
    with pytest.raises(pykka.ActorDeadError):
        started.tell(Say("x"))
    new = spawn()
    assert new.ask(Say("x"), block=False).done()
    assert not started.is_alive()
    assert not new.is_alive()


@pytest.mark.parametrize("workers", [1, 4])
def test_ask_after_threads_closed_raises_actor_dead_error(workers: int) -> None:
    system = System.on_threads(workers)
    started, unused = system.spawn(Player), system.spawn(Player)
    started.ask(Say("x"))
    dispatcher = system.dispatcher
    assert isinstance(dispatcher, ThreadsDispatcher)
    dispatcher.close()
    assert system.actors() == []
    assert unused.stop() is False
    assert_asks_fail_at_once(started, lambda: system.spawn(Player))
    assert system.stop_all() == []


@pytest.mark.parametrize("loop_kind", LOOPS)
def test_ask_after_loop_closed_raises_actor_dead_error(loop_kind: str) -> None:
    with loop_in_background(loop_kind) as loop:
        system = System.on_loop(loop)
        started, other = system.spawn(Player), system.spawn(Player)
        started.ask(Say("x"))
        other.ask(Say("x"))
    assert_asks_fail_at_once(started, lambda: system.spawn(Player))
    assert system.stop_all() == []
    assert not other.is_alive()


def test_system_as_async_context_manager_stops_actors() -> None:
    async def main() -> tuple[ActorRef, ActorRef]:
        async with System.on_loop() as system:
            first, second = system.spawn(Player), system.spawn(Player)
            assert await first.ask(Say("x"), block=False) == "heard x"
        return first, second

    assert [ref.is_alive() for ref in asyncio.run(main())] == [False, False]


def test_context_manager_ends_although_handler_hangs() -> None:
    """The stop raises a timeout; the blocked thread is not waited for."""
    released = threading.Event()
    with pytest.raises(pykka.Timeout), System.on_threads() as system:
        system.ask_timeout_s = 0.05
        system.spawn(Player).tell(Call((lambda _: released.wait(WAIT_TIMEOUT_S),)))
    released.set()
