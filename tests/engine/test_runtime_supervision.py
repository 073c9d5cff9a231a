"""What becomes of an actor with a bug, on every dispatcher: another takes over, but not for ever.

A crash of one actor never takes another with it.
"""

from __future__ import annotations

import logging
import traceback
from contextlib import suppress
from typing import Any

import pykka
import pytest
from actor_system.players import REAL, SIMULATIONS, Fail, Player, Say, SystemHarness, do, system_fixture

from callboard.actors.base import Actor, ActorFailed, ActorRef, ChildFailed, MailboxFull, Supervision
from callboard.runtime.engine.simulation import Simulation
from callboard.runtime.engine.system import System

actor_system = system_fixture(*REAL, *SIMULATIONS)


class Refused(Exception):
    """A domain error: an answer, no bug."""


class Watched(Player):
    """Notes how its instances come and go; what it has counted goes from one to the next."""

    supervision = Supervision(domain_errors=(Refused,))

    def __init__(self, received: list[Any] | None = None, name: str = "") -> None:
        super().__init__(received, name)
        self.count = 0
        self.received.append("made")

    def say(self, message: Say) -> str:
        self.count += 1
        return f"{super().say(message)} as {self.count}"

    def save_state(self, error: Exception | None) -> int:
        self.received.append(f"left by {error!r}")
        return self.count

    def restore_state(self, kept: int) -> None:
        self.count = kept
        self.received.append(f"back with {kept}")

    def on_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
        self.received.append(f"failed by {exception_value!r}")


class Parent(Player):
    """Hears of its children's failures."""

    handlers = {**Player.handlers, ChildFailed: "on_child_failed"}

    def on_child_failed(self, message: ChildFailed) -> None:
        self.received.append((message.child, repr(message.error)))


def fail(ref: ActorRef, bug: str = "bug") -> None:
    """Somebody asks, and hears of the bug; the actor begins anew."""
    with pytest.raises(ValueError, match=bug):
        ref.ask(Fail(bug))


def fail_for_good(ref: ActorRef) -> None:
    """One more than the rule allows."""
    for _ in range(4):
        fail(ref)


# Errors and bugs -----------------------------------------------------------------------------------------------------


def refuse(_: Player) -> None:
    raise Refused("not today")


def test_domain_error_is_raised_to_caller_without_restart(actor_system: SystemHarness) -> None:
    """Asked or told: the same instance lives on, and nothing is counted as a restart."""
    received: list[Any] = []
    player = actor_system.spawn(Watched, received)
    for _ in range(10):
        with pytest.raises(Refused, match="not today"):
            player.ask(do(refuse))
        player.tell(do(refuse))
    assert player.ask(Say("x")) == "heard x as 1"
    assert received == ["made", "start", "x"]
    assert actor_system.system.stats().restarts == 0


def test_bug_replaces_instance_and_keeps_reference_and_messages(actor_system: SystemHarness) -> None:
    """Same reference, same URN; what was handed over is there, and what waited is handled by the new one."""
    received: list[Any] = []
    player = actor_system.spawn(Watched, received)
    urn = player.actor_urn
    first = player.ask(do(id))
    player.ask(Say("x"))
    with actor_system.paused(player):
        failed, waiting = player.ask(Fail("bug"), block=False), player.ask(Say("y"), block=False)
    with pytest.raises(ValueError, match="bug"):
        failed.get()
    assert waiting.get() == "heard y as 2"
    assert received == ["made", "start", "x", "left by ValueError('bug')", "made", "back with 1", "start", "y"]
    assert player.ask(do(lambda one: one.actor_ref is player))
    assert player.ask(do(id)) != first
    assert (player.actor_urn, player.is_alive(), actor_system.system.actors()) == (urn, True, [player])
    assert actor_system.system.stats().restarts == 1


