"""Passivation, on every dispatcher: an idle actor is freed and is restored by the next message."""

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
from callboard.runtime.engine.incarnation import is_passivated
from callboard.runtime.engine.mailbox import SharedMailbox, mailbox_of
from callboard.runtime.engine.simulation import Simulation
from callboard.runtime.engine.system import System

actor_system = system_fixture(*REAL, *SIMULATIONS)
real_system = system_fixture(*REAL)


class Counter(Player):
    """Counts its messages. ``name`` shows whether a restored actor gets the arguments of its constructor again."""

    may_passivate = True

    def __init__(self, received: list[Any] | None = None, name: str = "") -> None:
        super().__init__(received, name)
        self.count = 0

    def say(self, message: Say) -> str:
        self.count += 1
        super().say(message)
        return f"{self.name}{self.count}"

    def save_state(self, error: Exception | None) -> int:
        self.received.append("saved" if error is None else f"saved by {error!r}")
        return self.count

    def restore_state(self, saved: int) -> None:
        self.count = saved
        self.received.append(f"restored with {saved}")


class PassivatesItself(Counter):
    """Passivates itself after each message."""

    def say(self, message: Say) -> str:
        self.passivate()
        return super().say(message)

    def save_state(self, error: Exception | None) -> int:
        return self.count

    def restore_state(self, saved: int) -> None:
        self.count = saved


class Parent(Player):
    """Records its passivated children, and retires them if ``retires`` is set."""

    handlers = {**Player.handlers, ChildPassivated: "on_child_passivated"}

    def __init__(self, received: list[Any], retires: bool = False) -> None:
        super().__init__(received)
        self.retires = retires

    def on_child_passivated(self, message: ChildPassivated) -> None:
        self.received.append(message.child.retire() if self.retires else message.child)


def passivate(actor_system: SystemHarness, ref: ActorRef) -> None:
    ref.ask(do(lambda actor: actor.passivate()))
    actor_system.until(lambda: is_passivated(mailbox_of(ref)))


def test_passivated_actor_is_freed_and_restored_with_its_state(actor_system: SystemHarness) -> None:
    """Only the arguments of its constructor and its saved state stay in memory."""
    received: list[Any] = []
    actor = actor_system.spawn(Counter, received, "number ")
    instance = weakref.ref(actor.ask(do(lambda actor: actor)))
    assert actor.ask(Say("x")) == "number 1"
    with without_garbage_collector():
        passivate(actor_system, actor)
        actor_system.until(lambda: instance() is None)
    assert actor.is_alive()
    assert actor_system.system.actors() == [actor]
    assert [(row.actors, row.passivated) for row in actor_system.system.stats().classes] == [(1, 1)]
    assert actor.ask(Say("y")) == "number 2"
    assert received == ["number start", "number x", "saved", "restored with 1", "number start", "number y"]
    assert [(row.actors, row.passivated) for row in actor_system.system.stats().classes] == [(1, 0)]


class Snapshot:
    """A saved state that a weak reference can point to."""


def test_snapshot_is_dropped_after_activation(actor_system: SystemHarness) -> None:
    snapshots: list[weakref.ref[Snapshot]] = []

    class SavesSnapshot(Counter):
        def save_state(self, error: Exception | None) -> Any:
            snapshot = Snapshot()
            snapshots.append(weakref.ref(snapshot))
            return snapshot

        def restore_state(self, saved: Any) -> None:
            assert isinstance(saved, Snapshot)

    actor = actor_system.spawn(SavesSnapshot)
    with without_garbage_collector():
        passivate(actor_system, actor)
        assert snapshots[0]() is not None
        assert actor.ask(Say("x")) == "1"
        actor_system.until(lambda: snapshots[0]() is None)


def test_every_kind_of_message_activates(actor_system: SystemHarness) -> None:
    actor = actor_system.spawn(Counter)
    passivate(actor_system, actor)
    actor.tell(Say("x"))
    assert actor.ask(do(lambda actor: actor.count)) == 1
    passivate(actor_system, actor)
    assert actor.proxy().count.get() == 1
    passivate(actor_system, actor)
    assert actor.ask(Say("x"), block=False).get() == "2"


