"""What a system says about itself, on every dispatcher: who lives, what was lost, how it went, which led to what."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pykka
import pytest
from actor_system.players import (
    REAL,
    SIMULATIONS,
    THREADS,
    Call,
    Fail,
    Player,
    Say,
    SystemHarness,
    do,
    keep_reply,
    settle_reply,
    system_fixture,
)
from actor_system.ports import RecordedReply, TestClock

from callboard.actors.base import Actor, ActorRef, MailboxFull
from callboard.runtime.engine.dead_letters import DeadLetter, DeadLetters
from callboard.runtime.engine.mailbox import mailbox_of
from callboard.runtime.engine.simulation import Simulation
from callboard.runtime.engine.stats import ClassStats, MailboxDepth
from callboard.runtime.engine.system import System
from callboard.runtime.engine.trace import Traced, TracedEnvelope, as_line

actor_system = system_fixture(*REAL, *SIMULATIONS)
real_system = system_fixture(*REAL)
threads_stage = system_fixture(*THREADS)


class Singer(Player):
    """Another class, of the same kind."""


# The list of the living ----------------------------------------------------------------------------------------------


def test_registry_has_methods_of_pykka_registry(actor_system: SystemHarness) -> None:
    players, singer = [actor_system.spawn(Player) for _ in range(2)], actor_system.spawn(Singer)
    registry = actor_system.system.registry
    assert registry.get_all() == [*players, singer]
    assert len(registry) == 3
    assert registry.get_by_class(Singer) == [singer]
    assert registry.get_by_class(Player) == [*players, singer], "of this class or of one derived from it"
    assert registry.get_by_class_name("Player") == players
    assert registry.get_by_urn(singer.actor_urn) == singer
    assert registry.get_by_urn("urn:uuid:nobody") is None
    registry.unregister(singer)
    registry.unregister(singer)
    assert registry.get_by_class(Singer) == []
    registry.register(singer)
    assert registry.get_all() == [*players, singer]


@pytest.mark.parametrize(("target", "expected"), [(None, "abc"), (Singer, "c"), ("Player", "ab")])
def test_broadcast_to_class_reaches_all_its_actors(actor_system: SystemHarness, target: Any, expected: str) -> None:
    received: list[str] = []
    refs = [actor_system.spawn(kind, received, name) for kind, name in [(Player, "a"), (Player, "b"), (Singer, "c")]]
    actor_system.system.registry.broadcast(Say("!"), target)
    for ref in refs:
        actor_system.wait_until_handled(ref)
    assert sorted(one for one in received if "!" in one) == [f"{name}!" for name in expected]


def test_registry_may_change_while_it_is_read(threads_stage: SystemHarness) -> None:
    """A copy is taken, whatever other threads do to the list meanwhile."""
    is_over = threading.Event()

    def come_and_go() -> None:
        while not is_over.is_set():
            threads_stage.spawn(Player).stop()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(200):
            assert all(isinstance(ref, ActorRef) for ref in threads_stage.system.actors())
            assert threads_stage.system.stats().actors <= 2
    finally:
        is_over.set()
        thread.join()


# Numbers -------------------------------------------------------------------------------------------------------------


def test_stats_count_actors_and_messages(actor_system: SystemHarness) -> None:
    first, second, singer = (
        actor_system.spawn(Player),
        actor_system.spawn(Player),
        actor_system.spawn(Singer),
    )
    for ref in (first, second, singer):
        actor_system.wait_until_handled(ref)
    before = actor_system.system.stats()
    assert (before.actors, before.waiting, before.deepest) == (3, 0, ())
    with actor_system.paused(first):
        paused = 0 if actor_system.is_simulated() else 1
        for number in range(4):
            first.tell(Say(number))
        during = actor_system.system.stats()
        assert during.waiting == 4
        assert during.deepest == (MailboxDepth(first.actor_inbox.label, 4),)
        assert [(one.name, one.actors, one.waiting) for one in during.classes] == [("Player", 2, 4), ("Singer", 1, 0)]
    actor_system.wait_until_handled(first)
    second.stop()
    after = actor_system.system.stats()
    assert after.waiting == 0
    assert after.classes == (ClassStats("Player", 1, 0, 0, 8 + paused), ClassStats("Singer", 1, 0, 0, 1))
    assert after.handled == 9 + paused, "those of the dead count too"


def test_stats_measure_turns(real_system: SystemHarness) -> None:
    player = real_system.spawn(Player)
    for number in range(100):
        player.ask(Say(number))
    real_system.until(lambda: real_system.system.stats().turns.turns >= 1)
    turns = real_system.system.stats().turns
    assert 0 < turns.p50_us <= turns.p99_us <= turns.longest_us


def test_turns_in_simulation_have_no_duration() -> None:
    with System.simulated(1) as system:
        system.spawn(Player).ask(Say("x"))
        assert system.stats().turns == (0, 0.0, 0.0, 0.0)


def test_stats_name_only_deepest_mailboxes() -> None:
    with System.simulated() as system:
        refs = [system.spawn(Player) for _ in range(15)]
        for number, ref in enumerate(refs):
            for _ in range(number):
                ref.tell(Say("x"))
        assert system.stats().deepest == tuple(
            MailboxDepth(refs[number].actor_inbox.label, number) for number in range(14, 4, -1)
        )
        assert system.stats().waiting == sum(range(15))


# Dead letters --------------------------------------------------------------------------------------------------------


def test_dead_letters_are_counted_by_class(actor_system: SystemHarness) -> None:
    """What waits when its actor ends, and what comes after."""
    player = actor_system.spawn(Player)
    with actor_system.paused(player):
        player.stop(block=False)
        player.tell(Say("one"))
        player.ask(Say("two"), block=False)
        player.post(Fail("three"), RecordedReply())
    actor_system.until(lambda: not player.is_alive())
    actor_system.until(lambda: actor_system.system.stats().dead_letters == 3)
    player.ask(Say("four"), block=False)
    player.stop()
    assert actor_system.system.dispatcher.dead_letters.by_class == {"Say": 3, "Fail": 1}, "a stop is no letter"
    assert actor_system.system.stats().dead_letters == 4


def test_dead_letters_are_logged_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    dispatcher = Simulation(1)
    player = System(dispatcher).spawn(Player)
    player.stop()
    with caplog.at_level(logging.WARNING, "callboard.runtime"):
        for number in range(5):
            player.ask(Say(f"at once {number}"), block=False)
        dispatcher.advance(999)
        player.ask(Say("soon"), block=False)
        dispatcher.advance(1)
        player.ask(Say("a second later"), block=False)
        dispatcher.advance(60_000)
        player.ask(Say("much later"), block=False)
    assert [record.getMessage() for record in caplog.records] == [
        "1 messages to dead actors; the last: 'at once 0' to Player-1",
        "6 messages to dead actors; the last: 'a second later' to Player-1",
        "1 messages to dead actors; the last: 'much later' to Player-1",
    ]
    assert dispatcher.dead_letters.count == 8, "all are counted"
    assert [letter.message for letter in dispatcher.dead_letters.samples] == [
        "'at once 0'",
        "'a second later'",
        "'much later'",
    ]


class Unspeakable:
    def __repr__(self) -> str:
        raise ValueError("no words")


def test_dead_letter_samples_are_few_and_short() -> None:
    clock = TestClock()
    letters = DeadLetters(clock.monotonic_ms)
    for number in range(250):
        letters.add("somebody", f"{number} " + "x" * 1000)
        clock.now_ms += 1000
    assert len(letters.samples) == 100
    assert letters.samples[-1].message.startswith("'249 xxx")
    assert letters.samples[-1].message.endswith("xxx...")
    assert len(letters.samples[-1].message) == 203
    letters.add("somebody", Unspeakable())
    assert letters.samples[-1] == DeadLetter("somebody", "<Unspeakable, whose repr fails: ValueError('no words')>"), (
        "whose class is not ours must not spoil a refusal"
    )
    assert letters.count == 251


# The tracer ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def traced(actor_system: SystemHarness) -> Iterator[list[Traced]]:
    """What the stage's tracer has seen. Each moment is noted on the thread where it happens."""
    seen: list[Traced] = []
    actor_system.system.trace(seen.append)
    yield seen
    actor_system.system.trace(None)