def test_bug_in_told_handler_is_logged_and_restarts_actor(
    actor_system: SystemHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """Told, it is in the log, and the actor begins anew all the same."""
    received: list[Any] = []
    player = actor_system.spawn(Watched, received)
    with caplog.at_level(logging.ERROR, "callboard.runtime"):
        player.tell(Fail("bug"))
        assert player.ask(Say("x")) == "heard x as 1"
    assert f"{player} restarts after a bug" in caplog.text
    assert "ValueError: bug" in caplog.text


def test_message_without_handler_restarts_supervised_actor(actor_system: SystemHarness) -> None:
    """As any other error that is not of the domain."""
    player = actor_system.spawn(Watched)
    with pytest.raises(TypeError, match="no handler for dict"):
        player.ask({})
    assert player.ask(Say("x")) == "heard x as 1"


# For good ------------------------------------------------------------------------------------------------------------


def test_fourth_bug_within_limit_fails_actor(actor_system: SystemHarness) -> None:
    """Who waits and who comes later hears why, each of his own error; siblings and others do not notice."""
    received: list[Any] = []
    sibling, player = actor_system.spawn(Watched), actor_system.spawn(Watched, received)
    for _ in range(3):
        fail(player)
    assert player.ask(Say("x")) == "heard x as 1"
    with actor_system.paused(player):
        last, waiting = player.ask(Fail("the last"), block=False), player.ask(Say("y"), block=False)
        stopping = player.stop(block=False)
    with pytest.raises(ValueError, match="the last"):
        last.get()
    why = r"Watched \(urn:.*\) has failed: 4 bugs .*; the last was ValueError\('the last'\)"
    for late in (waiting.get, lambda: player.ask(Say("z")), lambda: player.tell(Say("z"))):
        with pytest.raises(ActorFailed, match=why):
            late()
    assert stopping.get() is True
    assert received[-1] == "failed by ValueError('the last')"
    assert not player.is_alive()
    assert actor_system.system.actors() == [sibling]
    assert sibling.ask(Say("x")) == "heard x as 1"
    assert actor_system.system.stats().restarts == 3


def test_each_ask_of_failed_actor_gets_its_own_error(actor_system: SystemHarness) -> None:
    """One that all raise would grow with each who does."""
    player = actor_system.spawn(Watched)
    fail_for_good(player)
    actor_system.until(lambda: not player.is_alive())
    depths = []
    for _ in range(3):
        with pytest.raises(pykka.ActorDeadError) as caught:
            player.tell(Say("x"))
        depths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert depths[0] == depths[1] == depths[2]


def test_parent_gets_child_failed(actor_system: SystemHarness) -> None:
    received: list[Any] = []
    parent = actor_system.spawn(Parent, received)
    child: ActorRef = parent.ask(do(lambda one: one.spawn(Watched)))
    for _ in range(3):
        fail(child)
    assert received == ["start"], "restarts are no news"
    fail(child, "the last")
    actor_system.until(lambda: len(received) == 2)
    assert received[1] == (child, "ValueError('the last')")


class Narrow(Parent):
    high_water = 1


class Strict(Watched):
    """Is forgiven nothing."""

    supervision = Supervision(restarts=0)


def test_parent_with_full_mailbox_gets_child_failed(actor_system: SystemHarness) -> None:
    """Its mailbox refuses others then, but what the runtime says once nobody could say again."""
    received: list[Any] = []
    parent = actor_system.spawn(Narrow, received)
    child: ActorRef = parent.ask(do(lambda one: one.spawn(Strict)))

    def fill_the_parents_mailbox_and_fail(_: Player) -> None:
        with suppress(MailboxFull):
            for number in range(1000):
                parent.tell(Say(number))
        raise ValueError("bug")

    child.tell(do(fill_the_parents_mailbox_and_fail))
    actor_system.until(lambda: (child, "ValueError('bug')") in received)
    assert actor_system.spawn(Player).ask(Say("x")) == "heard x"


@pytest.mark.parametrize("is_alive", [True, False])
def test_parent_without_child_failed_handler_is_not_notified(actor_system: SystemHarness, is_alive: bool) -> None:
    """It takes no ChildFailed, or it is gone."""
    parent = actor_system.spawn(Player if is_alive else Parent)
    child: ActorRef = parent.ask(do(lambda one: one.spawn(Watched)))
    if not is_alive:
        parent.stop()
    fail_for_good(child)
    actor_system.until(lambda: not child.is_alive())
    assert actor_system.spawn(Player).ask(Say("x")) == "heard x"
    assert parent.is_alive() is is_alive


class FailsTwice(Watched):
    def on_failure(self, *args: Any) -> None:
        raise RuntimeError("and a bug in on_failure")


def test_error_in_on_failure_is_logged(actor_system: SystemHarness) -> None:
    received: list[Any] = []
    parent = actor_system.spawn(Parent, received)
    child: ActorRef = parent.ask(do(lambda one: one.spawn(FailsTwice)))
    fail_for_good(child)
    actor_system.until(lambda: len(received) == 2)
    with pytest.raises(ActorFailed):
        child.ask(Say("x"))


# Bugs on the way back ------------------------------------------------------------------------------------------------


class Clumsy(Watched):
    """Stumbles ``stumbles`` times at a ``step`` of coming back."""

    def __init__(self, plan: dict[str, Any], received: list[Any]) -> None:
        self.plan = plan
        self.stumble("__init__")
        super().__init__(received)

    def stumble(self, step: str) -> None:
        if self.plan["step"] == step and self.plan["is_set"] and self.plan["stumbles"]:
            self.plan["stumbles"] -= 1
            raise ValueError(f"bug in {step}")

    def restore_state(self, kept: int) -> None:
        self.stumble("restore_state")
        super().restore_state(kept)

    def on_start(self) -> None:
        self.stumble("on_start")
        super().on_start()


STEPS = pytest.mark.parametrize("step", ["__init__", "restore_state", "on_start"])


@STEPS
@pytest.mark.parametrize("stumbles", [0, 1, 2])
def test_error_in_restart_counts_as_bug_and_is_retried(actor_system: SystemHarness, step: str, stumbles: int) -> None:
    """They count, and the next try has what the last good instance left."""
    plan: dict[str, Any] = {"step": step, "stumbles": stumbles, "is_set": False}
    received: list[Any] = []
    player = actor_system.spawn(Clumsy, plan, received)
    player.ask(Say("x"))
    plan["is_set"] = True
    fail(player)
    assert player.ask(Say("y")) == "heard y as 2"
    assert received[-3:] == ["back with 1", "start", "y"]
    assert actor_system.system.stats().restarts == 1 + stumbles


@STEPS
def test_three_errors_in_restart_fail_actor(actor_system: SystemHarness, step: str) -> None:
    """Together with the one that began it. Whoever waits does not wait for ever."""
    plan: dict[str, Any] = {"step": step, "stumbles": 3, "is_set": False}
    parent_heard: list[Any] = []
    parent = actor_system.spawn(Parent, parent_heard)
    child: ActorRef = parent.ask(do(lambda one: one.spawn(Clumsy, plan, [])))
    actor_system.wait_until_handled(child)
    plan["is_set"] = True
    fail(child)
    with pytest.raises(ActorFailed, match=f"bug in {step}"):
        child.ask(Say("x"))
    actor_system.until(lambda: parent_heard[1:] == [(child, f"ValueError('bug in {step}')")])


def test_error_in_first_on_start_restarts_actor(actor_system: SystemHarness) -> None:
    plan: dict[str, Any] = {"step": "on_start", "stumbles": 2, "is_set": True}
    received: list[Any] = []
    player = actor_system.spawn(Clumsy, plan, received)
    assert player.ask(Say("x")) == "heard x as 1"
    assert actor_system.system.stats().restarts == 2


class Forgetful(Watched):
    def save_state(self, error: Exception | None) -> int:
        raise RuntimeError("what was it?")

    def restore_state(self, kept: Any) -> None:
        self.received.append(f"back with {kept}")


def test_error_in_on_leave_still_restarts_actor(actor_system: SystemHarness) -> None:
    received: list[Any] = []
    player = actor_system.spawn(Forgetful, received)
    fail(player)
    assert player.ask(Say("x")) == "heard x as 1"
    assert "back with None" in received


# In what time --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pause_ms", "is_forgiven"), [(0, False), (9_999, False), (10_000, True)])
def test_bugs_older_than_window_do_not_count(pause_ms: int, is_forgiven: bool) -> None:
    dispatcher = Simulation(1)
    player = System(dispatcher).spawn(Watched)
    for _ in range(3):
        fail(player)
    dispatcher.advance(pause_ms)
    fail(player)
    assert player.is_alive() is is_forgiven
    if is_forgiven:
        fail(player)
        fail(player)
        assert player.is_alive()
        fail(player)
        assert not player.is_alive()


def test_supervision_with_zero_restarts_fails_at_first_bug(actor_system: SystemHarness) -> None:
    player = actor_system.spawn(Strict)
    fail(player)
    with pytest.raises(ActorFailed):
        player.ask(Say("x"))
    assert actor_system.system.stats().restarts == 0


# A stand-in ----------------------------------------------------------------------------------------------------------


class Understudy(Player):
    """Answers in the place of one who has failed, with what he left."""

    may_passivate = True

    def restore_state(self, kept: Any) -> None:
        self.count = kept

    def say(self, message: Say) -> str:
        return f"{self.count} were heard before it failed"

    def save_state(self, error: Exception | None) -> int:
        return int(self.count)


class Understudied(Watched):
    placeholder: type[Actor] | None = Understudy
    may_passivate = True


def test_placeholder_answers_for_failed_actor_until_passivated(actor_system: SystemHarness) -> None:
    """The reference lives on; the parent hears; when the stand-in has slept the actor itself is back."""
    received: list[Any] = []
    parent = actor_system.spawn(Parent, received)
    child: ActorRef = parent.ask(do(lambda one: one.spawn(Understudied)))
    child.ask(Say("x"))
    fail_for_good(child)
    assert child.ask(Say("y")) == "1 were heard before it failed"
    assert child.is_alive()
    actor_system.until(lambda: len(received) == 2)
    assert received[1] == (child, "ValueError('bug')")
    child.ask(do(lambda one: one.passivate()))
    assert child.ask(Say("z")) == "heard z as 2"
    fail(child)
    assert child.ask(Say("z")) == "heard z as 3", "its bugs are forgotten"
