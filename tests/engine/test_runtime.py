"""The contract of the actor engine, the same on every dispatcher: messages, replies and the dispatcher of an actor.

Each message is handled once, in the order of its sender, one at a time and after ``on_start``; each ask is answered.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from typing import Any

import pykka
import pytest
from actor_system.players import (
    REAL,
    SIMULATIONS,
    WAIT_TIMEOUT_S,
    Call,
    Fail,
    Player,
    Say,
    SystemHarness,
    do,
    keep_reply,
    new_loop,
    settle_reply,
    system_fixture,
)
from actor_system.ports import RecordedReply

from callboard.actors.base import Actor, ActorRef, Echo, ResilientActor
from callboard.runtime.engine.dispatcher import MESSAGES_A_TURN
from callboard.runtime.engine.mailbox import Mailbox, SharedMailbox
from callboard.runtime.engine.system import System

actor_system = system_fixture(*REAL, *SIMULATIONS)
real_system = system_fixture(*REAL)


# Messages ------------------------------------------------------------------------------------------------------------


def test_messages_are_handled_in_order_after_on_start(actor_system: SystemHarness) -> None:
    received: list[Any] = []
    player = actor_system.spawn(Player, received)
    for number in range(3 * MESSAGES_A_TURN):
        player.tell(Say(number))
    player.ask(Say("last"))
    assert received == ["start", *map(str, range(3 * MESSAGES_A_TURN)), "last"]


def test_echo_is_answered_after_messages_before_it(actor_system: SystemHarness) -> None:
    received: list[Any] = []
    player = actor_system.spawn(Player, received)
    for number in range(3 * MESSAGES_A_TURN):
        player.tell(Say(number))
    assert player.ask(Echo()) is None
    assert len(received) == 1 + 3 * MESSAGES_A_TURN


class Early(Player):
    """Sends itself a message in its constructor."""

    def __init__(self, received: list[Any]) -> None:
        super().__init__(received)
        self.actor_ref.tell(Say("to myself"))


def test_message_sent_before_start_is_handled_after_start(actor_system: SystemHarness) -> None:
    received: list[Any] = []
    actor_system.spawn(Early, received).ask(Say("from outside"))
    assert received == ["start", "to myself", "from outside"]


def test_messages_of_four_threads_are_all_handled_in_order(real_system: SystemHarness) -> None:
    """The messages of each of four threads keep their order."""
    received: list[str] = []
    player = real_system.spawn(Player, received)

    def send(name: str) -> None:
        for number in range(2000):
            player.tell(Say(f"{name}{number}"))

    threads = [threading.Thread(target=send, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    player.ask(Say("end"))
    assert len(received) == 2 + 4 * 2000
    for name in "abcd":
        assert [text for text in received if text[0] == name] == [f"{name}{number}" for number in range(2000)]


class CountsOverlaps(Player):
    """Counts the calls of its handler that overlap with another."""

    running = 0
    overlaps = 0

    def say(self, message: Say) -> str:
        self.running += 1
        self.overlaps += self.running > 1
        for _ in range(20):
            threading.Event().wait(0)  # let other threads run
        self.running -= 1
        return ""


def test_actor_handles_one_message_at_a_time(real_system: SystemHarness) -> None:
    """With four workers and four sending threads too."""
    player = real_system.spawn(CountsOverlaps)

    def send() -> None:
        for number in range(50):
            player.ask(Say(number))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert player.ask(do(lambda actor: (actor.running, actor.overlaps))) == (0, 0)


@pytest.mark.parametrize(("workers", "kind"), [(1, Mailbox), (2, SharedMailbox)])
def test_with_several_workers_mailbox_is_shared_mailbox(workers: int, kind: type[Mailbox]) -> None:
    """With a GIL both behave alike; without a GIL several workers need SharedMailbox."""
    with System.on_threads(workers) as system:
        assert type(system.spawn(Player).actor_inbox) is kind


# Replies -------------------------------------------------------------------------------------------------------------


def test_ask_returns_the_answer(actor_system: SystemHarness) -> None:
    player = actor_system.spawn(Player)
    reply = player.ask(Say("x"), block=False)
    assert reply.get() == "heard x"
    assert reply.get() == "heard x", "get() may be called again"
    assert reply.done()
    assert player.ask(do(lambda _: None)) is None


def test_message_without_handler_raises_type_error(actor_system: SystemHarness) -> None:
    player = actor_system.spawn(Player)
    with pytest.raises(TypeError, match=r"no handler for dict; its handlers: \['call', 'fail', 'say'\]"):
        player.ask({})
    assert player.ask(Say("on")) == "heard on"


def test_told_message_without_handler_is_logged_and_dropped(
    actor_system: SystemHarness, caplog: pytest.LogCaptureFixture
) -> None:
    player = actor_system.spawn(Player)
    with caplog.at_level(logging.ERROR, "pykka"):
        player.tell({})
        assert player.ask(Say("on")) == "heard on"
    assert "a message was dropped: " in caplog.text
    assert "has no handler for dict" in caplog.text


async def _asynchronous(_actor: Any, _message: Any) -> None: ...


@pytest.mark.parametrize(
    ("attributes", "complaint"),
    [
        ({}, "the class has no such method"),
        ({"answer": 1}, "the class has no such method"),
        ({"answer": _asynchronous}, "which is `async def`: a handler is a plain method"),
    ],
)
def test_class_with_invalid_handler_is_refused(attributes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TypeError, match=f"Wrong.handlers has the method 'answer' for Say, .*{complaint}"):
        type("Wrong", (Actor,), {"handlers": {Say: "answer"}, **attributes})


@pytest.mark.parametrize("name", ["stop", "on_receive", "spawn", "save_state", "reply_to"])
def test_class_with_handler_named_like_attribute_of_actor_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"'{name}' is an attribute of Actor itself: choose another name"):
        type("Wrong", (Actor,), {"handlers": {Say: name}, name: lambda _self, _message: None})


class WithoutSuper(Actor):
    """Its constructor does not call that of Actor, which is not necessary."""

    handlers = {Say: "answer"}

    def __init__(self, word: str) -> None:
        self.word = word

    def answer(self, message: Say) -> str:
        return f"{self.word} {message}"


def test_actor_without_call_of_super_constructor_works(actor_system: SystemHarness) -> None:
    ref = actor_system.spawn(WithoutSuper, "heard")
    assert str(ref.ask(Say("x"))).startswith("heard")
    assert ref.stop() is True


class Plain(Actor):
    """An actor as in pykka: it has on_receive and no table of handlers."""

    def on_receive(self, message: Any) -> Any:
        return message * 2 if message else super().on_receive(message)


def test_actor_without_handlers_behaves_like_pykka_actor(
    actor_system: SystemHarness, caplog: pytest.LogCaptureFixture
) -> None:
    plain = actor_system.spawn(Plain)
    assert plain.ask(21) == 42
    with caplog.at_level(logging.WARNING, "pykka"):
        assert plain.ask(0) is None
    assert f"Unexpected message received by {plain}: 0" in caplog.text


class UpperCase(Player):
    def say(self, message: Say) -> str:
        return super().say(message).upper()


def test_subclass_overrides_handler_method(actor_system: SystemHarness) -> None:
    """The table of handlers has names of methods, which are looked up in the actor's class."""
    assert actor_system.spawn(UpperCase).ask(Say("x")) == "HEARD X"