class Relay(Actor):
    """Passes a number on until it is 0, then says so."""

    handlers = {int: "count_down"}

    def __init__(self, next_one: ActorRef | None = None) -> None:
        super().__init__()
        self.next_one = next_one

    def count_down(self, number: int) -> None:
        if self.next_one is not None:
            self.next_one.tell(number - 1)


def test_trace_shows_sender_cause_and_correlation(actor_system: SystemHarness, traced: list[Traced]) -> None:
    """Who sent it because of what, and with which message from outside it all began."""
    last = actor_system.spawn(Relay)
    middle = actor_system.spawn(Relay, last)
    first = actor_system.spawn(Relay, middle)
    first.tell(7)
    actor_system.until(lambda: len(traced) == 6)
    other = last.ask(0, block=False)
    assert other.get() is None
    assert sorted(map(as_line, traced)) == [
        "handled 1 outside -> Relay-3 tells 7",
        "handled 2<1 Relay-3 -> Relay-2 tells 6",
        "handled 3<2 Relay-2 -> Relay-1 tells 5",
        "handled 4 outside -> Relay-1 asks 0",
        "sent 1 outside -> Relay-3 tells 7",
        "sent 2<1 Relay-3 -> Relay-2 tells 6",
        "sent 3<2 Relay-2 -> Relay-1 tells 5",
        "sent 4 outside -> Relay-1 asks 0",
    ]
    assert {one.correlation for one in traced[:6]} == {1}
    assert {one.correlation for one in traced[6:]} == {4}
    for one in traced:
        assert traced.index(one) >= [other.number for other in traced if other.moment == "sent"].index(one.number)


