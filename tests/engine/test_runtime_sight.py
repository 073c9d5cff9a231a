"""The registry, statistics, dead letters and trace of an actor system, on every dispatcher."""

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
threads_system = system_fixture(*THREADS)


class Singer(Player):
    """A class derived from Player."""


# Registry ------------------------------------------------------------------------------------------------------------


def test_registry_has_methods_of_pykka_registry(actor_system: SystemHarness) -> None:
    players, singer = [actor_system.spawn(Player) for _ in range(2)], actor_system.spawn(Singer)
    registry = actor_system.system.registry
    assert registry.get_all() == [*players, singer]
    assert len(registry) == 3
    assert registry.get_by_class(Singer) == [singer]
    assert registry.get_by_class(Player) == [*players, singer], "subclasses count too"
    assert registry.get_by_class_name("Player") == players
    assert registry.get_by_urn(singer.actor_urn) == singer
    assert registry.get_by_urn("urn:uuid:unknown") is None
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
    assert sorted(text for text in received if "!" in text) == [f"{name}!" for name in expected]


def test_registry_may_change_while_it_is_read(threads_system: SystemHarness) -> None:
    """Readers get a copy, so other threads may change the list meanwhile."""
    is_over = threading.Event()

    def start_and_stop_actors() -> None:
        while not is_over.is_set():
            threads_system.spawn(Player).stop()

    thread = threading.Thread(target=start_and_stop_actors)
    thread.start()
    try:
        for _ in range(200):
            assert all(isinstance(ref, ActorRef) for ref in threads_system.system.actors())
            assert threads_system.system.stats().actors <= 2
    finally:
        is_over.set()
        thread.join()


# Statistics ----------------------------------------------------------------------------------------------------------


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
        assert [(row.name, row.actors, row.waiting) for row in during.classes] == [("Player", 2, 4), ("Singer", 1, 0)]
    actor_system.wait_until_handled(first)
    second.stop()
    after = actor_system.system.stats()
    assert after.waiting == 0
    assert after.classes == (ClassStats("Player", 1, 0, 0, 8 + paused), ClassStats("Singer", 1, 0, 0, 1))
    assert after.handled == 9 + paused, "messages of stopped actors count too"


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
    """Messages that wait when their actor stops, and messages sent to it later."""
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
    assert actor_system.system.dispatcher.dead_letters.by_class == {"Say": 3, "Fail": 1}, (
        "a stop message is not counted"
    )
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
        "1 message to dead actors; the last: 'at once 0' to Player-1",
        "6 messages to dead actors; the last: 'a second later' to Player-1",
        "1 message to dead actors; the last: 'much later' to Player-1",
    ]
    assert dispatcher.dead_letters.count == 8, "all are counted"
    assert [letter.message for letter in dispatcher.dead_letters.samples] == [
        "'at once 0'",
        "'a second later'",
        "'much later'",
    ]


class FailingRepr:
    def __repr__(self) -> str:
        raise ValueError("bug in repr")


def test_dead_letter_samples_are_few_and_short() -> None:
    clock = TestClock()
    letters = DeadLetters(clock.monotonic_ms)
    for number in range(250):
        letters.add("Player-1", f"{number} " + "x" * 1000)
        clock.now_ms += 1000
    assert len(letters.samples) == 100
    assert letters.samples[-1].message.startswith("'249 xxx")
    assert letters.samples[-1].message.endswith("xxx...")
    assert len(letters.samples[-1].message) == 203
    letters.add("Player-1", FailingRepr())
    assert letters.samples[-1] == DeadLetter(
        "Player-1", "<FailingRepr, whose repr fails: ValueError('bug in repr')>"
    ), "a failing repr must not prevent the dead letter"
    assert letters.count == 251


# The tracer ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def traced(actor_system: SystemHarness) -> Iterator[list[Traced]]:
    """The events that the tracer has recorded. Each is recorded on the thread where it happens."""
    events: list[Traced] = []
    actor_system.system.trace(events.append)
    yield events
    actor_system.system.trace(None)


class Relay(Actor):
    """Sends the number, less one, to the next relay, if there is one."""

    handlers = {int: "count_down"}

    def __init__(self, next_relay: ActorRef | None = None) -> None:
        super().__init__()
        self.next_relay = next_relay

    def count_down(self, number: int) -> None:
        if self.next_relay is not None:
            self.next_relay.tell(number - 1)


def test_trace_shows_sender_cause_and_correlation(actor_system: SystemHarness, traced: list[Traced]) -> None:
    """Each message has its sender, its cause and the message from outside that began the chain (its correlation)."""
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
    assert {event.correlation for event in traced[:6]} == {1}
    assert {event.correlation for event in traced[6:]} == {4}
    sent_numbers = [event.number for event in traced if event.moment == "sent"]
    for event in traced:
        assert traced.index(event) >= sent_numbers.index(event.number)


