"""Limits of the engine, on every dispatcher: the length of turns, full mailboxes and the memory of an actor."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pykka
import pytest
from actor_system.players import (
    LOOPS,
    REAL,
    SIMULATIONS,
    WAIT_TIMEOUT_S,
    Fail,
    Play,
    Player,
    Say,
    SystemHarness,
    do,
    play_on,
    system_fixture,
    without_garbage_collector,
)
from actor_system.ports import RecordedReply

from callboard.actors.base import Actor, ActorRef, MailboxFull, Overflow, Supervision
from callboard.actors.timer.messages import Expired
from callboard.runtime.engine.counters import TurnCounters
from callboard.runtime.engine.dispatcher import MESSAGES_A_TURN, tell_if_alive
from callboard.runtime.engine.incarnation import is_passivated
from callboard.runtime.engine.mailbox import mailbox_of
from callboard.runtime.engine.reply import Reply
from callboard.runtime.engine.system import System

actor_system = system_fixture(*REAL, *SIMULATIONS)
real_system = system_fixture(*REAL)
fifo_system = system_fixture(*LOOPS, "threads-1", "simulation")  # these run ready actors in order
mailbox_system = system_fixture("asyncio", "threads-4", "simulation")
play = pytest.fixture(params=LOOPS)(play_on)


# Turns ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def short_switch_interval() -> Iterator[None]:
    """Sets the switch interval as ``callboard serve`` does.

    A busy event loop releases the GIL every 2 ms to poll its sockets, and takes it again before another thread has
    woken up. With Python's default switch interval of 5 ms the other thread may not run for seconds.
    """
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    yield
    sys.setswitchinterval(before_s)


def test_actor_with_many_messages_delays_others_by_one_turn(fifo_system: SystemHarness) -> None:
    """An actor has a thousand messages; the message of another waits for one turn of it, not for all of them."""
    received: list[str] = []
    busy, quiet = fifo_system.spawn(Player, received), fifo_system.spawn(Player, received)
    with fifo_system.paused(busy):
        for number in range(1000):
            busy.tell(Say(f"busy {number}"))
        quiet.tell(Say("quiet"))
    busy.ask(Say("end"))
    position = received.index("quiet")
    assert len([text for text in received[:position] if text.startswith("busy")]) <= MESSAGES_A_TURN


def test_asks_are_answered_while_another_actor_is_always_busy(
    real_system: SystemHarness, short_switch_interval: None
) -> None:
    """New actors are asked one after the other while another actor always has a message."""
    is_over = False

    def tell_again(actor: Player) -> None:
        if not is_over:
            actor.actor_ref.tell(do(tell_again))

    busy = real_system.spawn(Player)
    busy.tell(do(tell_again))
    for _ in range(3):
        assert real_system.spawn(Player).ask(Say("x")) == "heard x"
    is_over = True
    assert busy.ask(Say("x")) == "heard x"


def test_loop_callbacks_run_while_actors_are_always_busy(play: Play) -> None:
    """Callbacks of the loop run although two actors send each other messages without end."""

    async def body(system: System) -> None:
        pair: list[ActorRef] = []
        is_over = False

        def tell_other(to: int) -> Callable[[Player], None]:
            def count_turn(_player: Player) -> None:
                if not is_over:
                    pair[to].tell(do(tell_other(1 - to)))

            return count_turn

        pair += [system.spawn(Player), system.spawn(Player)]
        pair[0].tell(do(tell_other(1)))
        for _ in range(20):
            await asyncio.sleep(0)
        is_over = True
        await pair[0].ask(Say("x"), block=False)

    play(body)


# Full mailboxes ------------------------------------------------------------------------------------------------------


class Rejecting(Player):
    """Its mailbox refuses the sixth unread message."""

    high_water = 5


class Pausing(Player):
    """Its mailbox takes further messages, but asks the sender to wait."""

    high_water = 6
    overflow = Overflow.PAUSE


def fill(ref: ActorRef, count: int) -> None:
    for number in range(count):
        ref.tell(Say(number))


def test_full_mailbox_rejects_tell_and_ask(actor_system: SystemHarness) -> None:
    """The error names the remedy. Admitted messages are handled, and later ones are admitted again."""
    received: list[str] = []
    actor = actor_system.spawn(Rejecting, received)
    actor_system.wait_until_handled(actor)
    reply = RecordedReply()
    with actor_system.paused(actor):
        fill(actor, 5)
        with pytest.raises(MailboxFull, match=r"Rejecting-1 has 5 unread messages, and its high_water is 5; send less"):
            actor.tell(Say("too much"))
        refused = actor.ask(Say("too much"), block=False)
        assert refused.done(), "at once"
        actor.post(Say("too much"), reply)
    with pytest.raises(MailboxFull):
        refused.get()
    assert [type(error) for error in reply.errors] == [MailboxFull]
    actor_system.until(lambda: "4" in received)
    assert actor.ask(Say("x")) == "heard x"
    assert received == ["start", "0", "1", "2", "3", "4", "x"]


def test_full_mailbox_admits_stop(actor_system: SystemHarness) -> None:
    actor = actor_system.spawn(Rejecting)
    actor_system.wait_until_handled(actor)
    with actor_system.paused(actor):
        fill(actor, 5)
        stopped = actor.stop(block=False)
    assert stopped.get() is True


class RejectingWaiting(Rejecting):
    handlers = {**Rejecting.handlers, Expired: "on_expired"}

    def on_expired(self, message: Expired) -> None:
        self.received += message.names


def test_full_mailbox_admits_expired(actor_system: SystemHarness) -> None:
    """Expired is sent once, and the timer actor sends it to all owners: an error would lose the others' deadlines."""
    received: list[str] = []
    waiting = actor_system.spawn(RejectingWaiting, received)
    actor_system.wait_until_handled(waiting)
    with actor_system.paused(waiting):
        fill(waiting, 5)
        waiting.tell(Expired(("soon", "now")))
    actor_system.until(lambda: received[-2:] == ["soon", "now"])