def test_error_in_asked_handler_is_raised_to_caller(actor_system: SystemHarness) -> None:
    """As in pykka, the actor continues if the caller gets the error."""
    player = actor_system.spawn(Player)
    with pytest.raises(ValueError, match="bug"):
        player.ask(Fail("bug"))
    assert player.ask(Say("on")) == "heard on"


class Failing(Player):
    def on_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
        self.received.append((exception_type, str(exception_value), traceback is not None))


def test_error_in_told_handler_stops_only_that_actor(
    actor_system: SystemHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """As in pykka, ``on_failure`` runs instead of ``on_stop``, and waiting messages are refused."""
    received: list[Any] = []
    broken, healthy = actor_system.spawn(Failing, received), actor_system.spawn(Player)
    with caplog.at_level(logging.ERROR, "pykka"), actor_system.paused(broken):
        broken.tell(Fail("bug"))
        waiting = broken.ask(Say("later"), block=False)
    with pytest.raises(pykka.ActorDeadError):
        waiting.get()
    assert received == ["start", (ValueError, "bug", True)]
    assert f"Unhandled exception in {broken}" in caplog.text
    assert "ValueError: bug" in caplog.text
    assert healthy.ask(Say("x")) == "heard x"
    assert actor_system.system.actors() == [healthy]


def test_deferred_answer_settles_reply_later(actor_system: SystemHarness) -> None:
    """The handler keeps ``reply_to`` and returns DEFERRED; other messages are handled meanwhile."""
    player = actor_system.spawn(Player)
    reply = player.ask(Call((keep_reply,)), block=False)
    assert player.ask(Say("x")) == "heard x"
    assert not reply.done()
    player.tell(Call((settle_reply,)))
    assert reply.get() == "at last"


def test_post_sends_answer_to_given_reply(actor_system: SystemHarness) -> None:
    player, fine, wrong = actor_system.spawn(Player), RecordedReply(), RecordedReply()
    player.post(Say("x"), fine)
    player.post(Fail("y"), wrong)
    assert player.ask(Say("z")) == "heard z", "as with ask, the error goes to the sender and the actor continues"
    assert fine.value == "heard x"
    assert [str(error) for error in wrong.errors] == ["y"]


class FailingReply(RecordedReply):
    """A reply that raises when it is set."""

    def set(self, value: Any = None) -> None:
        raise OSError("set failed")

    def set_exception(self, exc_info: Any = None) -> None:
        raise OSError("set_exception failed")


class ResilientPlayer(ResilientActor, Player):
    """A Player that continues after any error."""


@pytest.mark.parametrize("kind", [Player, ResilientPlayer])
def test_reply_that_raises_in_set_does_not_harm_actor(actor_system: SystemHarness, kind: type[Player]) -> None:
    """The actor continues. No error escapes from its turn, or when its last messages are refused."""
    received: list[Any] = []
    first, second = actor_system.spawn(kind, received), actor_system.spawn(kind)
    first.post(Say("x"), FailingReply())
    first.post(Fail("x"), FailingReply())
    assert first.ask(Say("y")) == "heard y"
    assert received == ["start", "x", "y"]
    with actor_system.paused(second):
        second.stop(block=False)
        second.post(Say("x"), FailingReply())
        refused = second.ask(Say("y"), block=False)
    with pytest.raises(pykka.ActorDeadError):
        refused.get()


def test_failing_callback_of_reply_does_not_harm_actor(
    actor_system: SystemHarness, caplog: pytest.LogCaptureFixture
) -> None:
    player = actor_system.spawn(Player)
    received: list[Any] = []

    def fail(_: Any) -> None:
        raise ValueError("in the callback")

    with actor_system.paused(player):
        reply = player.ask(Say("x"), block=False)
        reply.on_done(fail)
        reply.on_done(lambda future: received.append(future.get()))
    assert player.ask(Say("y")) == "heard y"
    assert received == ["heard x"], "the other callbacks are called all the same"
    assert "ValueError: in the callback" in caplog.text


def test_answer_to_closed_foreign_loop_does_not_harm_actor(real_system: SystemHarness) -> None:
    """A caller asks from its own event loop and closes the loop before the reply is set."""
    player = real_system.spawn(Player)
    reply = player.ask(Call((keep_reply,)), block=False)

    async def mark_timed_out() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reply, 0.001)

    with asyncio.Runner(loop_factory=lambda: new_loop("asyncio")) as runner:
        runner.run(mark_timed_out())
    assert player.ask(Call((settle_reply,))) is None
    assert reply.get() == "at last"
    assert player.is_alive()


