"""Waiting for replies: where a blocking wait is refused, timeouts, and awaiting in a coroutine."""

from __future__ import annotations

import asyncio
import math
import traceback
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pykka
import pytest
from actor_system.players import (
    LOOPS,
    REAL,
    SIMULATIONS,
    WAIT_TIMEOUT_S,
    Call,
    Fail,
    Play,
    Player,
    Say,
    SystemHarness,
    do,
    keep_reply,
    play_on,
    settle_reply,
    system_fixture,
    without_garbage_collector,
)

from callboard.actors.base import ActorRef
from callboard.actors.timer.messages import Schedule
from callboard.runtime.engine.reply import Reply, WouldDeadlock
from callboard.runtime.engine.system import System

actor_system = system_fixture(*REAL, *SIMULATIONS)
one_thread_system = system_fixture(*(name for name in REAL if name != "threads-4"), *SIMULATIONS)
real_system = system_fixture(*REAL)
simulated_system = system_fixture(*SIMULATIONS)
play = pytest.fixture(params=LOOPS)(play_on)

Wait = Callable[[System, ActorRef], Any]

# The blocking calls, and the awaitable form of each.
BLOCKING: dict[str, Wait] = {
    "ask": lambda _, ref: ref.ask(Say("blocking")),
    "get": lambda _, ref: ref.proxy().name.get(),
    "call": lambda _, ref: ref.proxy().say(Say("called")).get(),
    "set": lambda _, ref: setattr(ref.proxy(), "name", "x"),
    "stop": lambda _, ref: ref.stop(),
    "stop_all": lambda system, _: system.stop_all(),
}
AWAITABLE: dict[str, Wait] = {
    "ask": lambda _, ref: ref.ask(Say("awaited"), block=False),
    "get": lambda _, ref: ref.proxy().name,
    "call": lambda _, ref: ref.proxy().say(Say("called")),
    "stop": lambda _, ref: ref.stop(block=False),
    "stop_all": lambda system, _: system.stop(),
}
AWAITED = {"ask": "heard awaited", "get": "", "call": "heard called", "stop": True, "stop_all": [True, True]}
SENDS_FIRST = ("get", "call")  # a proxy of pykka sends at once and blocks in get()

each_call = pytest.mark.parametrize("call", BLOCKING)


# Blocking calls that are refused -------------------------------------------------------------------------------------


@each_call
def test_blocking_ask_in_handler_raises_would_deadlock(one_thread_system: SystemHarness, call: str) -> None:
    """The blocked thread is the one that has to answer. The call raises before it sends the message."""
    actor_system, received = one_thread_system, list[str]()
    other = actor_system.spawn(Player, received)
    player = actor_system.spawn(Player)
    actor_system.wait_until_handled(other)
    with pytest.raises(WouldDeadlock, match="a blocking wait"):
        player.ask(do(lambda _: BLOCKING[call](actor_system.system, other)))
    actor_system.wait_until_handled(other)
    assert other.is_alive()
    assert call in SENDS_FIRST or received == ["start"]
    assert actor_system.system.actors() == [other, player]


def test_blocking_ask_of_itself_raises_would_deadlock(actor_system: SystemHarness) -> None:
    player = actor_system.spawn(Player)
    with pytest.raises(WouldDeadlock):
        player.ask(do(lambda actor: actor.actor_ref.ask(Say("x"))))
    assert player.ask(Say("x")) == "heard x"


@each_call
@pytest.mark.parametrize("is_warm", [True, False])
def test_blocking_ask_in_coroutine_on_same_loop_raises_would_deadlock(play: Play, call: str, is_warm: bool) -> None:
    """It is refused before the first turn too (``is_warm`` is False)."""

    async def body(system: System) -> None:
        received: list[str] = []
        first, second = system.spawn(Player, received), system.spawn(Player)
        if is_warm:
            await first.ask(do(lambda _: None), block=False)
        with pytest.raises(WouldDeadlock, match="await the reply"):
            BLOCKING[call](system, first)
        await first.ask(do(lambda _: None), block=False)
        assert call in SENDS_FIRST or received == ["start"]
        assert system.actors() == [first, second]

    play(body)