def test_actor_with_waiting_message_is_not_passivated(actor_system: SystemHarness) -> None:
    """The request to passivate is dropped, because messages wait."""
    received: list[Any] = []
    actor = actor_system.spawn(Counter, received)
    with actor_system.paused(actor):
        actor.tell(do(lambda actor: actor.passivate()))
        replies = [actor.ask(Say(number), block=False) for number in range(3)]
    assert [reply.get() for reply in replies] == ["1", "2", "3"]
    assert received == ["start", "0", "1", "2"]
    assert not is_passivated(mailbox_of(actor))


def test_message_during_passivation_is_handled(actor_system: SystemHarness) -> None:
    class TellsItself(Counter):
        def save_state(self, error: Exception | None) -> int:
            if not self.count:
                self.actor_ref.tell(Say("while saving"))
            return super().save_state(error)

    received: list[Any] = []
    actor = actor_system.spawn(TellsItself, received)
    actor.ask(do(lambda actor: actor.passivate()))
    actor_system.until(lambda: received[-1] == "while saving")
    assert received == ["start", "saved", "restored with 0", "start", "while saving"]


def test_messages_to_repeatedly_passivated_actor_are_all_handled(real_system: SystemHarness) -> None:
    """Four threads write to an actor that passivates itself after every message; each message is counted once."""
    actor = real_system.spawn(PassivatesItself)
    replies: list[int] = []

    def ask() -> None:
        for number in range(150):
            actor.tell(Say(number))
            replies.append(int(actor.ask(Say(number), timeout=WAIT_TIMEOUT_S)))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(replies)) == 4 * 150, "each message is counted once"
    assert actor.ask(Say("last")) == str(2 * 4 * 150 + 1)


def test_turn_without_message_does_not_activate() -> None:
    """A mailbox that was queued twice gets a turn without a message."""
    dispatcher = Simulation()
    received: list[Any] = []
    actor = System(dispatcher).spawn(Counter, received)
    actor.ask(do(lambda actor: actor.passivate()))
    dispatcher.ready(mailbox_of(actor))
    dispatcher.run()
    assert received == ["start", "saved"]


def test_passivation_without_permission_raises_runtime_error(actor_system: SystemHarness) -> None:
    player = actor_system.spawn(Player)
    with pytest.raises(RuntimeError, match="Player cannot be passivated: set may_passivate = True"):
        player.ask(do(lambda actor: actor.passivate()))
    assert player.ask(Say("x")) == "heard x"


def test_stop_activates_passivated_actor_for_on_stop(actor_system: SystemHarness) -> None:
    """``on_stop`` runs with the restored state."""
    received: list[Any] = []
    actor = actor_system.spawn(Counter, received)
    actor.ask(Say("x"))
    passivate(actor_system, actor)
    assert actor.stop() is True
    assert received == ["start", "x", "saved", "restored with 1", "start", "stop"]
    assert not actor.is_alive()
    with pytest.raises(pykka.ActorDeadError):
        actor.ask(Say("y"))


def test_stop_all_stops_passivated_actors(actor_system: SystemHarness) -> None:
    actors = [actor_system.spawn(Counter) for _ in range(5)]
    for actor in actors[::2]:
        passivate(actor_system, actor)
    assert actor_system.system.stop_all() == [True] * 5


# Retiring ------------------------------------------------------------------------------------------------------------


def test_parent_is_notified_of_passivation(actor_system: SystemHarness) -> None:
    received: list[Any] = []
    parent = actor_system.spawn(Parent, received)
    child: ActorRef = parent.ask(do(lambda actor: actor.spawn(Counter)))
    passivate(actor_system, child)
    actor_system.until(lambda: received == ["start", child])
    assert child.ask(Say("x")) == "1"


def test_retire_returns_snapshot_and_rejects_later_messages(actor_system: SystemHarness) -> None:
    """The parent gets the saved state. Messages to the reference raise ActorDeadError."""
    received: list[Any] = []
    parent = actor_system.spawn(Parent, received, True)
    child: ActorRef = parent.ask(do(lambda actor: actor.spawn(Counter)))
    child.ask(Say("x"))
    child.ask(do(lambda actor: actor.passivate()))
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
    """With several workers too: the parent is notified when no worker runs the child any more."""
    release = SharedMailbox._release

    def release_late(mailbox: SharedMailbox) -> bool:
        threading.Event().wait(0.0001)
        return release(mailbox)

    monkeypatch.setattr(SharedMailbox, "_release", release_late)
    received: list[Any] = []
    parent = real_system.spawn(Parent, received, True)
    children = [parent.ask(do(lambda actor: actor.spawn(PassivatesItself))) for _ in range(50)]
    for child in children:
        child.tell(Say("x"))
    real_system.until(lambda: len(received) == 51)
    assert received[1:] == [1] * 50
    assert real_system.system.actors() == [parent]


