"""Actors that leave memory while nothing happens, on every dispatcher: who writes to them sees nothing of it."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any

import pykka
import pytest
from stage.players import PATIENCE_S, REAL, SIMULATIONS, Player, Say, Stage, do, no_garbage_collector, stage_fixture

from callboard.actors.base import ActorFailed, ActorRef, ChildAsleep, Supervision
from callboard.runtime.engine.mailbox import SharedMailbox, mailbox_of
from callboard.runtime.engine.simulation import Simulation
from callboard.runtime.engine.system import System

stage = stage_fixture(*REAL, *SIMULATIONS)
real_stage = stage_fixture(*REAL)


class Sleeper(Player):
    """Counts what it is told, and sleeps when it is told to. The name stands for what the constructor is given."""

    may_sleep = True

    def __init__(self, heard: list[Any] | None = None, name: str = "") -> None:
        super().__init__(heard, name)
        self.count = 0

    def say(self, message: Say) -> str:
        self.count += 1
        super().say(message)
        return f"{self.name}{self.count}"

    def on_leave(self, error: Exception | None) -> int:
        self.heard.append("asleep" if error is None else f"left by {error!r}")
        return self.count

    def on_return(self, kept: int) -> None:
        self.count = kept
        self.heard.append(f"back with {kept}")


class Dozer(Sleeper):
    """Falls asleep after each message."""

    def say(self, message: Say) -> str:
        self.sleep()
        return super().say(message)

    def on_leave(self, error: Exception | None) -> int:
        return self.count

    def on_return(self, kept: int) -> None:
        self.count = kept


class Parent(Player):
    """Hears of its children's sleep, and may forget them for good."""

    handlers = {**Player.handlers, ChildAsleep: "on_child_asleep"}

    def __init__(self, heard: list[Any], retires: bool = False) -> None:
        super().__init__(heard)
        self.retires = retires

    def on_child_asleep(self, message: ChildAsleep) -> None:
        self.heard.append(message.child.retire() if self.retires else message.child)


def put_to_sleep(stage: Stage, ref: ActorRef) -> None:
    ref.ask(do(lambda one: one.sleep()))
    stage.until(lambda: mailbox_of(ref).is_passivated)


def test_passivated_actor_is_freed_and_restored_with_its_state(stage: Stage) -> None:
    """Its list of arguments and what it left is all that stays."""
    heard: list[Any] = []
    sleeper = stage.spawn(Sleeper, heard, "number ")
    instance = weakref.ref(sleeper.ask(do(lambda one: one)))
    assert sleeper.ask(Say("x")) == "number 1"
    with no_garbage_collector():
        put_to_sleep(stage, sleeper)
        stage.until(lambda: instance() is None)
    assert sleeper.is_alive()
    assert stage.system.actors() == [sleeper]
    assert [(one.actors, one.passivated) for one in stage.system.stats().classes] == [(1, 1)]
    assert sleeper.ask(Say("y")) == "number 2"
    assert heard == ["number start", "number x", "asleep", "back with 1", "number start", "number y"]
    assert [(one.actors, one.passivated) for one in stage.system.stats().classes] == [(1, 0)]


class Luggage:
    """What a sleeper leaves: something that can be looked for in memory."""


def test_snapshot_is_dropped_after_activation(stage: Stage) -> None:
    kept: list[weakref.ref[Luggage]] = []

    class Traveller(Sleeper):
        def on_leave(self, error: Exception | None) -> Any:
            luggage = Luggage()
            kept.append(weakref.ref(luggage))
            return luggage

        def on_return(self, kept: Any) -> None:
            assert isinstance(kept, Luggage)

    traveller = stage.spawn(Traveller)
    with no_garbage_collector():
        put_to_sleep(stage, traveller)
        assert kept[0]() is not None
        assert traveller.ask(Say("x")) == "1"
        stage.until(lambda: kept[0]() is None)


def test_every_kind_of_message_activates(stage: Stage) -> None:
    sleeper = stage.spawn(Sleeper)
    put_to_sleep(stage, sleeper)
    sleeper.tell(Say("x"))
    assert sleeper.ask(do(lambda one: one.count)) == 1
    put_to_sleep(stage, sleeper)
    assert sleeper.proxy().count.get() == 1
    put_to_sleep(stage, sleeper)
    assert sleeper.ask(Say("x"), block=False).get() == "2"