@pytest.mark.parametrize("call", AWAITABLE)
def test_each_blocking_call_has_an_awaitable_form(play: Play, call: str) -> None:
    async def body(system: System) -> None:
        system.spawn(Player)
        ref = system.spawn(Player)
        assert await asyncio.wait_for(AWAITABLE[call](system, ref), WAIT_TIMEOUT_S) == AWAITED[call]

    play(body)


@pytest.mark.parametrize("call", AWAITABLE)
def test_coroutine_awaits_actors_on_threads(play: Play, call: str) -> None:
    """A reply that is set on another thread resumes the coroutine on its own loop."""

    async def body(_: System) -> None:
        with System.on_threads(2) as threads:
            threads.spawn(Player)
            ref = threads.spawn(Player)
            assert await asyncio.wait_for(AWAITABLE[call](threads, ref), WAIT_TIMEOUT_S) == AWAITED[call]

    play(body)


def test_blocking_ask_from_another_thread_returns_answer(play: Play) -> None:
    """The reply or the error reaches the thread that asks."""

    async def body(system: System) -> None:
        player = system.spawn(Player)
        assert await asyncio.to_thread(player.ask, Say("x"), timeout=WAIT_TIMEOUT_S) == "heard x"
        with pytest.raises(ValueError, match="bug"):
            await asyncio.to_thread(player.ask, Fail("bug"), timeout=WAIT_TIMEOUT_S)
        proxy = player.proxy()
        assert await asyncio.to_thread(lambda: proxy.received.get(timeout=WAIT_TIMEOUT_S)) == ["start", "x"]
        assert await asyncio.to_thread(player.stop, timeout=WAIT_TIMEOUT_S)

    play(body)


def test_get_of_settled_reply_does_not_wait(play: Play) -> None:
    async def body(system: System) -> None:
        reply = system.spawn(Player).ask(Say("x"), block=False)
        assert not reply.done()
        assert await reply == "heard x"
        assert await reply == "heard x", "it may be awaited again"
        assert reply.get() == "heard x"

    play(body)


def test_awaited_stop_stops_youngest_actor_first(play: Play) -> None:
    async def body(system: System) -> None:
        received: list[str] = []
        for number in range(20):
            await system.spawn(Player, received, f"{number} ").ask(do(lambda _: None), block=False)
        received.clear()
        assert await system.stop() == [True] * 20
        assert received == [f"{number} stop" for number in reversed(range(20))]

    play(body)


