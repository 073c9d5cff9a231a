"""Limits of the runtime, on every dispatcher: a turn for everybody, full mailboxes that say so, few bytes an actor."""

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
from callboard.runtime.engine.dispatcher import MESSAGES_A_TURN, tell_if_alive
from callboard.runtime.engine.mailbox import mailbox_of
from callboard.runtime.engine.reply import Reply
from callboard.runtime.engine.stats import TurnCounters
from callboard.runtime.engine.system import System

actor_system = system_fixture(*REAL, *SIMULATIONS)
real_system = system_fixture(*REAL)
in_line_stage = system_fixture(*LOOPS, "threads-1", "simulation")  # those that take who is ready in line
each_mailbox_stage = system_fixture("asyncio", "threads-4", "simulation")
play = pytest.fixture(params=LOOPS)(play_on)


# Turns ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """As ``callboard serve`` sets it.

    A busy event loop lets go of the interpreter every 2 ms, to look at its sockets, and takes it again before another
    thread has woken up; with Python's 5 ms between forced switches that other thread may not run for seconds.
    """
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    yield
    sys.setswitchinterval(before_s)


def test_actor_with_many_messages_delays_others_by_one_turn(in_line_stage: SystemHarness) -> None:
    """One has a thousand messages; another's single one waits for a turn of the first, not for all of them."""
    received: list[str] = []
    busy, quiet = in_line_stage.spawn(Player, received), in_line_stage.spawn(Player, received)
    with in_line_stage.paused(busy):
        for number in range(1000):
            busy.tell(Say(f"busy {number}"))
        quiet.tell(Say("quiet"))
    busy.ask(Say("end"))
    position = received.index("quiet")
    assert len([one for one in received[:position] if one.startswith("busy")]) <= MESSAGES_A_TURN


def test_asks_are_answered_while_another_actor_is_always_busy(real_system: SystemHarness, quick_switches: None) -> None:
    """Other actors are asked, one after the other, while one has always something to do."""
    is_over = False

    def hit_again(one: Player) -> None:
        if not is_over:
            one.actor_ref.tell(do(hit_again))

    busy = real_system.spawn(Player)
    busy.tell(do(hit_again))
    for _ in range(3):
        assert real_system.spawn(Player).ask(Say("x")) == "heard x"
    is_over = True
    assert busy.ask(Say("x")) == "heard x"


def test_loop_callbacks_run_while_actors_are_always_busy(play: Play) -> None:
    """Two actors send each other messages for ever; a callback of the loop has its turn all the same."""

    async def body(system: System) -> None:
        pair: list[ActorRef] = []
        is_over = False

        def hit(to: int) -> Callable[[Player], None]:
            def count_turn(_player: Player) -> None:
                if not is_over:
                    pair[to].tell(do(hit(1 - to)))

            return count_turn

        pair += [system.spawn(Player), system.spawn(Player)]
        pair[0].tell(do(hit(1)))
        for _ in range(20):
            await asyncio.sleep(0)
        is_over = True
        await pair[0].ask(Say("still here"), block=False)

    play(body)


# Full mailboxes ------------------------------------------------------------------------------------------------------


class Choosy(Player):
    """Refuses the sixth unread message."""

    high_water = 5


class Patient(Player):
    """Takes it, but asks its source to wait."""

    high_water = 6
    overflow = Overflow.PAUSE


def fill(ref: ActorRef, count: int) -> None:
    for number in range(count):
        ref.tell(Say(number))


def test_full_mailbox_rejects_tell_and_ask(actor_system: SystemHarness) -> None:
    """In words that say what to do; nothing that was taken is lost, and there is room again afterwards."""
    received: list[str] = []
    choosy = actor_system.spawn(Choosy, received)
    actor_system.wait_until_handled(choosy)
    place = RecordedReply()
    with actor_system.paused(choosy):
        fill(choosy, 5)
        with pytest.raises(MailboxFull, match=r"Choosy-1 has 5 unread messages, and its high_water is 5; send less"):
            choosy.tell(Say("too much"))
        refused = choosy.ask(Say("too much"), block=False)
        assert refused.done(), "at once"
        choosy.post(Say("too much"), place)
    with pytest.raises(MailboxFull):
        refused.get()
    assert [type(error) for error in place.errors] == [MailboxFull]
    actor_system.until(lambda: "4" in received)
    assert choosy.ask(Say("x")) == "heard x"
    assert received == ["start", "0", "1", "2", "3", "4", "x"]


def test_full_mailbox_admits_stop(actor_system: SystemHarness) -> None:
    choosy = actor_system.spawn(Choosy)
    actor_system.wait_until_handled(choosy)
    with actor_system.paused(choosy):
        fill(choosy, 5)
        stopped = choosy.stop(block=False)
    assert stopped.get() is True


