"""How actors end, on every dispatcher: in order, with everybody told, and without harm to others."""

from __future__ import annotations

import asyncio
import logging
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
threads_stage = system_fixture(*THREADS)
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
    """Nobody waits for the dead: the refusal is there before the call returns, in pykka's words."""
    player = actor_system.spawn(Player)
    assert player.stop() is True
    assert not player.is_alive()
    late = player.ask(Say("late"), block=False)
    assert late.done()
    for refused in (late.get, lambda: player.ask(Say("late")), lambda: player.tell(Say("late")), player.proxy):
        with pytest.raises(pykka.ActorDeadError) as caught:
            refused()
        assert str(caught.value) == f"{player} not found"
    place = RecordedReply()
    player.post(Say("late"), place)
    assert [str(error) for error in place.errors] == [f"{player} not found"]


def test_stop_of_stopped_actor_returns_false(actor_system: SystemHarness) -> None:
    player = actor_system.spawn(Player)
    assert player.stop() is True
    assert player.stop() is False
    assert player.stop(block=False).get() is False
    assert actor_system.system.stop_all() == []
    assert actor_system.system.stop_all(block=False) == []


def test_actor_stops_itself_after_earlier_messages(actor_system: SystemHarness) -> None:
    """What it has been sent before is handled before."""
    received: list[Any] = []
    player = actor_system.spawn(Player, received)

    def end(one: Player) -> None:
        one.actor_ref.tell(Say("to myself"))
        one.stop()
        one.stop()

    player.tell(do(end))
    actor_system.until(lambda: "stop" in received)
    assert received == ["start", "to myself", "stop"]
    assert player.actor_stopped.wait(WAIT_TIMEOUT_S)


class StopsEarly(Player):
    def on_start(self) -> None:
        self.stop()


class Stillborn(Player):
    def on_start(self) -> None:
        raise ValueError("no start")


class BadEnding(Player):
    def on_stop(self) -> None:
        raise ValueError("no end")


class BadFailure(Player):
    def on_failure(self, *_: Any) -> None:
        raise ValueError("not even a failure")