# Proxies -------------------------------------------------------------------------------------------------------------


class Counter(Actor):
    """An actor as in pykka, whose methods are called through a proxy."""

    colour = "red"

    def __init__(self) -> None:
        super().__init__()
        self.sum = 0

    def add(self, number: int) -> int:
        self.sum += number
        return self.sum

    def fail(self) -> None:
        raise ValueError("bug")


def test_proxy_gets_sets_and_calls(actor_system: SystemHarness) -> None:
    counter = actor_system.spawn(Counter)
    proxy = counter.proxy()
    assert proxy.add(3).get() == 3
    proxy.add.defer(4)
    assert proxy.sum.get() == 7
    proxy.colour = "blue"
    assert proxy.colour.get() == "blue"
    with pytest.raises(ValueError, match="bug"):
        proxy.fail().get()
    with pytest.raises(AttributeError, match="has no attribute 'weight'"):
        _ = proxy.weight
    assert proxy.stop().get() is None
    actor_system.until(lambda: not counter.is_alive())
    with pytest.raises(pykka.ActorDeadError):
        counter.proxy()


# Dispatchers ---------------------------------------------------------------------------------------------------------


def test_actor_started_in_handler_belongs_to_same_dispatcher(actor_system: SystemHarness) -> None:
    """Children from ``start`` and ``spawn`` run on their parent's dispatcher, even if another system is running."""
    with System.simulated() as other:
        other.spawn(Player).ask(Say("x"))
        player = actor_system.spawn(Player)
        started: ActorRef = player.ask(do(lambda _: Player.start(name="child ")))
        spawned: ActorRef = player.ask(do(lambda actor: actor.spawn(Player, name="child ")))
        for child in (started, spawned):
            assert child.ask(Say("x")) == "heard x"
            assert child.actor_inbox.dispatcher is actor_system.system.dispatcher
        assert actor_system.system.actors() == [player, started, spawned]


