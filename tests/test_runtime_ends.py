"""The small actor runtime: answers that are settled once, ends that are clean, bugs that stay where they are."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pykka
import pytest
from stage.players import PATIENCE_S, Call, Fail, Play, Player, Say, keep_the_reply, play_on, settle_the_reply
from stage.ports import Place

from callboard.runtime.reply import Reply
from callboard.runtime.system import System

play = pytest.fixture(params=["asyncio", "uvloop"])(play_on)


# Ends ----------------------------------------------------------------------------------------------------------------


def test_a_stopped_actor_refuses(play: Play) -> None:
    async def body(system: System) -> None:
        heard: list[str] = []
        player = system.spawn(Player, heard)
        before = player.ask(Say("before"), block=False)
        player.stop(block=False)
        after = player.ask(Say("after"), block=False)
        assert await before == "heard before"
        with pytest.raises(pykka.ActorDeadError):
            await after
        assert heard == ["start", "before", "stop"]
        assert not player.is_alive()
        assert player not in system.actors()
        with pytest.raises(pykka.ActorDeadError):
            await player.ask(Say("late"), block=False)
        with pytest.raises(pykka.ActorDeadError):
            player.tell(Say("late"))
        place = Place()
        player.post(Say("late"), place)
        assert [type(error) for error in place.errors] == [pykka.ActorDeadError]

    play(body)


def test_letters_to_the_dead_are_counted(play: Play) -> None:
    async def body(system: System) -> None:
        player = system.spawn(Player)
        player.stop(block=False)
        player.tell(Say("one"))
        player.ask(Say("two"), block=False)
        await asyncio.sleep(0)
        while player.is_alive():
            await asyncio.sleep(0)
        assert system.dispatcher.dead_letters.count == 2
        player.ask(Say("three"), block=False)
        assert system.dispatcher.dead_letters.count == 3

    play(body)


def test_stopping_can_be_awaited(play: Play) -> None:
    async def body(system: System) -> None:
        heard: list[str] = []
        for name in ("old ", "young "):
            await system.spawn(Player, heard, name).ask(Say("here"), block=False)
        replies = system.stop_all(block=False)
        assert [await asyncio.wait_for(reply, PATIENCE_S / 10) for reply in replies] == [True, True]
        assert heard[-2:] == ["young stop", "old stop"]
        assert system.actors() == []

    play(body)


def test_stopping_the_dead_is_no_error(play: Play) -> None:
    async def body(system: System) -> None:
        player = system.spawn(Player)
        assert await asyncio.to_thread(player.stop, timeout=PATIENCE_S)
        await asyncio.to_thread(player.stop, timeout=PATIENCE_S)
        assert system.stop_all(block=False) == []

    play(body)


def test_a_system_knows_its_own_actors_only(play: Play) -> None:
    async def body(system: System) -> None:
        other = System(system.dispatcher.__class__(asyncio.get_running_loop()))  # type: ignore[call-arg]
        first, second = system.spawn(Player), system.spawn(Player)
        stranger = other.spawn(Player)
        assert system.actors() == [first, second]
        assert other.actors() == [stranger]
        assert pykka.ActorRegistry.get_all() == []

    play(body)


# Bugs ----------------------------------------------------------------------------------------------------------------


def test_an_error_is_the_askers(play: Play) -> None:
    """Pykka's rule: the actor lives on when somebody hears of it."""

    async def body(system: System) -> None:
        player = system.spawn(Player)
        with pytest.raises(ValueError, match="bug"):
            await player.ask(Fail("bug"), block=False)
        assert await player.ask(Say("on"), block=False) == "heard on"

    play(body)


def test_an_error_that_nobody_hears_of_stops_that_actor_alone(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def body(system: System) -> None:
        broken, healthy = system.spawn(Player), system.spawn(Player)
        broken.tell(Fail("bug"))
        waiting = broken.ask(Say("behind it"), block=False)
        assert await healthy.ask(Say("x"), block=False) == "heard x"
        with pytest.raises(pykka.ActorDeadError):
            await waiting
        assert system.actors() == [healthy]

    with caplog.at_level(logging.ERROR, "pykka"):
        play(body)
    assert "Unhandled exception in" in caplog.text
    assert "ValueError: bug" in caplog.text


class Stillborn(Player):
    def on_start(self) -> None:
        raise ValueError("no start")


class BadEnding(Player):
    def on_stop(self) -> None:
        raise ValueError("no end")


@pytest.mark.parametrize("kind", [Stillborn, BadEnding])
def test_a_bad_start_or_end_hurts_nobody_else(play: Play, kind: type[Player]) -> None:
    async def body(system: System) -> None:
        bad, healthy = system.spawn(kind), system.spawn(Player)
        first = bad.ask(Say("x"), block=False)
        bad.stop(block=False)
        assert await healthy.ask(Say("x"), block=False) == "heard x"
        if kind is Stillborn:
            with pytest.raises(pykka.ActorDeadError):
                await first
        assert system.actors() == [healthy]

    play(body)


class Spoiled(Place):
    """A place that cannot take any answer."""

    def set(self, value: Any = None) -> None:
        raise OSError("nowhere to put it")

    def set_exception(self, exc_info: Any = None) -> None:
        raise OSError("nowhere to put that either")


def test_a_place_that_takes_no_answer_does_not_stop_the_others(play: Play) -> None:
    """Neither while the actor lives nor when its last letters are refused."""

    async def body(system: System) -> None:
        first, second, healthy = (system.spawn(Player) for _ in range(3))
        first.post(Say("x"), Spoiled())
        second.stop(block=False)
        second.post(Say("x"), Spoiled())
        refused = second.ask(Say("y"), block=False)
        assert await asyncio.wait_for(healthy.ask(Say("x"), block=False), PATIENCE_S / 10) == "heard x"
        with pytest.raises(pykka.ActorDeadError):
            await asyncio.wait_for(refused, PATIENCE_S / 10)

    play(body)


# Replies -------------------------------------------------------------------------------------------------------------


def test_a_reply_is_settled_once() -> None:
    reply = Reply()
    reply.set(1)
    with pytest.raises(Exception):  # noqa: B017 (pykka's futures raise queue.Full)
        reply.set(2)
    assert reply.get() == 1


def test_callbacks_hear_of_it_whenever_they_come() -> None:
    heard: list[Any] = []
    reply = Reply()
    reply.on_done(lambda one: heard.append(one.get()))
    assert heard == []
    reply.set("x")
    reply.on_done(lambda one: heard.append(one.get()))
    assert heard == ["x", "x"]


def test_an_exception_is_raised_where_the_answer_is_wanted() -> None:
    reply = Reply()
    try:
        raise KeyError("lost")
    except KeyError:
        reply.set_exception()
    with pytest.raises(KeyError, match="lost"):
        reply.get()


def test_a_wait_that_was_given_up_does_no_harm(play: Play) -> None:
    async def body(system: System) -> None:
        player = system.spawn(Player)
        reply = player.ask(Call((keep_the_reply,)), block=False)

        async def wait() -> None:
            await reply

        waiter = asyncio.ensure_future(wait())
        await player.ask(Say("x"), block=False)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        player.tell(Call((settle_the_reply,)))
        assert await reply == "at last"
        await asyncio.sleep(0)
        assert await player.ask(Say("x"), block=False) == "heard x"

    play(body)