def test_trace_shows_dead_letters(actor_system: SystemHarness, traced: list[Traced]) -> None:
    player = actor_system.spawn(Player)
    with actor_system.paused(player):
        player.stop(block=False)
        player.tell(Say("late"))
    actor_system.until(lambda: [one for one in traced if one.moment == "dead"] != [])
    assert [(one.moment, one.message) for one in traced if isinstance(one.message, Say)] == [
        ("sent", "late"),
        ("dead", "late"),
    ]


def test_trace_of_callback_of_deferred_answer_has_right_cause(
    actor_system: SystemHarness, traced: list[Traced]
) -> None:
    """What a callback of an answer sends is caused by the message in whose handling the answer was given."""
    player, other = actor_system.spawn(Player), actor_system.spawn(Relay)
    reply = player.ask(Call((keep_reply,)), block=False)
    reply.on_done(lambda _: other.tell(1))
    player.ask(Call((settle_reply,)))
    actor_system.until(lambda: len(traced) == 6)
    (story,) = [one for one in traced if one.moment == "sent" and one.message == 1]
    assert (story.cause, story.sender) == (2, "Player-1")


def test_trace_hook_that_raises_is_disabled(actor_system: SystemHarness, caplog: pytest.LogCaptureFixture) -> None:
    """At once, in the middle of a turn with more to handle; and no actor is hurt."""
    calls: list[Traced] = []

    def hook(one: Traced) -> None:
        if one.moment == "handled" and isinstance(one.message, Say):
            calls.append(one)
            raise ValueError("bug in the hook")

    player = actor_system.spawn(Player)
    actor_system.system.trace(hook)
    with caplog.at_level(logging.ERROR, "callboard.runtime"):
        with actor_system.paused(player):
            for number in range(20):
                player.tell(Say(number))
        assert player.ask(Say("x")) == "heard x"
    assert len(calls) == 1
    assert caplog.text.count("tracing is disabled: its hook raised an error") == 1
    assert "bug in the hook" in caplog.text
    assert actor_system.system.dispatcher.tracer is None