def test_loop_runs_while_coroutine_awaits_reply(play: Play) -> None:
    """Unlike a future of pykka, which blocks the loop that awaits it."""

    async def body(system: System) -> None:
        player = system.spawn(Player)
        waiting = asyncio.ensure_future(_awaited(player.ask(Call((keep_reply,)), block=False)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        player.tell(Call((settle_reply,)))
        assert await waiting == "at last"

    play(body)


async def _awaited(reply: Any) -> Any:
    return await reply


def test_cancelled_await_does_not_harm_actor(play: Play) -> None:
    async def body(system: System) -> None:
        player = system.spawn(Player)
        reply = player.ask(Call((keep_reply,)), block=False)
        waiter = asyncio.ensure_future(_awaited(reply))
        await player.ask(Say("x"), block=False)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        player.tell(Call((settle_reply,)))
        assert await reply == "at last"
        await asyncio.sleep(0)
        assert await player.ask(Say("x"), block=False) == "heard x"

    play(body)


# Timeouts ------------------------------------------------------------------------------------------------------------


def schedule_far_deadline(actor_system: SystemHarness) -> None:
    """In a simulation, time passes only if a deadline is scheduled."""
    if actor_system.is_simulated():
        actor_system.system.start_timer().tell(Schedule(actor_system.spawn(Player), "far", 3_600_000))


def test_ask_without_timeout_times_out_after_system_default(actor_system: SystemHarness) -> None:
    """The system's default timeout applies, and a reply after it is counted as late."""
    schedule_far_deadline(actor_system)
    assert actor_system.system.ask_timeout_s == 30
    actor_system.system.ask_timeout_s = 0.02
    player = actor_system.spawn(Player)
    with pytest.raises(pykka.Timeout, match=r"no answer within 0\.02 s"):
        player.ask(Call((keep_reply,)))
    assert actor_system.system.stats().late_replies == 0
    actor_system.system.ask_timeout_s = WAIT_TIMEOUT_S
    player.ask(Call((settle_reply,)))
    assert actor_system.system.stats().late_replies == 1


def test_ask_timeout_bounds_the_wait(actor_system: SystemHarness) -> None:
    schedule_far_deadline(actor_system)
    player = actor_system.spawn(Player)
    reply = player.ask(Call((keep_reply,)), block=False)
    for timeout_s in (0.01, 0, -1):
        with pytest.raises(pykka.Timeout, match=f"within {timeout_s:g} s"):
            reply.get(timeout=timeout_s)
    player.tell(Call((settle_reply,)))
    assert reply.get() == "at last", "a get() after the reply succeeds"


def test_stop_timeout_bounds_the_wait(actor_system: SystemHarness) -> None:
    schedule_far_deadline(actor_system)
    player = actor_system.spawn(Player)
    actor_system.wait_until_handled(player)
    with actor_system.paused(player):
        reply = player.stop(block=False, timeout=0.01)
        assert reply.timeout_s == 0.01
        if not actor_system.is_simulated():
            with pytest.raises(pykka.Timeout, match=r"within 0\.01 s"):
                reply.get()
            with pytest.raises(pykka.Timeout, match=r"within 0\.02 s"):
                player.stop(timeout=0.02)


def test_infinite_ask_timeout_waits_for_answer(actor_system: SystemHarness) -> None:
    actor_system.system.ask_timeout_s = math.inf
    assert actor_system.spawn(Player).ask(Say("x")) == "heard x"


def test_await_times_out(play: Play) -> None:
    async def body(system: System) -> None:
        player = system.spawn(Player)
        with pytest.raises(pykka.Timeout, match=r"within 0\.02 s"):
            await player.ask(Call((keep_reply,)), block=False, timeout=0.02)
        system.ask_timeout_s = 0.03
        await player.ask(Call((settle_reply,)), block=False)
        assert system.stats().late_replies == 1
        with pytest.raises(pykka.Timeout, match=r"within 0\.03 s"):
            await player.ask(Call((keep_reply,)), block=False)
        system.ask_timeout_s = math.inf
        assert await player.ask(Say("x"), block=False) == "heard x"

    play(body)


def test_timeout_in_simulation_is_virtual_time(simulated_system: SystemHarness) -> None:
    schedule_far_deadline(simulated_system)
    clock = simulated_system.system.dispatcher.clock  # type: ignore[attr-defined]
    before_ms = clock.now_ms
    with pytest.raises(pykka.Timeout):
        simulated_system.spawn(Player).ask(Call((keep_reply,)), timeout=12.5)
    assert clock.now_ms == before_ms + 12_500


def test_get_in_simulation_of_impossible_answer_raises_would_deadlock(simulated_system: SystemHarness) -> None:
    with pytest.raises(WouldDeadlock, match="this answer will never come"):
        simulated_system.spawn(Player).ask(Call((keep_reply,)))


# Derived futures, as in pykka ----------------------------------------------------------------------------------------


def derived_futures(ref: ActorRef) -> dict[str, tuple[Any, Any]]:
    """Futures that are derived from replies, each with its expected value."""

    def ask(*numbers: int) -> Any:
        return ref.ask(do(lambda _: numbers), block=False)

    return {
        "map": (ask(1, 2).map(sum), 3),
        "filter": (ask(1, 2, 3).filter(lambda number: number > 1), [2, 3]),
        "reduce": (ask(1, 2, 3).reduce(lambda total, number: total + number, 10), 16),
        "join": (ask(1).join(ask(2), ask(3)), [(1,), (2,), (3,)]),
        "nested": (ask(1).join(ask(2).map(sum)).map(len), 2),
        "again": (ask(7).map(sum).map(str), "7"),
    }


@pytest.mark.parametrize("name", ["map", "filter", "reduce", "join", "nested", "again"])
class TestDerivedFutures:
    def test_they_can_be_got(self, actor_system: SystemHarness, name: str) -> None:
        future, expected = derived_futures(actor_system.spawn(Player))[name]
        assert future.get() == expected
        assert future.get() == expected

    def test_they_can_be_awaited(self, play: Play, name: str) -> None:
        async def body(system: System) -> None:
            future, expected = derived_futures(system.spawn(Player))[name]
            assert await future == expected
            assert await future == expected

        play(body)


def test_mapped_future_has_error_of_its_source(play: Play) -> None:
    async def body(system: System) -> None:
        player = system.spawn(Player)
        fine = player.ask(Say("x"), block=False)
        with pytest.raises(ValueError, match="bug"):
            await player.ask(Fail("bug"), block=False).map(len)
        with pytest.raises(ValueError, match="bug"):
            await fine.join(player.ask(Fail("bug"), block=False))
        with pytest.raises(ZeroDivisionError):
            await fine.map(lambda _: 1 // 0)
        with pytest.raises(pykka.Timeout):
            await player.ask(Call((keep_reply,)), block=False, timeout=0.01).map(len)

    play(body)


def test_reply_joined_with_pykka_future_is_awaited_in_thread(play: Play) -> None:
    """A future of pykka can only be waited for in a thread; the loop is not blocked."""

    async def body(system: System) -> None:
        player, foreign = system.spawn(Player), pykka.ThreadingFuture[str]()
        hooked = Reply(system.dispatcher)
        hooked.set_get_hook(lambda timeout: foreign.get(timeout=timeout))
        waiting = [
            asyncio.ensure_future(_awaited(player.ask(Say("x"), block=False).join(other)))
            for other in (foreign, hooked, hooked.map(str))
        ]
        assert await player.ask(Say("y"), block=False) == "heard y"
        assert not any(task.done() for task in waiting)
        foreign.set("from a thread")
        assert await asyncio.gather(*waiting) == [["heard x", "from a thread"]] * 3

    play(body)


# One reply -----------------------------------------------------------------------------------------------------------


def test_second_settle_of_reply_raises_full() -> None:
    reply = Reply()
    reply.set(1)
    with pytest.raises(Exception):  # noqa: B017 (pykka's futures raise queue.Full)
        reply.set(2)
    assert reply.get() == 1


def test_callbacks_are_called_in_order_of_registration() -> None:
    received: list[Any] = []
    reply = Reply()
    reply.on_done(lambda future: received.append((1, future.get())))
    reply.on_done(lambda future: received.append((2, future.get())))
    assert received == []
    reply.set("x")
    reply.on_done(lambda future: received.append((3, future.get())))
    assert received == [(1, "x"), (2, "x"), (3, "x")]


def test_callback_taken_by_another_thread_is_no_error() -> None:
    """Another thread empties the list between the check and the ``pop``."""

    class EmptiedBeforePop(list[Any]):
        def pop(self, index: Any = -1) -> Any:
            self.clear()
            return super().pop(index)

    reply = Reply()
    reply._callbacks = EmptiedBeforePop([print])
    reply.set("x")
    assert reply.get() == "x"


def test_exception_is_raised_by_get_and_await() -> None:
    reply = Reply()
    try:
        raise KeyError("lost")
    except KeyError:
        reply.set_exception()
    with pytest.raises(KeyError, match="lost"):
        reply.get()


def test_traceback_does_not_grow_with_each_get(real_system: SystemHarness) -> None:
    """It keeps the frames of the raise, but not those of each ``get``."""
    reply = real_system.spawn(Player).ask(Fail("bug"), block=False)
    depths = []
    for _ in range(3):
        with pytest.raises(ValueError) as raised:
            reply.get()
        depths.append(len(traceback.extract_tb(raised.value.__traceback__)))
        del raised
    assert depths[0] == depths[1] == depths[2]


class Value:
    """A value that a weak reference can point to."""


def test_idle_actor_does_not_keep_its_last_reply(actor_system: SystemHarness) -> None:
    player = actor_system.spawn(Player)
    references: list[weakref.ref[Any]] = []

    def return_value(_: Player) -> Value:
        value = Value()
        references.append(weakref.ref(value))
        return value

    with without_garbage_collector():
        player.ask(do(return_value))
        actor_system.until(lambda: references[0]() is None)


def test_raised_error_leaves_no_reference_cycle(real_system: SystemHarness) -> None:
    """Error, frame and future form no reference cycle."""
    player = real_system.spawn(Player)
    references: list[weakref.ref[Any]] = []

    def fail(_: Player) -> None:
        value = Value()
        references.append(weakref.ref(value))
        raise ValueError(value)

    with without_garbage_collector():
        with suppress(ValueError):
            player.ask(do(fail))
        real_system.until(lambda: references[0]() is None)
