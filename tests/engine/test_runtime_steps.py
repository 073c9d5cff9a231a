"""A handler that works in steps: between its slices other actors run, and its own mailbox waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pykka
import pytest
from actor_system.players import REAL, SIMULATIONS, WAIT_TIMEOUT_S, Player, Say, SystemHarness, do, system_fixture

from callboard.actors.base import DEFERRED, Supervision
from callboard.actors.steps import SLICE_NS, Steps
from callboard.runtime.engine.mailbox import mailbox_of

actor_system = system_fixture(*REAL, *SIMULATIONS)
simulated_system = system_fixture("simulation")

PIECES = 100


class Worker(Player):
    """A player whose functions may work in steps."""

    may_pause = True


class SupervisedWorker(Worker):
    supervision = Supervision(restarts=3, within_ms=10_000)


class SleepingWorker(Worker):
    may_passivate = True


@pytest.fixture
def slow_clock(actor_system: SystemHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes a slice, so that each piece of work is a slice."""
    now_ns = iter(range(0, 10**15, SLICE_NS))
    monkeypatch.setattr(actor_system.system.dispatcher, "clock_ns", lambda: next(now_ns))


def work(text: str, end: Callable[[Any], Any] = lambda _: "done", pieces: int = PIECES) -> Callable[[Any], Steps[Any]]:
    """A function for ``do`` that works in steps."""

    def steps(player: Any) -> Steps[Any]:
        for number in range(pieces):
            player.received.append(f"{text}{number}")
            yield
        return end(player)

    return steps


@pytest.mark.usefixtures("slow_clock")
def test_the_result_of_the_steps_is_the_reply_and_messages_that_wait_come_later(actor_system: SystemHarness) -> None:
    received: list[str] = []
    worker = actor_system.spawn(Worker, received)
    with actor_system.paused(worker):
        reply = worker.ask(do(work("piece ")), block=False)
        worker.tell(Say("later"))
    assert reply.get(timeout=WAIT_TIMEOUT_S) == "done"
    actor_system.wait_until_handled(worker)
    assert received == ["start", *(f"piece {number}" for number in range(PIECES)), "later"]


@pytest.mark.usefixtures("slow_clock")
def test_other_actors_run_between_slices(actor_system: SystemHarness) -> None:
    """They answer while the work goes on for as long as the test wants."""
    is_enough, received = [False], list[str]()

    def work_until_enough(_: Any) -> Steps[str]:
        while not is_enough[0]:
            yield
        return "done"

    worker, other = actor_system.spawn(Worker), actor_system.spawn(Player, received)
    reply = worker.ask(do(work_until_enough), block=False)
    for number in range(5):
        assert other.ask(Say(f"{number}"), timeout=WAIT_TIMEOUT_S) == f"heard {number}"
    assert not reply.done()
    is_enough[0] = True
    assert reply.get(timeout=WAIT_TIMEOUT_S) == "done"


def test_a_slice_ends_with_the_first_piece_after_its_time(simulated_system: SystemHarness) -> None:
    received: list[str] = []
    worker = simulated_system.spawn(Worker, received)
    reply = worker.ask(do(work("")), block=False)
    turns = 0
    while not reply.done():
        pieces = len(received)
        assert simulated_system.system.dispatcher.step()  # type: ignore[attr-defined]
        turns += 1
        assert len(received) - pieces <= 3  # and the start
    assert turns == pytest.approx(PIECES / 2, abs=2)


@pytest.mark.usefixtures("slow_clock")
def test_an_error_in_a_step_is_the_reply_and_ends_the_instance(actor_system: SystemHarness) -> None:
    def fail(_: Any) -> None:
        raise ValueError("in the last step")

    worker = actor_system.spawn(SupervisedWorker)
    with pytest.raises(ValueError, match="in the last step"):
        worker.ask(do(work("", fail)), timeout=WAIT_TIMEOUT_S)
    assert worker.ask(do(lambda player: player.received), timeout=WAIT_TIMEOUT_S) == ["start"]


@pytest.mark.usefixtures("slow_clock")
def test_steps_may_defer_their_reply(actor_system: SystemHarness) -> None:
    def keep(player: Any) -> object:
        player.kept = player.reply_to
        return DEFERRED

    worker = actor_system.spawn(Worker)
    reply = worker.ask(do(work("", keep)), block=False)
    actor_system.wait_until_handled(worker)
    assert not reply.done()
    worker.tell(do(lambda player: player.kept.set("at last")))
    assert reply.get(timeout=WAIT_TIMEOUT_S) == "at last"


@pytest.mark.usefixtures("slow_clock")
def test_a_stop_waits_for_the_end_of_the_steps(actor_system: SystemHarness) -> None:
    received: list[str] = []
    worker = actor_system.spawn(Worker, received)
    with actor_system.paused(worker):
        reply = worker.ask(do(work("")), block=False)
        stopped = worker.stop(block=False)
    assert stopped.get(timeout=WAIT_TIMEOUT_S) is True
    assert reply.get(timeout=WAIT_TIMEOUT_S) == "done"
    assert received == ["start", *map(str, range(PIECES)), "stop"]


@pytest.mark.usefixtures("slow_clock")
def test_a_passivation_during_the_steps_waits_for_their_end(actor_system: SystemHarness) -> None:
    def passivate_and_work(player: Any) -> Steps[Any]:
        player.passivate()
        return (yield from work("")(player))

    worker = actor_system.spawn(SleepingWorker)
    assert worker.ask(do(passivate_and_work), timeout=WAIT_TIMEOUT_S) == "done"
    assert worker.ask(do(lambda player: len(player.received)), timeout=WAIT_TIMEOUT_S) in (PIECES + 1, 1)


@pytest.mark.usefixtures("slow_clock")
def test_an_abandoned_actor_answers_its_unfinished_work_with_an_error(actor_system: SystemHarness) -> None:
    def abandon_and_work(player: Any) -> Steps[Any]:
        mailbox_of(player.actor_ref).abandon()
        return work("")(player)

    worker = actor_system.spawn(Worker)
    reply = worker.ask(do(abandon_and_work), block=False)
    with pytest.raises(pykka.ActorDeadError):
        reply.get(timeout=WAIT_TIMEOUT_S)


def test_a_generator_is_an_ordinary_reply_of_an_actor_that_may_not_pause(actor_system: SystemHarness) -> None:
    player = actor_system.spawn(Player)
    steps = player.ask(do(work("", pieces=1)), timeout=WAIT_TIMEOUT_S)
    assert next(steps, "over") is None
    assert next(steps, "over") == "over"
