"""Actors that leave memory while nothing happens, on every dispatcher: who writes to them sees nothing of it."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any

import pykka
import pytest
from actor_system.players import (
    REAL,
    SIMULATIONS,
    WAIT_TIMEOUT_S,
    Player,
    Say,
    SystemHarness,
    do,
    system_fixture,
    without_garbage_collector,
)

from callboard.actors.base import ActorFailed, ActorRef, ChildPassivated, Supervision
from callboard.runtime.engine.mailbox import SharedMailbox, mailbox_of
from callboard.runtime.engine.simulation import Simulation
from callboard.runtime.engine.system import System

actor_system = system_fixture(*REAL, *SIMULATIONS)
real_system = system_fixture(*REAL)


class Sleeper(Player):
    """Counts what it is told, and sleeps when it is told to. The name stands for what the constructor is given."""

    may_passivate = True

    def __init__(self, received: list[Any] | None = None, name: str = "") -> None:
        super().__init__(received, name)
        self.count = 0

    def say(self, message: Say) -> str:
        self.count += 1
        super().say(message)
        return f"{self.name}{self.count}"

    def save_state(self, error: Exception | None) -> int:
        self.received.append("asleep" if error is None else f"left by {error!r}")
        return self.count

    def restore_state(self, kept: int) -> None:
        self.count = kept
        self.received.append(f"back with {kept}")


class Dozer(Sleeper):
    """Falls asleep after each message."""

    def say(self, message: Say) -> str:
        self.passivate()
        return super().say(message)

    def save_state(self, error: Exception | None) -> int:
        return self.count

    def restore_state(self, kept: int) -> None:
        self.count = kept


class Parent(Player):
    """Hears of its children's sleep, and may forget them for good."""

    handlers = {**Player.handlers, ChildPassivated: "on_child_asleep"}

    def __init__(self, received: list[Any], retires: bool = False) -> None:
        super().__init__(received)
        self.retires = retires

    def on_child_asleep(self, message: ChildPassivated) -> None:
        self.received.append(message.child.retire() if self.retires else message.child)


def put_to_sleep(actor_system: SystemHarness, ref: ActorRef) -> None:
    ref.ask(do(lambda one: one.passivate()))
    actor_system.until(lambda: mailbox_of(ref).is_passivated)


def test_passivated_actor_is_freed_and_restored_with_its_state(actor_system: SystemHarness) -> None:
    """Its list of arguments and what it left is all that stays."""
    received: list[Any] = []
    sleeper = actor_system.spawn(Sleeper, received, "number ")
    instance = weakref.ref(sleeper.ask(do(lambda one: one)))
    assert sleeper.ask(Say("x")) == "number 1"
    with without_garbage_collector():
        put_to_sleep(actor_system, sleeper)
        actor_system.until(lambda: instance() is None)
    assert sleeper.is_alive()
    assert actor_system.system.actors() == [sleeper]
    assert [(one.actors, one.passivated) for one in actor_system.system.stats().classes] == [(1, 1)]
    assert sleeper.ask(Say("y")) == "number 2"
    assert received == ["number start", "number x", "asleep", "back with 1", "number start", "number y"]
    assert [(one.actors, one.passivated) for one in actor_system.system.stats().classes] == [(1, 0)]


class Luggage:
    """What a sleeper leaves: something that can be looked for in memory."""


def test_snapshot_is_dropped_after_activation(actor_system: SystemHarness) -> None:
    kept: list[weakref.ref[Luggage]] = []

    class Traveller(Sleeper):
        def save_state(self, error: Exception | None) -> Any:
            luggage = Luggage()
            kept.append(weakref.ref(luggage))
            return luggage

        def restore_state(self, kept: Any) -> None:
            assert isinstance(kept, Luggage)

    traveller = actor_system.spawn(Traveller)
    with without_garbage_collector():
        put_to_sleep(actor_system, traveller)
        assert kept[0]() is not None
        assert traveller.ask(Say("x")) == "1"
        actor_system.until(lambda: kept[0]() is None)


def test_every_kind_of_message_activates(actor_system: SystemHarness) -> None:
    sleeper = actor_system.spawn(Sleeper)
    put_to_sleep(actor_system, sleeper)
    sleeper.tell(Say("x"))
    assert sleeper.ask(do(lambda one: one.count)) == 1
    put_to_sleep(actor_system, sleeper)
    assert sleeper.proxy().count.get() == 1
    put_to_sleep(actor_system, sleeper)
    assert sleeper.ask(Say("x"), block=False).get() == "2"