def test_actor_with_waiting_message_is_not_passivated(stage: Stage) -> None:
    """It is asked again when it says so again."""
    heard: list[Any] = []
    sleeper = stage.spawn(Sleeper, heard)
    with stage.held(sleeper):
        sleeper.tell(do(lambda one: one.sleep()))
        answers = [sleeper.ask(Say(number), block=False) for number in range(3)]
    assert [answer.get() for answer in answers] == ["1", "2", "3"]
    assert heard == ["start", "0", "1", "2"]
    assert not mailbox_of(sleeper).is_passivated


def test_message_during_passivation_is_handled(stage: Stage) -> None:
    class Reminded(Sleeper):
        def on_leave(self, error: Exception | None) -> int:
            if not self.count:
                self.actor_ref.tell(Say("do not forget"))
            return super().on_leave(error)

    heard: list[Any] = []
    reminded = stage.spawn(Reminded, heard)
    reminded.ask(do(lambda one: one.sleep()))
    stage.until(lambda: heard[-1] == "do not forget")
    assert heard == ["start", "asleep", "back with 0", "start", "do not forget"]


def test_messages_to_repeatedly_passivated_actor_are_all_handled(real_stage: Stage) -> None:
    """Four threads write to one that falls asleep after every message; each of their messages is counted once."""
    dozer = real_stage.spawn(Dozer)
    answers: list[int] = []

    def ask() -> None:
        for number in range(150):
            dozer.tell(Say(number))
            answers.append(int(dozer.ask(Say(number), timeout=PATIENCE_S)))

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
    heard: list[Any] = []
    sleeper = System(dispatcher).spawn(Sleeper, heard)
    sleeper.ask(do(lambda one: one.sleep()))
    dispatcher.ready(mailbox_of(sleeper))
    dispatcher.run()
    assert heard == ["start", "asleep"]


def test_passivation_without_permission_raises_runtime_error(stage: Stage) -> None:
    player = stage.spawn(Player)
    with pytest.raises(RuntimeError, match="Player cannot sleep: set may_sleep = True"):
        player.ask(do(lambda one: one.sleep()))
    assert player.ask(Say("x")) == "heard x"


def test_stop_activates_passivated_actor_for_on_stop(stage: Stage) -> None:
    """``on_stop`` runs with the state of the actor, as it would have without the sleep."""
    heard: list[Any] = []
    sleeper = stage.spawn(Sleeper, heard)
    sleeper.ask(Say("x"))
    put_to_sleep(stage, sleeper)
    assert sleeper.stop() is True
    assert heard == ["start", "x", "asleep", "back with 1", "start", "stop"]
    assert not sleeper.is_alive()
    with pytest.raises(pykka.ActorDeadError):
        sleeper.ask(Say("y"))


def test_stop_all_stops_passivated_actors(stage: Stage) -> None:
    sleepers = [stage.spawn(Sleeper) for _ in range(5)]
    for sleeper in sleepers[::2]:
        put_to_sleep(stage, sleeper)
    assert stage.system.stop_all() == [True] * 5


# For good ------------------------------------------------------------------------------------------------------------


def test_parent_is_notified_of_passivation(stage: Stage) -> None:
    heard: list[Any] = []
    parent = stage.spawn(Parent, heard)
    child: ActorRef = parent.ask(do(lambda one: one.spawn(Sleeper)))
    put_to_sleep(stage, child)
    stage.until(lambda: heard == ["start", child])
    assert child.ask(Say("x")) == "1"


def test_retire_returns_snapshot_and_rejects_later_messages(stage: Stage) -> None:
    """Its parent gets what it left. Who still has the reference hears that nobody is there."""
    heard: list[Any] = []
    parent = stage.spawn(Parent, heard, True)
    child: ActorRef = parent.ask(do(lambda one: one.spawn(Sleeper)))
    child.ask(Say("x"))
    child.ask(do(lambda one: one.sleep()))
    stage.until(lambda: heard == ["start", 1])
    assert not child.is_alive()
    assert stage.system.actors() == [parent]
    late = child.ask(Say("y"), block=False)
    assert late.done()
    with pytest.raises(pykka.ActorDeadError):
        late.get()
    with pytest.raises(pykka.ActorDeadError):
        child.tell(Say("y"))