class ChoosyWaiting(Choosy):
    handlers = {**Choosy.handlers, Expired: "on_expired"}

    def on_expired(self, message: Expired) -> None:
        self.received += message.names


def test_full_mailbox_admits_expired(actor_system: SystemHarness) -> None:
    """That comes once; and an owner who refused his would cost all others theirs, since one actor tells all."""
    received: list[str] = []
    waiting = actor_system.spawn(ChoosyWaiting, received)
    actor_system.wait_until_handled(waiting)
    with actor_system.paused(waiting):
        fill(waiting, 5)
        waiting.tell(Expired(("soon", "now")))
    actor_system.until(lambda: received[-2:] == ["soon", "now"])


class ChoosySleeper(Choosy):
    may_passivate = True


def test_full_mailbox_of_passivated_actor_rejects_messages(actor_system: SystemHarness) -> None:
    """Messages may come faster than it wakes up."""
    sleeper, other = actor_system.spawn(ChoosySleeper), actor_system.spawn(Player)
    sleeper.ask(do(lambda one: one.passivate()))
    actor_system.until(lambda: mailbox_of(sleeper).is_passivated)

    def flood(_: Player) -> int:
        for number in range(1_000_000):
            try:
                sleeper.tell(Say(number))
            except MailboxFull:
                return number
        return -1

    taken = other.ask(do(flood))
    workers = len(actor_system.system.dispatcher.turn_counters)
    assert taken == 5 or (workers > 1 and taken > 5), "with more workers somebody reads meanwhile"
    assert actor_system.spawn(Player).ask(Say("x")) == "heard x"


class Forgiven(Choosy):
    supervision = Supervision()


def test_message_after_turn_to_full_mailbox_is_a_dead_letter(actor_system: SystemHarness) -> None:
    """A message to oneself finds the mailbox full when its time has come: nobody can be told, so it is counted."""
    choosy = actor_system.spawn(Choosy)
    actor_system.wait_until_handled(choosy)
    with actor_system.paused(choosy):
        fill(choosy, 5)
        tell_if_alive(choosy, Say("later"))
    assert actor_system.system.dispatcher.dead_letters.by_class == {"Say": 1}


def test_room_with_pause_overflow_is_settled_when_half_empty(actor_system: SystemHarness) -> None:
    """A sender may wait for room: at once while there is some, else until half of the mailbox is empty."""
    received: list[str] = []
    patient = actor_system.spawn(Patient, received)
    actor_system.wait_until_handled(patient)
    assert patient.room().done()
    seen: list[int] = []
    with actor_system.paused(patient):
        fill(patient, 8)
        room = patient.room()
        assert not room.done()
        room.on_done(lambda _: seen.append(len(patient.actor_inbox.queue)))
    assert room.get() is None
    assert seen[0] <= 3
    actor_system.wait_until_handled(patient)
    assert received == ["start", *map(str, range(8))]


class Source(RecordedReply):
    """A place that can hold its source back, as a connection's can."""

    def __init__(self) -> None:
        super().__init__()
        self.rooms: list[Reply] = []

    def wait_for_room(self, room: Reply) -> None:
        self.rooms.append(room)


def test_full_mailbox_passes_room_future_to_reply(actor_system: SystemHarness) -> None:
    """The message is taken, and answered; its source is given a future to wait for before the next."""
    patient = actor_system.spawn(Patient)
    actor_system.wait_until_handled(patient)
    before, above = Source(), Source()
    with actor_system.paused(patient):
        patient.post(Say("x"), before)
        fill(patient, 6)
        patient.post(Say("y"), above)
        assert patient.ask(Say("z"), block=False).done() is False, "a plain future cannot be held back"
        assert before.rooms == []
        assert [room.done() for room in above.rooms] == [False]
    above.rooms[0].get()
    actor_system.wait_until_handled(patient)
    assert (before.value, above.value) == ("heard x", "heard y")


def test_room_of_stopping_actor_is_settled(actor_system: SystemHarness) -> None:
    """Who waits for room at an actor that ends is not forgotten; what he sends then is refused."""
    patient = actor_system.spawn(Patient)
    actor_system.wait_until_handled(patient)
    with actor_system.paused(patient):
        patient.tell(Fail("bug"))
        fill(patient, 8)
        room = patient.room()
    assert room.get() is None
    actor_system.until(lambda: not patient.is_alive())
    assert patient.room().done()
    with pytest.raises(pykka.ActorDeadError):
        patient.tell(Say("x"))


