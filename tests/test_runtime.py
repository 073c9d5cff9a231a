"""The small actor runtime: messages in order, turns for everybody, and no wait that could not end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pykka
import pytest
from stage.players import PATIENCE_S, Call, Fail, Play, Player, Say, keep_the_reply, play_on, settle_the_reply
from stage.ports import Place

from callboard.actors.base import ActorRef
from callboard.runtime.dispatcher import MESSAGES_A_TURN
from callboard.runtime.reply import Reply, WouldDeadlock
from callboard.runtime.simulation import Simulation
from callboard.runtime.system import System

play = pytest.fixture(params=["asyncio", "uvloop"])(play_on)


# Messages ------------------------------------------------------------------------------------------------------------


def test_messages_come_in_order_after_the_start(play: Play) -> None:
    async def body(system: System) -> None:
        heard: list[Any] = []
        player = system.spawn(Player, heard)
        for number in range(3 * MESSAGES_A_TURN):
            player.tell(Say(number))
        assert heard == [], "nothing runs before the loop's next turn"
        await player.ask(Say("last"), block=False)
        assert heard == ["start", *map(str, range(3 * MESSAGES_A_TURN)), "last"]

    play(body)


def test_an_answer_can_be_awaited(play: Play) -> None:
    async def body(system: System) -> None:
        reply = system.spawn(Player).ask(Say("x"), block=False)
        assert not reply.done()
        assert await reply == "heard x"
        assert reply.done()
        assert await reply == "heard x", "as often as one likes"
        assert reply.get() == "heard x", "what is there needs no waiting"

    play(body)


def test_a_message_without_a_handler_is_an_error_that_says_so(play: Play) -> None:
    async def body(system: System) -> None:
        player = system.spawn(Player)
        with pytest.raises(TypeError, match=r"no handler for dict; it takes \['call', 'fail', 'say'\]"):
            await player.ask({}, block=False)
        assert await player.ask(Say("on"), block=False) == "heard on"

    play(body)


def test_an_answer_may_come_later(play: Play) -> None:
    """The handler keeps ``reply_to`` and returns DEFERRED; other messages are handled meanwhile."""

    async def body(system: System) -> None:
        player = system.spawn(Player)
        reply = player.ask(Call((keep_the_reply,)), block=False)
        assert await player.ask(Say("x"), block=False) == "heard x"
        assert not reply.done()
        player.tell(Call((settle_the_reply,)))
        assert await reply == "at last"

    play(body)


def test_an_answer_goes_where_the_sender_says(play: Play) -> None:
    async def body(system: System) -> None:
        player, fine, wrong = system.spawn(Player), Place(), Place()
        player.post(Say("x"), fine)
        player.post(Fail("y"), wrong)
        await player.ask(Say("z"), block=False)
        assert fine.value == "heard x"
        assert [str(error) for error in wrong.errors] == ["y"]

    play(body)


def test_messages_come_from_other_threads(play: Play) -> None:
    """Each thread's messages keep their order; none is lost."""

    async def body(system: System) -> None:
        heard: list[str] = []
        player = system.spawn(Player, heard)

        def shout(name: str) -> None:
            for number in range(2000):
                player.tell(Say(f"{name}{number}"))

        threads = [threading.Thread(target=shout, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        await player.ask(Say("end"), block=False)
        for name in "abc":
            assert [one for one in heard if one[0] == name] == [f"{name}{number}" for number in range(2000)]

    play(body)


def test_another_thread_may_block_on_an_answer(play: Play) -> None:
    async def body(system: System) -> None:
        player = system.spawn(Player)
        assert await asyncio.to_thread(player.ask, Say("x"), timeout=PATIENCE_S) == "heard x"
        with pytest.raises(ValueError, match="bug"):
            await asyncio.to_thread(player.ask, Fail("bug"), timeout=PATIENCE_S)

    play(body)


def test_pykkas_proxies_work(play: Play) -> None:
    async def body(system: System) -> None:
        proxy = system.spawn(Player).proxy()
        assert await asyncio.to_thread(lambda: proxy.say(Say("x")).get(timeout=PATIENCE_S)) == "heard x"
        assert await asyncio.to_thread(lambda: proxy.heard.get(timeout=PATIENCE_S)) == ["start", "x"]

    play(body)


def test_an_actor_may_make_actors(play: Play) -> None:
    """They live on the dispatcher of their maker, whoever else is running."""

    async def body(system: System) -> None:
        player = system.spawn(Player)
        child: ActorRef = await player.ask(Call((lambda _: Player.start(name="child "),)), block=False)
        assert await child.ask(Say("x"), block=False) == "heard x"
        assert child.actor_inbox.dispatcher is system.dispatcher

    play(body)


# Blocking on the own thread ------------------------------------------------------------------------------------------


def test_a_blocking_ask_on_the_loops_thread_is_refused(play: Play) -> None:
    async def body(system: System) -> None:
        player = system.spawn(Player)
        await player.ask(Say("x"), block=False)
        with pytest.raises(WouldDeadlock, match="await the reply"):
            player.ask(Say("y"), timeout=PATIENCE_S)

    play(body)


def test_it_is_refused_before_the_first_turn_too(play: Play) -> None:
    async def body(system: System) -> None:
        with pytest.raises(WouldDeadlock):
            system.spawn(Player).ask(Say("y"), timeout=0.1)

    play(body)


def test_an_actor_cannot_wait_for_another(play: Play) -> None:
    async def body(system: System) -> None:
        other = system.spawn(Player)
        player = system.spawn(Player)
        with pytest.raises(WouldDeadlock):
            await player.ask(Call((lambda _: other.ask(Say("x"), timeout=PATIENCE_S),)), block=False)

    play(body)


def test_a_wait_that_is_too_long_says_so() -> None:
    with pytest.raises(pykka.Timeout, match=r"within 0\.01 s"):
        Reply().get(timeout=0.01)


# Fairness ------------------------------------------------------------------------------------------------------------


def test_a_busy_mailbox_lets_others_have_their_turns(play: Play) -> None:
    """One actor has a thousand messages; another's single one waits for a turn of the first, not for all of them."""

    async def body(system: System) -> None:
        heard: list[str] = []
        busy, quiet = system.spawn(Player, heard), system.spawn(Player, heard)
        for number in range(1000):
            busy.tell(Say(f"busy {number}"))
        quiet.tell(Say("quiet"))
        await busy.ask(Say("end"), block=False)
        position = heard.index("quiet")
        assert len([one for one in heard[:position] if one.startswith("busy")]) <= MESSAGES_A_TURN

    play(body)


def test_actors_that_never_rest_leave_time_for_the_loop(play: Play) -> None:
    """Two actors send each other messages for ever; a callback of the loop has its turn all the same."""

    async def body(system: System) -> None:
        pair: list[ActorRef] = []
        is_over = False

        def hit(to: int) -> Callable[[Player], None]:
            def turn(_player: Player) -> None:
                if not is_over:
                    pair[to].tell(Call((hit(1 - to),)))

            return turn

        pair += [system.spawn(Player), system.spawn(Player)]
        pair[0].tell(Call((hit(1),)))
        for _ in range(20):
            await asyncio.sleep(0)
        is_over = True
        await pair[0].ask(Say("still here"), block=False)

    play(body)


# The test's own dispatcher -------------------------------------------------------------------------------------------


def test_a_seed_decides_the_order() -> None:
    def order(seed: int) -> list[str]:
        system = System(Simulation(seed))
        heard: list[str] = []
        for name in "abcdef":
            system.spawn(Player, heard, name).tell(Say("!"))
        system.dispatcher.run()  # type: ignore[attr-defined]
        return heard

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(10)}) > 5