@pytest.mark.parametrize(
    ("kind", "said"),
    [(StopsEarly, ""), (Stillborn, "no start"), (BadEnding, "no end"), (BadFailure, "not even a failure")],
)
def test_error_in_on_start_or_on_stop_affects_only_that_actor(
    actor_system: SystemHarness, kind: type[Player], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The actor is dead and off the list, the log says why, who waits is told, and others live on."""
    bad, healthy = actor_system.spawn(kind), actor_system.spawn(Player)
    with caplog.at_level(logging.ERROR, "pykka"):
        if kind is BadFailure:
            bad.tell(Fail("first"))
        waiting = bad.stop(block=False)
        behind = bad.ask(Say("x"), block=False)
        assert waiting.get() in (True, False), "it may be over already"
        with pytest.raises(pykka.ActorDeadError):
            behind.get()
    assert said in caplog.text
    assert not bad.is_alive()
    assert healthy.ask(Say("x")) == "heard x"
    assert actor_system.system.actors() == [healthy]


# All -----------------------------------------------------------------------------------------------------------------


def test_stop_all_stops_youngest_actor_first(actor_system: SystemHarness) -> None:
    """One after the other, so that who was started later may lean on who was there before."""
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
    """One that does not come to its end is the one that nobody waits for; the timeout is for all together."""
    busy = real_system.spawn(Player)
    real_system.spawn(Player)
    with real_system.paused(busy), pytest.raises(pykka.Timeout, match=r"within 0\.05 s"):
        real_system.system.stop_all(timeout=0.05)
    real_system.until(lambda: real_system.system.actors() == [])


def test_stop_all_of_twenty_thousand_actors_does_not_recurse(actor_system: SystemHarness) -> None:
    """No recursion as deep as the list is long, and no list that is searched for each."""
    refs = [actor_system.spawn(Player) for _ in range(20_000)]
    assert actor_system.system.stop_all() == [True] * len(refs)
    assert not any(ref.is_alive() for ref in refs)


def test_stop_all_stops_registered_pykka_actors(actor_system: SystemHarness) -> None:
    """Somebody has registered an actor of pykka's, as pykka's registry allows."""

    class Stranger(pykka.ThreadingActor):
        pass

    ours, stranger = actor_system.spawn(Player), Stranger.start()
    actor_system.system.registry.register(stranger)  # type: ignore[arg-type]
    assert actor_system.system.stop_all() == [True, True]
    assert not ours.is_alive()
    assert not stranger.is_alive()
    actor_system.system.registry.unregister(stranger)  # type: ignore[arg-type]
    assert actor_system.system.actors() == []


def test_registry_lists_only_actors_of_its_system(actor_system: SystemHarness) -> None:
    """Neither another system's nor pykka's; so a host's ``ActorRegistry.stop_all()`` does not end it by surprise."""
    with System.simulated() as other:
        first, second = actor_system.spawn(Player), actor_system.spawn(Player)
        stranger = other.spawn(Player)
        assert actor_system.system.actors() == [first, second]
        assert other.actors() == [stranger]
        assert pykka.ActorRegistry.get_all() == []
        assert pykka.ActorRegistry.stop_all() == []
        assert actor_system.system.stop_all() == [True, True]
        assert stranger.is_alive()


# The end of the program ----------------------------------------------------------------------------------------------


def leave(kind: type[BaseException]) -> Callable[[Player], None]:
    def turn(_: Player) -> None:
        raise kind("enough")

    return turn


class LeavesAtStart(Player):
    def on_start(self) -> None:
        raise SystemExit("enough")


class LeavesAtEnd(Player):
    def on_stop(self) -> None:
        self.received.append("stop")
        raise SystemExit("enough")


class LeavesAtFailure(Player):
    def on_failure(self, *_: Any) -> None:
        raise SystemExit("enough")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_system_exit_in_handler_on_threads_stops_all_actors(
    threads_stage: SystemHarness, kind: type[BaseException]
) -> None:
    """Pykka's rule: all are stopped, who asked is told. The workers go on, for who starts new actors."""
    received: list[Any] = []
    others = [threads_stage.spawn(Player, received) for _ in range(3)]
    for other in others:
        threads_stage.wait_until_handled(other)
    leaving = threads_stage.spawn(Player)
    with pytest.raises(pykka.ActorDeadError, match="was stopped by"):
        leaving.ask(do(leave(kind)))
    threads_stage.until(lambda: threads_stage.system.actors() == [])
    assert received == ["start"] * 3 + ["stop"] * 3
    assert threads_stage.spawn(Player).ask(Say("after all")) == "heard after all"


@pytest.mark.parametrize("kind", [LeavesAtStart, LeavesAtEnd, LeavesAtFailure])
def test_system_exit_in_any_hook_on_threads_stops_all_actors(threads_stage: SystemHarness, kind: type[Player]) -> None:
    """``on_start``, ``on_stop`` and ``on_failure`` may ask for the end too, and no worker ends of it."""
    received: list[Any] = []
    other, leaving = threads_stage.spawn(Player), threads_stage.spawn(kind, received)
    leaving.actor_inbox.put(Envelope(Fail("x") if kind is LeavesAtFailure else Say("x")))
    behind = leaving.stop(block=False)
    assert isinstance(behind.get(), bool)
    threads_stage.until(lambda: threads_stage.system.actors() == [])
    assert not other.is_alive()
    assert received.count("stop") <= 1, "nobody is stopped twice"
    assert threads_stage.spawn(Player).ask(Say("after all")) == "heard after all"


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_system_exit_in_simulation_is_raised_by_step(seed: int | None) -> None:
    system = System.simulated(seed)
    leaving, other = system.spawn(Player), system.spawn(Player)
    asked, behind = leaving.ask(do(leave(KeyboardInterrupt)), block=False), leaving.ask(Say("x"), block=False)
    with pytest.raises(KeyboardInterrupt):
        while system.dispatcher.step():  # type: ignore[attr-defined]
            pass
    with pytest.raises(pykka.ActorDeadError, match="was stopped by"):
        asked.get()
    with pytest.raises(pykka.ActorDeadError):
        behind.get()
    system.dispatcher.run()  # type: ignore[attr-defined]
    assert not other.is_alive()


@pytest.mark.parametrize("kind", [LeavesAtStart, LeavesAtEnd, LeavesAtFailure])
def test_system_exit_in_any_hook_in_simulation_stops_all_actors(kind: type[Player]) -> None:
    """Who waits is answered, and the others are told."""
    system = System.simulated()
    leaving, other = system.spawn(kind), system.spawn(Player)
    leaving.tell(Fail("x") if kind is LeavesAtFailure else Say("x"))
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
    """``run_until_complete`` raises it, as if the handler had been a callback; the actors have been told to stop."""
    loop = new_loop(loop_kind)
    received: list[Any] = []
    system = System.on_loop(loop)
    other, leaving = system.spawn(Player, received), system.spawn(Player)
    asked = leaving.ask(do(leave(kind)), block=False)
    try:
        with pytest.raises(kind, match="enough"):
            loop.run_forever()
        loop.run_until_complete(system.stop())
        assert received == ["start", "stop"]
        assert not other.is_alive()
        with pytest.raises(pykka.ActorDeadError, match="was stopped by"):
            asked.get()
    finally:
        loop.close()


class LeavesAnHeir(Player):
    heir: ActorRef | None = None

    def on_stop(self) -> None:
        type(self).heir = Player.start()


def test_actor_started_after_system_exit_runs(threads_stage: SystemHarness) -> None:
    """Pykka tells the others after the one that failed has stopped, and so those too that came in between."""
    other, leaving = threads_stage.spawn(Player), threads_stage.spawn(LeavesAnHeir)
    with pytest.raises(pykka.ActorDeadError, match="was stopped by"):
        leaving.ask(do(leave(SystemExit)))
    threads_stage.until(lambda: not other.is_alive())
    heir = LeavesAnHeir.heir
    assert heir is not None
    assert heir.ask(Say("here I am")) == "heard here I am"


class Odd(BaseException):
    """Neither an error nor the end of the program."""


def test_base_exception_on_loop_stops_all_actors_and_is_not_raised(loop_system: SystemHarness) -> None:
    """Pykka's rule holds, all are stopped; the loop's own handler of errors has nothing to do with it."""
    loop, complaints = loop_system.system.dispatcher.loop, list[Any]()  # type: ignore[attr-defined]
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    other, leaving = loop_system.spawn(Player), loop_system.spawn(Player)
    with pytest.raises(pykka.ActorDeadError, match="was stopped by Odd"):
        leaving.ask(do(leave(Odd)))
    loop_system.until(lambda: loop_system.system.actors() == [])
    assert not other.is_alive()
    assert loop_system.spawn(Player).ask(Say("after all")) == "heard after all"
    assert complaints == []


# The end of what runs them -------------------------------------------------------------------------------------------


def test_closed_threads_system_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with System.on_threads(3) as system:
        timer = system.start_timer()
        assert len(set(threading.enumerate()) - before) == 4, "three workers and the alarm's"
        assert timer.is_alive()
    assert set(threading.enumerate()) == before


def test_threads_system_with_no_worker_is_refused() -> None:
    with pytest.raises(ValueError, match="workers is 0; expected at least 1 thread"):
        System.on_threads(0)


def refuse_at_once(alive: ActorRef, spawn: Callable[[], ActorRef]) -> None:
    """Its dispatcher is gone: nobody waits for half a minute to hear that, and ``stop_all`` does not hang."""
    asked = alive.ask(Say("x"), block=False)
    assert asked.done()
    with pytest.raises(pykka.ActorDeadError):
        asked.get()
    with pytest.raises(pykka.ActorDeadError):
        alive.tell(Say("x"))
    fresh = spawn()
    assert fresh.ask(Say("x"), block=False).done()
    assert not alive.is_alive()
    assert not fresh.is_alive()


@pytest.mark.parametrize("workers", [1, 4])
def test_ask_after_threads_closed_raises_actor_dead_error(workers: int) -> None:
    system = System.on_threads(workers)
    alive, sleepy = system.spawn(Player), system.spawn(Player)
    alive.ask(Say("x"))
    dispatcher = system.dispatcher
    assert isinstance(dispatcher, ThreadsDispatcher)
    dispatcher.close()
    assert system.actors() == []
    assert sleepy.stop() is False
    refuse_at_once(alive, lambda: system.spawn(Player))
    assert system.stop_all() == []


@pytest.mark.parametrize("loop_kind", LOOPS)
def test_ask_after_loop_closed_raises_actor_dead_error(loop_kind: str) -> None:
    with loop_in_background(loop_kind) as loop:
        system = System.on_loop(loop)
        alive, other = system.spawn(Player), system.spawn(Player)
        alive.ask(Say("x"))
        other.ask(Say("x"))
    refuse_at_once(alive, lambda: system.spawn(Player))
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
    """The stop times out, and says so; the thread that is stuck is left to itself."""
    released = threading.Event()
    with pytest.raises(pykka.Timeout), System.on_threads() as system:
        system.ask_timeout_s = 0.05
        system.spawn(Player).tell(Call((lambda _: released.wait(WAIT_TIMEOUT_S),)))
    released.set()