def test_actor_with_waiting_message_is_not_passivated(actor_system: SystemHarness) -> None:
    """It is asked again when it says so again."""
    received: list[Any] = []
    sleeper = actor_system.spawn(Sleeper, received)
    with actor_system.paused(sleeper):
        sleeper.tell(do(lambda one: one.passivate()))
        answers = [sleeper.ask(Say(number), block=False) for number in range(3)]
    assert [answer.get() for answer in answers] == ["1", "2", "3"]
    assert received == ["start", "0", "1", "2"]
    assert not mailbox_of(sleeper).is_passivated


def test_message_during_passivation_is_handled(actor_system: SystemHarness) -> None:
    class Reminded(Sleeper):
        def save_state(self, error: Exception | None) -> int:
            if not self.count:
                self.actor_ref.tell(Say("do not forget"))
            return super().save_state(error)

    received: list[Any] = []
    reminded = actor_system.spawn(Reminded, received)
    reminded.ask(do(lambda one: one.passivate()))
    actor_system.until(lambda: received[-1] == "do not forget")
    assert received == ["start", "asleep", "back with 0", "start", "do not forget"]


def test_messages_to_repeatedly_passivated_actor_are_all_handled(real_system: SystemHarness) -> None:
    """Four threads write to one that falls asleep after every message; each of their messages is counted once."""
    dozer = real_system.spawn(Dozer)
    answers: list[int] = []

    def ask() -> None:
        for number in range(150):
            dozer.tell(Say(number))
            answers.append(int(dozer.ask(Say(number), timeout=WAIT_TIMEOUT_S)))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(answers)) == 4 * 150, "no two were the same message"
    assert dozer.ask(Say("last")) == str(2 * 4 * 150 + 1)


def test_turn_without_message_does_not_activate() -> None:
    """A mailbox that was queued twice has one."""
    dispatcher = Simulation()
    received: list[Any] = []
    sleeper = System(dispatcher).spawn(Sleeper, received)
    sleeper.ask(do(lambda one: one.passivate()))
    dispatcher.ready(mailbox_of(sleeper))
    dispatcher.run()
    assert received == ["start", "asleep"]


def test_passivation_without_permission_raises_runtime_error(actor_system: SystemHarness) -> None:
    player = actor_system.spawn(Player)
    with pytest.raises(RuntimeError, match="Player cannot be passivated: set may_passivate = True"):
        player.ask(do(lambda one: one.passivate()))
    assert player.ask(Say("x")) == "heard x"


def test_stop_activates_passivated_actor_for_on_stop(actor_system: SystemHarness) -> None:
    """``on_stop`` runs with the state of the actor, as it would have without the sleep."""
    received: list[Any] = []
    sleeper = actor_system.spawn(Sleeper, received)
    sleeper.ask(Say("x"))
    put_to_sleep(actor_system, sleeper)
    assert sleeper.stop() is True
    assert received == ["start", "x", "asleep", "back with 1", "start", "stop"]
    assert not sleeper.is_alive()
    with pytest.raises(pykka.ActorDeadError):
        sleeper.ask(Say("y"))


def test_stop_all_stops_passivated_actors(actor_system: SystemHarness) -> None:
    sleepers = [actor_system.spawn(Sleeper) for _ in range(5)]
    for sleeper in sleepers[::2]:
        put_to_sleep(actor_system, sleeper)
    assert actor_system.system.stop_all() == [True] * 5


# For good ------------------------------------------------------------------------------------------------------------


def test_parent_is_notified_of_passivation(actor_system: SystemHarness) -> None:
    received: list[Any] = []
    parent = actor_system.spawn(Parent, received)
    child: ActorRef = parent.ask(do(lambda one: one.spawn(Sleeper)))
    put_to_sleep(actor_system, child)
    actor_system.until(lambda: received == ["start", child])
    assert child.ask(Say("x")) == "1"


def test_retire_returns_snapshot_and_rejects_later_messages(actor_system: SystemHarness) -> None:
    """Its parent gets what it left. Who still has the reference hears that nobody is there."""
    received: list[Any] = []
    parent = actor_system.spawn(Parent, received, True)
    child: ActorRef = parent.ask(do(lambda one: one.spawn(Sleeper)))
    child.ask(Say("x"))
    child.ask(do(lambda one: one.passivate()))
    actor_system.until(lambda: received == ["start", 1])
    assert not child.is_alive()
    assert actor_system.system.actors() == [parent]
    late = child.ask(Say("y"), block=False)
    assert late.done()
    with pytest.raises(pykka.ActorDeadError):
        late.get()
    with pytest.raises(pykka.ActorDeadError):
        child.tell(Say("y"))