def test_child_may_be_retired_when_parent_is_notified(real_stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """With several workers too: the news comes when nobody is at work on the child any more."""
    let_go = SharedMailbox._release

    def hesitate(mailbox: SharedMailbox) -> bool:
        threading.Event().wait(0.0001)
        return let_go(mailbox)

    monkeypatch.setattr(SharedMailbox, "_release", hesitate)
    heard: list[Any] = []
    parent = real_stage.spawn(Parent, heard, True)
    children = [parent.ask(do(lambda one: one.spawn(Dozer))) for _ in range(50)]
    for child in children:
        child.tell(Say("x"))
    real_stage.until(lambda: len(heard) == 51)
    assert heard[1:] == [1] * 50
    assert real_stage.system.actors() == [parent]


def test_retire_of_active_actor_or_with_messages_returns_none(stage: Stage) -> None:
    sleeper = stage.spawn(Sleeper)
    other = stage.spawn(Player)
    stage.is_heard(sleeper)
    assert other.ask(do(lambda _: sleeper.retire())) is None
    put_to_sleep(stage, sleeper)

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
        heard: list[Any] = []
        parent = system.spawn(Parent, heard, True)
        for _ in range(200):
            child: ActorRef = parent.ask(do(lambda one: one.spawn(Dozer)))
            outcomes = []
            for _ in range(5):
                asked = child.ask(Say("x"), block=False)
                try:
                    outcomes.append(asked.get(timeout=PATIENCE_S))
                except pykka.ActorDeadError:
                    outcomes.append("dead")
            alive = [one for one in outcomes if one != "dead"]
            assert outcomes == alive + ["dead"] * (5 - len(alive))
            assert alive == [str(number + 1) for number in range(len(alive))]


# Bugs ----------------------------------------------------------------------------------------------------------------


class BadSleeper(Sleeper):
    """Has bugs at a step, as many as the test has put on the list."""

    def __init__(self, bugs: list[str], heard: list[Any]) -> None:
        self.bugs = bugs
        self.stumble("__init__")
        super().__init__(heard)

    def stumble(self, step: str) -> None:
        if self.bugs and self.bugs[0] == step:
            self.bugs.pop(0)
            raise ValueError(f"bug in {step}")

    def on_leave(self, error: Exception | None) -> int:
        self.stumble("on_leave")
        return super().on_leave(error)

    def on_return(self, kept: int | None) -> None:
        self.stumble("on_return")
        super().on_return(kept or 0)


class Supervised(BadSleeper):
    supervision = Supervision()


@pytest.mark.parametrize("step", ["__init__", "on_leave", "on_return"])
def test_error_in_activation_without_supervision_fails_actor(
    stage: Stage, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without supervision there is no second try. Whoever woke it hears why."""
    bugs: list[str] = []
    sleeper = stage.spawn(BadSleeper, bugs, [])
    sleeper.ask(Say("x"))
    bugs.append(step)
    with caplog.at_level(logging.ERROR, "callboard.runtime"):
        sleeper.ask(do(lambda one: one.sleep()))
        with pytest.raises(ActorFailed, match=f"bug in {step}"):
            sleeper.ask(Say("y"))
    assert not sleeper.is_alive()
    assert f"has failed: one bug was too much: ValueError('bug in {step}" in caplog.text


@pytest.mark.parametrize(("step", "count"), [("__init__", 2), ("on_leave", 1), ("on_return", 2)])
def test_error_in_activation_with_supervision_is_retried(stage: Stage, step: str, count: int) -> None:
    """A state that could not be handed over is lost, as after any bug."""
    bugs: list[str] = []
    sleeper = stage.spawn(Supervised, bugs, [])
    sleeper.ask(Say("x"))
    bugs += [step]
    sleeper.ask(do(lambda one: one.sleep()))
    assert sleeper.ask(Say("y")) == str(count)
    assert stage.system.stats().restarts == 1
    assert bugs == []