def test_room_of_closed_dispatcher_is_settled() -> None:
    """What ran the actor has ended before it could."""
    with System.simulated() as system:
        patient = system.spawn(Patient)
        fill(patient, 8)
        room = patient.room()
        assert not room.done()
        mailbox_of(patient).abandon()
        assert room.done()
        assert system.stats().dead_letters == 8


def test_room_is_settled_if_mailbox_drains_during_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mailbox was full when he looked, and is empty when he sits down to wait."""
    with System.simulated() as system:
        patient = system.spawn(Patient)
        fill(patient, 8)

        @contextmanager
        def drain_first() -> Iterator[None]:
            system.dispatcher.run()  # type: ignore[attr-defined]
            yield

        monkeypatch.setattr("callboard.runtime.engine.mailbox._creation_lock", drain_first())
        assert patient.room().done()


def test_several_threads_wait_for_room(real_system: SystemHarness) -> None:
    """They keep a producer from running away, whoever else waits."""
    patient = real_system.spawn(Patient)
    deepest: list[int] = []

    def produce() -> None:
        for number in range(300):
            patient.room().get(timeout=WAIT_TIMEOUT_S)
            patient.tell(Say(number))
            deepest.append(len(patient.actor_inbox.queue))

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert patient.ask(do(lambda one: len(one.received))) == 1 + 4 * 300
    assert max(deepest) <= 6 + 4, "a thread may see room that another takes"


def test_coroutine_waits_for_room(play: Play) -> None:
    async def body(system: System) -> None:
        patient = system.spawn(Patient)
        for number in range(200):
            await asyncio.wait_for(patient.room(), WAIT_TIMEOUT_S)
            patient.tell(Say(number))
            assert len(patient.actor_inbox.queue) <= 6
        assert await patient.ask(do(lambda one: len(one.received)), block=False) == 201

    play(body)


# Memory --------------------------------------------------------------------------------------------------------------

ACTOR_BYTES_MAX = 1500


class Idle(Actor):
    """As small as an actor can be."""

    def on_receive(self, message: int) -> bytes:
        return bytes(message)


@pytest.mark.parametrize("had_much_to_say", [False, True])
def test_idle_actor_uses_little_memory(each_mailbox_stage: SystemHarness, had_much_to_say: bool) -> None:
    """It has started and answered, perhaps at length: what is left is its mailbox, its reference and itself."""
    count = 10_000
    each_mailbox_stage.spawn(Idle).ask(0)
    gc.collect()
    tracemalloc.start()
    try:
        refs = [each_mailbox_stage.spawn(Idle) for _ in range(count)]
        answer_bytes = 10_000 if had_much_to_say else 0
        for reply in [ref.ask(answer_bytes, block=False) for ref in refs]:
            assert len(reply.get()) == answer_bytes
        del reply
        each_bytes = tracemalloc.get_traced_memory()[0] / count
    finally:
        tracemalloc.stop()
    assert each_bytes <= ACTOR_BYTES_MAX


@pytest.mark.parametrize("end", ["stop", "bug"])
def test_stopped_actor_is_freed_without_garbage_collector(actor_system: SystemHarness, end: str) -> None:
    """By reference counts alone; so a program may freeze or switch off the collector."""
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
    player = actor_system.spawn(Forgiven)
    with without_garbage_collector():
        first = weakref.ref(player.actor_inbox.actor)
        assert first() is not None
        player.tell(Fail("bug"))
        assert player.ask(Say("x")) == "heard x"
        actor_system.until(lambda: first() is None)


def test_failed_actor_is_freed_without_garbage_collector(actor_system: SystemHarness) -> None:
    """Also the instances that did not come to stand."""

    class Broken(Player):
        supervision = Supervision()

        def __init__(self) -> None:
            super().__init__()
            instances.append(weakref.ref(self))

        def on_start(self) -> None:
            raise ValueError("bug")

    instances: list[weakref.ref[Any]] = []
    with without_garbage_collector():
        broken = actor_system.spawn(Broken)
        actor_system.until(lambda: not broken.is_alive())
        actor_system.until(lambda: all(instance() is None for instance in instances))
    assert len(instances) == 4


# Counting ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elapsed_ns", [0, 1, 100, 2_000_000, 2**31 * 1000, 10**18])
def test_turn_of_any_length_is_counted(elapsed_ns: int) -> None:
    """A laptop that was closed in the middle of one, for example."""
    tally = TurnCounters()
    tally.count_turn(elapsed_ns)
    assert sum(tally.turns) == 1
    bucket = tally.turns.index(1)
    assert 2**bucket // 2 <= elapsed_ns < 2**bucket
    assert tally.longest_turn_ns == elapsed_ns
