"""Supervision, on every dispatcher: a bug restarts the actor, too many bugs within a window fail it.

A failed actor does not affect others.
"""

from __future__ import annotations

import logging
import traceback
from contextlib import suppress
from typing import Any, ClassVar

import pykka
import pytest
from actor_system.players import REAL, SIMULATIONS, Fail, Player, Say, SystemHarness, do, system_fixture

from callboard.actors.base import Actor, ActorFailed, ActorRef, ChildFailed, MailboxFull, Supervision, UnhandledMessage
from callboard.runtime.engine.simulation import Simulation
from callboard.runtime.engine.system import System

actor_system = system_fixture(*REAL, *SIMULATIONS)


class Refused(Exception):
    """A domain error: a reply to the caller, not a bug."""


class Watched(Player):
    """Records the steps of its restarts. Its count is passed on from one instance to the next."""

    supervision = Supervision(domain_errors=(Refused,))

    def __init__(self, received: list[Any] | None = None, name: str = "") -> None:
        super().__init__(received, name)
        self.count = 0
        self.received.append("created")

    def say(self, message: Say) -> str:
        self.count += 1
        return f"{super().say(message)} as {self.count}"

    def save_state(self, error: Exception | None) -> int:
        self.received.append(f"saved by {error!r}")
        return self.count

    def restore_state(self, saved: int) -> None:
        self.count = saved
        self.received.append(f"restored with {saved}")

    def on_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
        self.received.append(f"failed by {exception_value!r}")


class Parent(Player):
    """Records the failures of its children."""

    handlers = {**Player.handlers, ChildFailed: "on_child_failed"}

    def on_child_failed(self, message: ChildFailed) -> None:
        self.received.append((message.child, repr(message.error)))


def fail(ref: ActorRef, bug: str = "bug") -> None:
    """Raise an error in the actor's handler; the caller gets it and the actor restarts."""
    with pytest.raises(ValueError, match=bug):
        ref.ask(Fail(bug))


def fail_beyond_limit(ref: ActorRef) -> None:
    """Raise one error more than the default supervision allows."""
    for _ in range(4):
        fail(ref)


# Errors and bugs -----------------------------------------------------------------------------------------------------


def refuse(_: Player) -> None:
    raise Refused("not today")


def test_domain_error_is_raised_to_caller_without_restart(actor_system: SystemHarness) -> None:
    """For ``ask`` and for ``tell``, the same instance goes on and no restart is counted."""
    received: list[Any] = []
    player = actor_system.spawn(Watched, received)
    for _ in range(10):
        with pytest.raises(Refused, match="not today"):
            player.ask(do(refuse))
        player.tell(do(refuse))
    assert player.ask(Say("x")) == "heard x as 1"
    assert received == ["created", "start", "x"]
    assert actor_system.system.stats().restarts == 0


def test_bug_replaces_instance_and_keeps_reference_and_messages(actor_system: SystemHarness) -> None:
    """Reference and URN stay the same. The new instance has the saved state and handles the waiting messages."""
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
    assert received == [
        "created",
        "start",
        "x",
        "saved by ValueError('bug')",
        "created",
        "restored with 1",
        "start",
        "y",
    ]
    assert player.ask(do(lambda actor: actor.actor_ref is player))
    assert player.ask(do(id)) != first
    assert (player.actor_urn, player.is_alive(), actor_system.system.actors()) == (urn, True, [player])
    assert actor_system.system.stats().restarts == 1