class RejectingPassivated(Rejecting):
    may_passivate = True


def test_full_mailbox_of_passivated_actor_rejects_messages(actor_system: SystemHarness) -> None:
    """Messages may arrive faster than the actor is activated."""
    actor, other = actor_system.spawn(RejectingPassivated), actor_system.spawn(Player)
    actor.ask(do(lambda actor: actor.passivate()))
    actor_system.until(lambda: is_passivated(mailbox_of(actor)))

    def flood(_: Player) -> int:
        for number in range(1_000_000):
            try:
                actor.tell(Say(number))
            except MailboxFull:
                return number
        return -1

    admitted = other.ask(do(flood))
    workers = len(actor_system.system.dispatcher.counters.workers)
    assert admitted == 5 or (workers > 1 and admitted > 5), "another worker may handle messages meanwhile"
    assert actor_system.spawn(Player).ask(Say("x")) == "heard x"


class SupervisedRejecting(Rejecting):
    supervision = Supervision()


def test_message_after_turn_to_full_mailbox_is_a_dead_letter(actor_system: SystemHarness) -> None:
    """If the mailbox is full when the delayed message is sent, no caller gets the error, so it is counted."""
    actor = actor_system.spawn(Rejecting)
    actor_system.wait_until_handled(actor)
    with actor_system.paused(actor):
        fill(actor, 5)
        tell_if_alive(actor, Say("later"))
    assert actor_system.system.dispatcher.dead_letters.by_class == {"Say": 1}


def test_room_with_pause_overflow_is_settled_when_half_empty(actor_system: SystemHarness) -> None:
    """``room`` is done at once while there is room, else as soon as half of the mailbox is empty."""
    received: list[str] = []
    actor = actor_system.spawn(Pausing, received)
    actor_system.wait_until_handled(actor)
    assert actor.room().done()
    sizes: list[int] = []
    with actor_system.paused(actor):
        fill(actor, 8)
        room = actor.room()
        assert not room.done()
        room.on_done(lambda _: sizes.append(len(actor.actor_inbox.queue)))
    assert room.get() is None
    assert sizes[0] <= 3
    actor_system.wait_until_handled(actor)
    assert received == ["start", *map(str, range(8))]


class PausableReply(RecordedReply):
    """A reply whose sender can be paused, as that of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.rooms: list[Reply] = []

    def wait_for_room(self, room: Reply) -> None:
        self.rooms.append(room)


def test_full_mailbox_passes_room_future_to_reply(actor_system: SystemHarness) -> None:
    """The message is handled, and its reply gets a future to wait for before the next message."""
    actor = actor_system.spawn(Pausing)
    actor_system.wait_until_handled(actor)
    before, above = PausableReply(), PausableReply()
    with actor_system.paused(actor):
        actor.post(Say("x"), before)
        fill(actor, 6)
        actor.post(Say("y"), above)
        assert actor.ask(Say("z"), block=False).done() is False, "the sender of a plain future is not paused"
        assert before.rooms == []
        assert [room.done() for room in above.rooms] == [False]
    above.rooms[0].get()
    actor_system.wait_until_handled(actor)
    assert (before.value, above.value) == ("heard x", "heard y")


def test_room_of_stopping_actor_is_settled(actor_system: SystemHarness) -> None:
    """A wait for room ends when the actor stops; messages after that are refused."""
    actor = actor_system.spawn(Pausing)
    actor_system.wait_until_handled(actor)
    with actor_system.paused(actor):
        actor.tell(Fail("bug"))
        fill(actor, 8)
        room = actor.room()
    assert room.get() is None
    actor_system.until(lambda: not actor.is_alive())
    assert actor.room().done()
    with pytest.raises(pykka.ActorDeadError):
        actor.tell(Say("x"))


def test_room_of_closed_dispatcher_is_settled() -> None:
    """The dispatcher ends before the actor handles its messages."""
    with System.simulated() as system:
        actor = system.spawn(Pausing)
        fill(actor, 8)
        room = actor.room()
        assert not room.done()
        mailbox_of(actor).abandon()
        assert room.done()
        assert system.stats().dead_letters == 8


def test_room_is_settled_if_mailbox_drains_during_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mailbox is full at the check and empty when the future is created."""
    with System.simulated() as system:
        actor = system.spawn(Pausing)
        fill(actor, 8)

        @contextmanager
        def drain_first() -> Iterator[None]:
            system.dispatcher.run()  # type: ignore[attr-defined]
            yield

        monkeypatch.setattr("callboard.runtime.engine.mailbox._creation_lock", drain_first())
        assert actor.room().done()