def test_disabled_trace_restores_plain_envelopes(actor_system: SystemHarness) -> None:
    """Messages take the quick way into the mailbox again, in plain envelopes; so do those of before the tracer."""

    class Narrow(Player):
        high_water = 7

    player, narrow = actor_system.spawn(Player), actor_system.spawn(Narrow)
    actor_system.wait_until_handled(player)
    actor_system.wait_until_handled(narrow)
    assert [mailbox_of(ref).admission_threshold for ref in (player, narrow)] == [sys.maxsize, 7]
    with actor_system.paused(player):
        player.tell(Say("before"))
        actor_system.system.trace(lambda _: None)
        player.tell(Say("during"))
        late = actor_system.spawn(Player)
        assert [mailbox_of(ref).admission_threshold for ref in (player, narrow, late)] == [0, 0, 0]
        actor_system.system.trace(None)
        player.tell(Say("after"))
        kinds = [type(envelope) is TracedEnvelope for envelope in player.actor_inbox.queue][-3:]
        assert kinds == [False, True, False]
    actor_system.wait_until_handled(player)
    assert player.ask(do(lambda one: one.received)) == ["start", "before", "during", "after"]
    assert [mailbox_of(ref).admission_threshold for ref in (player, narrow, late)] == [sys.maxsize, 7, sys.maxsize]


def test_trace_does_not_change_errors_stops_and_limits(actor_system: SystemHarness, traced: list[Traced]) -> None:
    """Errors, ends and full mailboxes."""

    class Narrow(Player):
        high_water = 2

    narrow = actor_system.spawn(Narrow)
    with pytest.raises(ValueError, match="bug"):
        narrow.ask(Fail("bug"))
    with actor_system.paused(narrow):
        narrow.tell(Say(1))
        narrow.tell(Say(2))
        with pytest.raises(Exception, match="Narrow-1 has 2 unread messages"):
            narrow.tell(Say(3))
    assert narrow.stop() is True
    with pytest.raises(pykka.ActorDeadError):
        narrow.ask(Say(4))
    assert [one.message for one in traced if one.moment == "handled" and isinstance(one.message, Say)] == ["1", "2"]


def test_trace_of_message_after_turn_has_cause(actor_system: SystemHarness, traced: list[Traced]) -> None:
    """Though it is sent when the turn is over."""
    player = actor_system.spawn(Player)
    player.tell(do(lambda one: one.tell_self_after_turn(Say("later"))))
    actor_system.until(lambda: any(one.moment == "handled" and one.message == "later" for one in traced))
    first, later = (one for one in traced if one.moment == "sent")
    assert (later.cause, later.correlation, later.sender) == (first.number, first.number, "Player-1")


def test_trace_shows_rejected_message_as_dead(actor_system: SystemHarness, traced: list[Traced]) -> None:
    """Told or asked."""

    class Narrow(Player):
        high_water = 1

    narrow = actor_system.spawn(Narrow)
    actor_system.wait_until_handled(narrow)
    with actor_system.paused(narrow):
        narrow.tell(Say("fits"))
        with pytest.raises(MailboxFull):
            narrow.tell(Say("told"))
        asked = narrow.ask(Say("asked"), block=False)
    with pytest.raises(MailboxFull):
        asked.get()
    assert [one.message for one in traced if one.moment == "dead"] == ["told", "asked"]


def test_trace_ignores_causes_of_other_systems() -> None:
    """Each tracer counts for itself: its number 1 is not the other's."""
    one, other = System.simulated(), System.simulated()
    seen: list[Traced] = []
    end = other.spawn(Relay)
    start = one.spawn(Relay, end)
    one.trace(lambda _: None)
    other.trace(seen.append)
    start.tell(1)
    for system in (one, other):
        assert isinstance(system.dispatcher, Simulation)
        system.dispatcher.run()
    assert [as_line(story) for story in seen] == [
        "sent 1 outside -> Relay-1 tells 0",
        "handled 1 outside -> Relay-1 tells 0",
    ]


def test_stats_and_trace_ignore_registered_pykka_actors(actor_system: SystemHarness) -> None:
    """Pykka's own actors may be registered; they do not live here, so nothing is counted or traced of them."""

    class Stranger(pykka.ThreadingActor):
        pass

    actor_system.spawn(Player)
    stranger = Stranger.start()
    actor_system.system.registry.register(stranger)  # type: ignore[arg-type]
    try:
        assert [one.name for one in actor_system.system.stats().classes] == ["Player"]
        actor_system.system.trace(lambda _: None)
        actor_system.system.trace(None)
        actor_system.system.dispatcher.abandon_all()
        assert actor_system.system.actors() == [stranger]
    finally:
        stranger.stop()
        actor_system.system.registry.unregister(stranger)  # type: ignore[arg-type]