def test_start_outside_of_a_system_raises_runtime_error() -> None:
    with pytest.raises(RuntimeError, match=r"no system is current here: start actors with System\.spawn"):
        Player.start()


def test_pykka_actors_and_engine_actors_exchange_messages(real_system: SystemHarness) -> None:
    """An actor of pykka has its own thread, so it may block on an actor of the engine."""
    player = real_system.spawn(Player)

    class Forwarder(pykka.ThreadingActor):
        def on_receive(self, message: Any) -> Any:
            return player.ask(message)

    forwarder = Forwarder.start()
    try:
        assert forwarder.ask(Say("x"), timeout=WAIT_TIMEOUT_S) == "heard x"
        reply = player.ask(do(lambda _: forwarder.ask(Say("y"), block=False)))
        assert reply.get(timeout=WAIT_TIMEOUT_S) == "heard y"
    finally:
        forwarder.stop()


def test_message_after_turn_is_handled_after_ready_mailboxes(actor_system: SystemHarness) -> None:
    """``tell_self_after_turn`` sends after all mailboxes that are ready; a ``tell`` in the same turn comes first."""
    received: list[str] = []
    player, other = actor_system.spawn(Player, received), actor_system.spawn(Player, received, "other ")
    actor_system.wait_until_handled(other)

    def send(actor: Player) -> None:
        actor.tell_self_after_turn(Say("later"))
        actor.actor_ref.tell(Say("soon"))
        other.tell(Say("soon"))

    player.tell(do(send))
    actor_system.until(lambda: "later" in received and "other soon" in received)
    assert received.index("later") > received.index("soon")
    if len(actor_system.system.dispatcher.counters.workers) == 1:  # with more workers the other turn may end later
        assert received[-1] == "later"


def test_message_after_turn_to_stopped_actor_is_dropped(actor_system: SystemHarness) -> None:
    player, other = actor_system.spawn(Player), actor_system.spawn(Player)

    def send_and_stop(actor: Player) -> None:
        actor.tell_self_after_turn(Say("never"))
        actor.stop()

    player.ask(do(send_and_stop))
    actor_system.until(lambda: not player.is_alive())
    assert other.ask(Say("x")) == "heard x", "the worker continues"


def test_actor_label_and_urn_are_unique(actor_system: SystemHarness) -> None:
    """Each has a short label, the same in each run, and a URN as in pykka."""
    refs = [actor_system.spawn(Player) for _ in range(3)]
    assert [ref.actor_inbox.label for ref in refs] == [f"Player-{number}" for number in (1, 2, 3)]
    for ref, next_ref in itertools.pairwise(refs):
        assert ref.actor_urn != next_ref.actor_urn
        assert ref.actor_urn == ref.actor_urn
        assert str(ref) == f"Player ({ref.actor_urn})"
    assert actor_system.system.registry.get_by_urn(refs[1].actor_urn) == refs[1]