def test_retire_of_active_actor_or_with_messages_returns_none(actor_system: SystemHarness) -> None:
    actor = actor_system.spawn(Counter)
    other = actor_system.spawn(Player)
    actor_system.wait_until_handled(actor)
    assert other.ask(do(lambda _: actor.retire())) is None
    passivate(actor_system, actor)

    def write_and_retire(_: Player) -> Any:
        reply = actor.ask(Say("x"), block=False)
        return actor.retire(), reply

    retired, reply = other.ask(do(write_and_retire))
    assert reply.get() == "1"
    assert retired is None
    assert actor.is_alive()


@pytest.mark.parametrize("workers", [1, 4])
def test_ask_during_retire_is_settled(workers: int) -> None:
    """Each reply has a value or an ActorDeadError; none stays open."""
    with System.on_threads(workers) as system:
        received: list[Any] = []
        parent = system.spawn(Parent, received, True)
        for _ in range(200):
            child: ActorRef = parent.ask(do(lambda actor: actor.spawn(PassivatesItself)))
            outcomes = []
            for _ in range(5):
                reply = child.ask(Say("x"), block=False)
                try:
                    outcomes.append(reply.get(timeout=WAIT_TIMEOUT_S))
                except pykka.ActorDeadError:
                    outcomes.append("dead")
            replies = [outcome for outcome in outcomes if outcome != "dead"]
            assert outcomes == replies + ["dead"] * (5 - len(replies))
            assert replies == [str(number + 1) for number in range(len(replies))]


# Bugs ----------------------------------------------------------------------------------------------------------------


class Buggy(Counter):
    """Raises an error at each step named in ``bugs``, once for each entry, in their order."""

    def __init__(self, bugs: list[str], received: list[Any]) -> None:
        self.bugs = bugs
        self.raise_bug("__init__")
        super().__init__(received)

    def raise_bug(self, step: str) -> None:
        if self.bugs and self.bugs[0] == step:
            self.bugs.pop(0)
            raise ValueError(f"bug in {step}")

    def save_state(self, error: Exception | None) -> int:
        self.raise_bug("save_state")
        return super().save_state(error)

    def restore_state(self, saved: int | None) -> None:
        self.raise_bug("restore_state")
        super().restore_state(saved or 0)


class Supervised(Buggy):
    supervision = Supervision()


@pytest.mark.parametrize("step", ["__init__", "save_state", "restore_state"])
def test_error_in_activation_without_supervision_fails_actor(
    actor_system: SystemHarness, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without supervision the activation is not retried. The request that activated the actor gets the error."""
    bugs: list[str] = []
    actor = actor_system.spawn(Buggy, bugs, [])
    actor.ask(Say("x"))
    bugs.append(step)
    with caplog.at_level(logging.ERROR, "callboard.runtime"):
        actor.ask(do(lambda actor: actor.passivate()))
        with pytest.raises(ActorFailed, match=f"bug in {step}"):
            actor.ask(Say("y"))
    assert not actor.is_alive()
    assert f"has failed: one bug was too much: ValueError('bug in {step}" in caplog.text


@pytest.mark.parametrize(("step", "count"), [("__init__", 2), ("save_state", 1), ("restore_state", 2)])
def test_error_in_activation_with_supervision_is_retried(actor_system: SystemHarness, step: str, count: int) -> None:
    """A state that could not be saved is lost, as after any bug."""
    bugs: list[str] = []
    actor = actor_system.spawn(Supervised, bugs, [])
    actor.ask(Say("x"))
    bugs += [step]
    actor.ask(do(lambda actor: actor.passivate()))
    assert actor.ask(Say("y")) == str(count)
    assert actor_system.system.stats().restarts == 1
    assert bugs == []