def test_child_may_be_retired_when_parent_is_notified(
    real_system: SystemHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several workers too: the news comes when nobody is at work on the child any more."""
    let_go = SharedMailbox._release

    def hesitate(mailbox: SharedMailbox) -> bool:
        threading.Event().wait(0.0001)
        return let_go(mailbox)

    monkeypatch.setattr(SharedMailbox, "_release", hesitate)
    received: list[Any] = []
    parent = real_system.spawn(Parent, received, True)
    children = [parent.ask(do(lambda one: one.spawn(Dozer))) for _ in range(50)]
    for child in children:
        child.tell(Say("x"))
    real_system.until(lambda: len(received) == 51)
    assert received[1:] == [1] * 50
    assert real_system.system.actors() == [parent]


def test_retire_of_active_actor_or_with_messages_returns_none(actor_system: SystemHarness) -> None:
    sleeper = actor_system.spawn(Sleeper)
    other = actor_system.spawn(Player)
    actor_system.wait_until_handled(sleeper)
    assert other.ask(do(lambda _: sleeper.retire())) is None
    put_to_sleep(actor_system, sleeper)

    def write_and_retire(_: Player) -> Any:
        with_mail = sleeper.ask(Say("x"), block=False)
        return sleeper.retire(), with_mail

    retired, with_mail = other.ask(do(write_and_retire))
    assert with_mail.get() == "1"
    assert retired is None
    assert sleeper.is_alive()


@pytest.mark.parametrize("workers", [1, 4])
def test_ask_during_retire_is_settled(workers: int) -> None:
    """By the actor or by its death, but not by silence."""
    with System.on_threads(workers) as system:
        received: list[Any] = []
        parent = system.spawn(Parent, received, True)
        for _ in range(200):
            child: ActorRef = parent.ask(do(lambda one: one.spawn(Dozer)))
            outcomes = []
            for _ in range(5):
                asked = child.ask(Say("x"), block=False)
                try:
                    outcomes.append(asked.get(timeout=WAIT_TIMEOUT_S))
                except pykka.ActorDeadError:
                    outcomes.append("dead")
            alive = [one for one in outcomes if one != "dead"]
            assert outcomes == alive + ["dead"] * (5 - len(alive))
            assert alive == [str(number + 1) for number in range(len(alive))]


# Bugs ----------------------------------------------------------------------------------------------------------------


class BadSleeper(Sleeper):
    """Has bugs at a step, as many as the test has put on the list."""

    def __init__(self, bugs: list[str], received: list[Any]) -> None:
        self.bugs = bugs
        self.stumble("__init__")
        super().__init__(received)

    def stumble(self, step: str) -> None:
        if self.bugs and self.bugs[0] == step:
            self.bugs.pop(0)
            raise ValueError(f"bug in {step}")

    def save_state(self, error: Exception | None) -> int:
        self.stumble("save_state")
        return super().save_state(error)

    def restore_state(self, kept: int | None) -> None:
        self.stumble("restore_state")
        super().restore_state(kept or 0)


class Supervised(BadSleeper):
    supervision = Supervision()


@pytest.mark.parametrize("step", ["__init__", "save_state", "restore_state"])
def test_error_in_activation_without_supervision_fails_actor(
    actor_system: SystemHarness, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without supervision there is no second try. Whoever woke it hears why."""
    bugs: list[str] = []
    sleeper = actor_system.spawn(BadSleeper, bugs, [])
    sleeper.ask(Say("x"))
    bugs.append(step)
    with caplog.at_level(logging.ERROR, "callboard.runtime"):
        sleeper.ask(do(lambda one: one.passivate()))
        with pytest.raises(ActorFailed, match=f"bug in {step}"):
            sleeper.ask(Say("y"))
    assert not sleeper.is_alive()
    assert f"has failed: one bug was too much: ValueError('bug in {step}" in caplog.text


@pytest.mark.parametrize(("step", "count"), [("__init__", 2), ("save_state", 1), ("restore_state", 2)])
def test_error_in_activation_with_supervision_is_retried(actor_system: SystemHarness, step: str, count: int) -> None:
    """A state that could not be handed over is lost, as after any bug."""
    bugs: list[str] = []
    sleeper = actor_system.spawn(Supervised, bugs, [])
    sleeper.ask(Say("x"))
    bugs += [step]
    sleeper.ask(do(lambda one: one.passivate()))
    assert sleeper.ask(Say("y")) == str(count)
    assert actor_system.system.stats().restarts == 1
    assert bugs == []