def test_trace_shows_dead_letters(actor_system: SystemHarness, traced: list[Traced]) -> None:
    player = actor_system.spawn(Player)
    with actor_system.paused(player):
        player.stop(block=False)
        player.tell(Say("late"))
    actor_system.until(lambda: [event for event in traced if event.moment == "dead"] != [])
    assert [(event.moment, event.message) for event in traced if isinstance(event.message, Say)] == [
        ("sent", "late"),
        ("dead", "late"),
    ]


def test_trace_of_callback_of_deferred_answer_has_right_cause(
    actor_system: SystemHarness, traced: list[Traced]
) -> None:
    """The cause of a message sent by a reply's callback is the message whose handler set the reply."""
    player, other = actor_system.spawn(Player), actor_system.spawn(Relay)
    reply = player.ask(Call((keep_reply,)), block=False)
    reply.on_done(lambda _: other.tell(1))
    player.ask(Call((settle_reply,)))
    actor_system.until(lambda: len(traced) == 6)
    (sent,) = [event for event in traced if event.moment == "sent" and event.message == 1]
    assert (sent.cause, sent.sender) == (2, "Player-1")


def test_trace_hook_that_raises_is_disabled(actor_system: SystemHarness, caplog: pytest.LogCaptureFixture) -> None:
    """It is disabled at once, in the middle of a turn with more messages; actors are not affected."""
    calls: list[Traced] = []

    def hook(event: Traced) -> None:
        if event.moment == "handled" and isinstance(event.message, Say):
            calls.append(event)
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
    """Messages sent before and after tracing are put into the mailbox in plain envelopes, without a check."""

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
    assert player.ask(do(lambda actor: actor.received)) == ["start", "before", "during", "after"]
    assert [mailbox_of(ref).admission_threshold for ref in (player, narrow, late)] == [sys.maxsize, 7, sys.maxsize]


def test_trace_does_not_change_errors_stops_and_limits(actor_system: SystemHarness, traced: list[Traced]) -> None:
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
    handled = [event for event in traced if event.moment == "handled"]
    assert [event.message for event in handled if isinstance(event.message, Say)] == ["1", "2"]


def test_trace_of_message_after_turn_has_cause(actor_system: SystemHarness, traced: list[Traced]) -> None:
    """The message is sent when the turn is over, but its cause is the message handled in that turn."""
    player = actor_system.spawn(Player)
    player.tell(do(lambda actor: actor.tell_self_after_turn(Say("later"))))
    actor_system.until(lambda: any(event.moment == "handled" and event.message == "later" for event in traced))
    first, later = (event for event in traced if event.moment == "sent")
    assert (later.cause, later.correlation, later.sender) == (first.number, first.number, "Player-1")


def test_trace_shows_rejected_message_as_dead(actor_system: SystemHarness, traced: list[Traced]) -> None:
    """Both for ``tell`` and for ``ask``."""

    class Narrow(Player):
        high_water = 1

    narrow = actor_system.spawn(Narrow)
    actor_system.wait_until_handled(narrow)
    with actor_system.paused(narrow):
        narrow.tell(Say("fits"))
        with pytest.raises(MailboxFull):
            narrow.tell(Say("told"))
        reply = narrow.ask(Say("asked"), block=False)
    with pytest.raises(MailboxFull):
        reply.get()
    assert [event.message for event in traced if event.moment == "dead"] == ["told", "asked"]


def test_trace_ignores_causes_of_other_systems() -> None:
    """Each tracer numbers its messages itself, so number 1 of one system is not number 1 of the other."""
    source, target = System.simulated(), System.simulated()
    events: list[Traced] = []
    end = target.spawn(Relay)
    start = source.spawn(Relay, end)
    source.trace(lambda _: None)
    target.trace(events.append)
    start.tell(1)
    for system in (source, target):
        assert isinstance(system.dispatcher, Simulation)
        system.dispatcher.run()
    assert [as_line(event) for event in events] == [
        "sent 1 outside -> Relay-1 tells 0",
        "handled 1 outside -> Relay-1 tells 0",
    ]


def test_stats_and_trace_ignore_registered_pykka_actors(actor_system: SystemHarness) -> None:
    """Actors of pykka may be registered, but the system does not run them: it neither counts nor traces them."""

    class PykkaActor(pykka.ThreadingActor):
        pass

    actor_system.spawn(Player)
    pykka_actor = PykkaActor.start()
    actor_system.system.registry.register(pykka_actor)  # type: ignore[arg-type]
    try:
        assert [row.name for row in actor_system.system.stats().classes] == ["Player"]
        actor_system.system.trace(lambda _: None)
        actor_system.system.trace(None)
        actor_system.system.dispatcher.abandon_all()
        assert actor_system.system.actors() == [pykka_actor]
    finally:
        pykka_actor.stop()
        actor_system.system.registry.unregister(pykka_actor)  # type: ignore[arg-type]
