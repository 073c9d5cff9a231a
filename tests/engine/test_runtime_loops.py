"""An event loop of a host program may move to another thread and may be closed at any time."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import pykka
import pytest
from actor_system.players import LOOPS, WAIT_TIMEOUT_S, Player, Say, do, new_loop

from callboard.actors.base import ActorRef
from callboard.runtime.engine.system import System

every_loop = pytest.mark.parametrize("loop_kind", LOOPS)


async def two_players(system: System) -> tuple[ActorRef, ActorRef]:
    """Two actors that have started."""
    players = system.spawn(Player), system.spawn(Player)
    for player in players:
        await player.ask(Say("x"), block=False)
    return players


def on_another_thread(body: Any) -> None:
    thread = threading.Thread(target=body)
    thread.start()
    thread.join(WAIT_TIMEOUT_S)
    assert not thread.is_alive()


@every_loop
def test_waiting_messages_are_rejected_when_loop_closes(loop_kind: str) -> None:
    """A closed loop drops the scheduled callback that runs the actors, and no further message detects that."""
    loop = new_loop(loop_kind)
    system = System.on_loop(loop)
    busy, idle = loop.run_until_complete(two_players(system))
    replies = [busy.ask(Say(number), block=False) for number in range(3)]
    loop.close()
    assert [reply.done() for reply in replies] == [True] * 3
    with pytest.raises(pykka.ActorDeadError):
        replies[0].get()
    assert (busy.is_alive(), idle.is_alive(), system.actors()) == (False, False, [])
    assert system.stats().dead_letters == 3


@every_loop
@pytest.mark.parametrize("is_own_thread", [True, False])
def test_blocking_ask_on_closed_loop_raises_actor_dead_error(loop_kind: str, is_own_thread: bool) -> None:
    """It is allowed on the thread that last ran the loop too, because a closed loop cannot be blocked."""
    loop = new_loop(loop_kind)
    system = System.on_loop(loop)
    busy, idle = loop.run_until_complete(two_players(system))
    busy.tell(Say("never read"))
    loop.close()
    received: list[object] = []

    def ask() -> None:
        for player in (idle, busy, system.spawn(Player)):
            with pytest.raises(pykka.ActorDeadError):
                player.ask(Say("y"))
            received.append(player)

    if is_own_thread:
        ask()
    else:
        on_another_thread(ask)
    assert len(received) == 3


@every_loop
def test_messages_to_loop_closed_before_running_are_rejected(loop_kind: str) -> None:
    loop = new_loop(loop_kind)
    system = System.on_loop(loop)
    reply = system.spawn(Player).ask(Say("x"), block=False)
    loop.close()
    assert reply.done()
    late = system.spawn(Player).ask(Say("x"), block=False)
    assert late.done()


@every_loop
def test_lost_pump_is_detected_by_next_message(loop_kind: str) -> None:
    """The callback was scheduled on a loop that another thread was closing, after the loop's close was handled."""
    loop = new_loop(loop_kind)
    system = System.on_loop(loop)
    loop.close()
    first, second = system.spawn(Player), system.spawn(Player)
    system.dispatcher._pumping = True  # type: ignore[attr-defined]
    assert system.spawn(Player).ask(Say("x"), block=False).done()
    assert (first.is_alive(), second.is_alive()) == (False, False)


@every_loop
def test_asks_during_close_of_loop_are_all_settled(loop_kind: str) -> None:
    """Each request is settled, no matter when it was sent."""
    for _ in range(5):
        loop = new_loop(loop_kind)
        system = System.on_loop(loop)
        players = loop.run_until_complete(two_players(system))
        replies: list[Any] = []
        is_over = threading.Event()

        def ask(players: Any = players, replies: Any = replies, is_over: threading.Event = is_over) -> None:
            while not is_over.is_set():
                replies.extend(player.ask(Say("x"), block=False) for player in players)

        thread = threading.Thread(target=ask)
        thread.start()
        while len(replies) < 20:
            loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        count_at_close = len(replies)
        while len(replies) < count_at_close + 20:
            pass
        is_over.set()
        thread.join()
        assert all(reply.done() for reply in replies)


@every_loop
def test_loop_moved_to_another_thread_still_runs_actors(loop_kind: str) -> None:
    """The thread that ran the loop before can send messages to it, and may block on a reply."""
    loop = new_loop(loop_kind)
    system = System.on_loop(loop)
    player, _ = loop.run_until_complete(two_players(system))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        is_running = threading.Event()
        loop.call_soon_threadsafe(is_running.set)
        assert is_running.wait(WAIT_TIMEOUT_S)
        assert player.ask(Say("y")) == "heard y"
        handled = threading.Event()
        player.tell(do(lambda _: handled.set()))
        assert handled.wait(WAIT_TIMEOUT_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@every_loop
def test_loop_does_not_keep_discarded_systems_alive(loop_kind: str) -> None:
    loop = new_loop(loop_kind)

    async def body() -> weakref.ref[System]:
        async with System.on_loop() as system:
            await system.spawn(Player).ask(Say("x"), block=False)
            return weakref.ref(system.dispatcher)  # type: ignore[arg-type]

    dispatcher = loop.run_until_complete(body())
    loop.run_until_complete(asyncio.sleep(0))
    gc.collect()
    assert dispatcher() is None
    loop.close()