def test_bug_in_told_handler_is_logged_and_restarts_actor(
    actor_system: SystemHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug in a told message is logged, because no caller gets it; the actor restarts all the same."""
    received: list[Any] = []
    player = actor_system.spawn(Watched, received)
    with caplog.at_level(logging.ERROR, "callboard.runtime"):
        player.tell(Fail("bug"))
        assert player.ask(Say("x")) == "heard x as 1"
    assert f"{player} restarts after a bug" in caplog.text
    assert "ValueError: bug" in caplog.text


def test_message_without_handler_does_not_affect_supervised_actor(actor_system: SystemHarness) -> None:
    """It is an error of the sender: also many of them restart nothing."""
    player = actor_system.spawn(Watched)
    for _ in range(5):
        with pytest.raises(UnhandledMessage, match="no handler for dict"):
            player.ask({})
        player.tell({})
    assert player.ask(Say("x")) == "heard x as 1"
    assert actor_system.system.stats().restarts == 0


def test_handler_that_sends_a_message_without_handler_has_a_bug(actor_system: SystemHarness) -> None:
    """The sender is an actor, and the error is its own."""
    other, player = actor_system.spawn(Player), actor_system.spawn(Watched)
    error = UnhandledMessage(other, {})

    def fail(_: object) -> None:
        raise error

    with pytest.raises(UnhandledMessage):
        player.ask(do(fail))
    assert player.ask(Say("x")) == "heard x as 1"


# Failure -------------------------------------------------------------------------------------------------------------


def test_fourth_bug_within_limit_fails_actor(actor_system: SystemHarness) -> None:
    """Waiting and later messages are refused with the cause. A sibling is not affected."""
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
    expected = r"Watched \(urn:.*\) has failed: 4 bugs .*; the last was ValueError\('the last'\)"
    for call in (waiting.get, lambda: player.ask(Say("z")), lambda: player.tell(Say("z"))):
        with pytest.raises(ActorFailed, match=expected):
            call()
    assert stopping.get() is True
    assert received[-1] == "failed by ValueError('the last')"
    assert not player.is_alive()
    assert actor_system.system.actors() == [sibling]
    assert sibling.ask(Say("x")) == "heard x as 1"
    assert actor_system.system.stats().restarts == 3


def test_each_ask_of_failed_actor_gets_its_own_error(actor_system: SystemHarness) -> None:
    """The traceback of one shared exception would grow each time it is raised."""
    player = actor_system.spawn(Watched)
    fail_beyond_limit(player)
    actor_system.until(lambda: not player.is_alive())
    depths = []
    for _ in range(3):
        with pytest.raises(pykka.ActorDeadError) as raised:
            player.tell(Say("x"))
        depths.append(len(traceback.extract_tb(raised.value.__traceback__)))
    assert depths[0] == depths[1] == depths[2]


def test_parent_gets_child_failed(actor_system: SystemHarness) -> None:
    received: list[Any] = []
    parent = actor_system.spawn(Parent, received)
    child: ActorRef = parent.ask(do(lambda actor: actor.spawn(Watched)))
    for _ in range(3):
        fail(child)
    assert received == ["start"], "a restart sends no ChildFailed"
    fail(child, "the last")
    actor_system.until(lambda: len(received) == 2)
    assert received[1] == (child, "ValueError('the last')")


class Narrow(Parent):
    high_water = 1


class Strict(Watched):
    """Fails at its first bug."""

    supervision = Supervision(restarts=0)


def test_parent_with_full_mailbox_gets_child_failed(actor_system: SystemHarness) -> None:
    """A full mailbox refuses other messages, but not ChildFailed, which is sent only once."""
    received: list[Any] = []
    parent = actor_system.spawn(Narrow, received)
    child: ActorRef = parent.ask(do(lambda actor: actor.spawn(Strict)))

    def fill_mailbox_of_parent_and_fail(_: Player) -> None:
        with suppress(MailboxFull):
            for number in range(1000):
                parent.tell(Say(number))
        raise ValueError("bug")

    child.tell(do(fill_mailbox_of_parent_and_fail))
    actor_system.until(lambda: (child, "ValueError('bug')") in received)
    assert actor_system.spawn(Player).ask(Say("x")) == "heard x"


@pytest.mark.parametrize("is_alive", [True, False])
def test_parent_without_child_failed_handler_is_not_notified(actor_system: SystemHarness, is_alive: bool) -> None:
    """The parent has no handler for ChildFailed, or it has stopped."""
    parent = actor_system.spawn(Player if is_alive else Parent)
    child: ActorRef = parent.ask(do(lambda actor: actor.spawn(Watched)))
    if not is_alive:
        parent.stop()
    fail_beyond_limit(child)
    actor_system.until(lambda: not child.is_alive())
    assert actor_system.spawn(Player).ask(Say("x")) == "heard x"
    assert parent.is_alive() is is_alive


class FailsTwice(Watched):
    def on_failure(self, *args: Any) -> None:
        raise RuntimeError("and a bug in on_failure")


def test_error_in_on_failure_is_logged(actor_system: SystemHarness) -> None:
    received: list[Any] = []
    parent = actor_system.spawn(Parent, received)
    child: ActorRef = parent.ask(do(lambda actor: actor.spawn(FailsTwice)))
    fail_beyond_limit(child)
    actor_system.until(lambda: len(received) == 2)
    with pytest.raises(ActorFailed):
        child.ask(Say("x"))


# Errors in a restart -------------------------------------------------------------------------------------------------


class FailsInRestart(Watched):
    """Raises ``errors`` errors at ``step`` of a restart."""

    def __init__(self, plan: dict[str, Any], received: list[Any]) -> None:
        self.plan = plan
        self.raise_error("__init__")
        super().__init__(received)

    def raise_error(self, step: str) -> None:
        if self.plan["step"] == step and self.plan["is_set"] and self.plan["errors"]:
            self.plan["errors"] -= 1
            raise ValueError(f"bug in {step}")

    def restore_state(self, saved: int) -> None:
        self.raise_error("restore_state")
        super().restore_state(saved)

    def on_start(self) -> None:
        self.raise_error("on_start")
        super().on_start()


STEPS = pytest.mark.parametrize("step", ["__init__", "restore_state", "on_start"])


@STEPS
@pytest.mark.parametrize("errors", [0, 1, 2])
def test_error_in_restart_counts_as_bug_and_is_retried(actor_system: SystemHarness, step: str, errors: int) -> None:
    """Each error counts as a bug, and the next attempt restores the last saved state."""
    plan: dict[str, Any] = {"step": step, "errors": errors, "is_set": False}
    received: list[Any] = []
    player = actor_system.spawn(FailsInRestart, plan, received)
    player.ask(Say("x"))
    plan["is_set"] = True
    fail(player)
    assert player.ask(Say("y")) == "heard y as 2"
    assert received[-3:] == ["restored with 1", "start", "y"]
    assert actor_system.system.stats().restarts == 1 + errors


@STEPS
def test_three_errors_in_restart_fail_actor(actor_system: SystemHarness, step: str) -> None:
    """The error that caused the restart counts too. Waiting requests are refused."""
    plan: dict[str, Any] = {"step": step, "errors": 3, "is_set": False}
    received: list[Any] = []
    parent = actor_system.spawn(Parent, received)
    child: ActorRef = parent.ask(do(lambda actor: actor.spawn(FailsInRestart, plan, [])))
    actor_system.wait_until_handled(child)
    plan["is_set"] = True
    fail(child)
    with pytest.raises(ActorFailed, match=f"bug in {step}"):
        child.ask(Say("x"))
    actor_system.until(lambda: received[1:] == [(child, f"ValueError('bug in {step}')")])


def test_error_in_first_on_start_restarts_actor(actor_system: SystemHarness) -> None:
    plan: dict[str, Any] = {"step": "on_start", "errors": 2, "is_set": True}
    received: list[Any] = []
    player = actor_system.spawn(FailsInRestart, plan, received)
    assert player.ask(Say("x")) == "heard x as 1"
    assert actor_system.system.stats().restarts == 2


class FailsInSave(Watched):
    def save_state(self, error: Exception | None) -> int:
        raise RuntimeError("no state")

    def restore_state(self, saved: Any) -> None:
        self.received.append(f"restored with {saved}")


def test_error_in_on_leave_still_restarts_actor(actor_system: SystemHarness) -> None:
    received: list[Any] = []
    player = actor_system.spawn(FailsInSave, received)
    fail(player)
    assert player.ask(Say("x")) == "heard x as 1"
    assert "restored with None" in received


# The window ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pause_ms", "survives"), [(0, False), (9_999, False), (10_000, True)])
def test_bugs_older_than_window_do_not_count(pause_ms: int, survives: bool) -> None:
    dispatcher = Simulation(1)
    player = System(dispatcher).spawn(Watched)
    for _ in range(3):
        fail(player)
    dispatcher.advance(pause_ms)
    fail(player)
    assert player.is_alive() is survives
    if survives:
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


# The placeholder -----------------------------------------------------------------------------------------------------


class Placeholder(Player):
    """Answers in place of an actor that has failed, with its saved state."""

    may_passivate = True

    def restore_state(self, saved: Any) -> None:
        self.count = saved

    def say(self, message: Say) -> str:
        return f"{self.count} messages before it failed"

    def save_state(self, error: Exception | None) -> int:
        return int(self.count)


class HasPlaceholder(Watched):
    placeholder: ClassVar[type[Actor] | None] = Placeholder
    may_passivate = True


def test_placeholder_answers_for_failed_actor_until_passivated(actor_system: SystemHarness) -> None:
    """The reference stays valid and the parent gets ChildFailed. Passivating the placeholder restores the actor."""
    received: list[Any] = []
    parent = actor_system.spawn(Parent, received)
    child: ActorRef = parent.ask(do(lambda actor: actor.spawn(HasPlaceholder)))
    child.ask(Say("x"))
    fail_beyond_limit(child)
    assert child.ask(Say("y")) == "1 messages before it failed"
    assert child.is_alive()
    actor_system.until(lambda: len(received) == 2)
    assert received[1] == (child, "ValueError('bug')")
    child.ask(do(lambda actor: actor.passivate()))
    assert child.ask(Say("z")) == "heard z as 2"
    fail(child)
    assert child.ask(Say("z")) == "heard z as 3", "its earlier bugs do not count"