def test_several_threads_wait_for_room(real_system: SystemHarness) -> None:
    """The mailbox stays small although four producers wait for room."""
    actor = real_system.spawn(Pausing)
    deepest: list[int] = []

    def produce() -> None:
        for number in range(300):
            actor.room().get(timeout=WAIT_TIMEOUT_S)
            actor.tell(Say(number))
            deepest.append(len(actor.actor_inbox.queue))

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert actor.ask(do(lambda actor: len(actor.received))) == 1 + 4 * 300
    assert max(deepest) <= 6 + 4, "each thread may see room that another one fills"


def test_coroutine_waits_for_room(play: Play) -> None:
    async def body(system: System) -> None:
        actor = system.spawn(Pausing)
        for number in range(200):
            await asyncio.wait_for(actor.room(), WAIT_TIMEOUT_S)
            actor.tell(Say(number))
            assert len(actor.actor_inbox.queue) <= 6
        assert await actor.ask(do(lambda actor: len(actor.received)), block=False) == 201

    play(body)


# Memory --------------------------------------------------------------------------------------------------------------

ACTOR_BYTES_MAX = 1500


class Idle(Actor):
    """An actor without state."""

    def on_receive(self, message: int) -> bytes:
        return bytes(message)


@pytest.mark.parametrize("has_large_replies", [False, True])
def test_idle_actor_uses_little_memory(mailbox_system: SystemHarness, has_large_replies: bool) -> None:
    """After its reply, which may be large, only the actor, its mailbox and its reference stay in memory."""
    count = 3_000
    mailbox_system.spawn(Idle).ask(0)
    gc.collect()
    tracemalloc.start()
    try:
        refs = [mailbox_system.spawn(Idle) for _ in range(count)]
        reply_bytes = 10_000 if has_large_replies else 0
        for reply in [ref.ask(reply_bytes, block=False) for ref in refs]:
            assert len(reply.get()) == reply_bytes
        del reply
        bytes_per_actor = tracemalloc.get_traced_memory()[0] / count
    finally:
        tracemalloc.stop()
    assert bytes_per_actor <= ACTOR_BYTES_MAX


@pytest.mark.parametrize("end", ["stop", "bug"])
def test_stopped_actor_is_freed_without_garbage_collector(actor_system: SystemHarness, end: str) -> None:
    """Reference counts free it, so a program may disable the garbage collector."""
    with without_garbage_collector():
        player = actor_system.spawn(Player)
        instance = weakref.ref(player.actor_inbox.actor)
        player.ask(Say("x"))
        assert instance() is not None
        if end == "stop":
            player.stop()
        else:
            player.tell(Fail("bug"))
        actor_system.until(lambda: not player.is_alive())
        actor_system.until(lambda: instance() is None)


def test_instance_with_bug_is_freed_without_garbage_collector(actor_system: SystemHarness) -> None:
    player = actor_system.spawn(SupervisedRejecting)
    with without_garbage_collector():
        first = weakref.ref(player.actor_inbox.actor)
        assert first() is not None
        player.tell(Fail("bug"))
        assert player.ask(Say("x")) == "heard x"
        actor_system.until(lambda: first() is None)


def test_failed_actor_is_freed_without_garbage_collector(actor_system: SystemHarness) -> None:
    """The instances that failed to start are freed too."""

    class Broken(Player):
        supervision = Supervision()

        def __init__(self) -> None:
            super().__init__()
            instances.append(weakref.ref(self))

        def on_start(self) -> None:
            raise ValueError("bug")

    instances: list[weakref.ref[Any]] = []
    with without_garbage_collector():
        actor = actor_system.spawn(Broken)
        actor_system.until(lambda: not actor.is_alive())
        actor_system.until(lambda: all(instance() is None for instance in instances))
    assert len(instances) == 4


# Counters ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elapsed_ns", [0, 1, 100, 2_000_000, 2**31 * 1000, 10**18])
def test_turn_of_any_length_is_counted(elapsed_ns: int) -> None:
    """A suspended machine, for example, makes a turn very long."""
    counters = TurnCounters()
    counters.count_turn(elapsed_ns)
    assert sum(counters.turns) == 1
    bucket = counters.turns.index(1)
    assert 2**bucket // 2 <= elapsed_ns < 2**bucket
    assert counters.longest_turn_ns == elapsed_ns
