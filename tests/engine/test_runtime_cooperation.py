"""Actors that work together as those of pykka's example ``cooperation``: a handler calls a method of another actor
through its proxy and blocks in ``get()`` until the answer is there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pykka
import pytest
from actor_system.players import WAIT_TIMEOUT_S, SystemHarness, open_system, system_fixture

from callboard.actors.base import DEFERRED, Actor
from callboard.runtime.engine.reply import Reply, WouldDeadlock
from callboard.runtime.engine.waiting_workers import WaitingWorkers

two_workers = system_fixture("threads-2")
REQUESTS = 50


class Adder(Actor):
    """Answers sums."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def increment(self, number: int) -> int:
        self.calls += 1
        return number + 1

    def divide(self, number: int, divisor: int) -> float:
        return number / divisor


class Bookkeeper(Actor):
    """Counts with the help of another actor."""

    def __init__(self, adder: Any) -> None:
        super().__init__()
        self.adder = adder

    def count_to(self, target: int) -> list[int]:
        """The numbers from 0 to ``target``, each from an answer of the adder."""
        numbers = [0]
        while numbers[-1] < target:
            numbers.append(self.adder.increment(numbers[-1]).get())
        return numbers

    def call(self, function: Callable[[Any], Any]) -> Any:
        return function(self.adder)


class Interrupter(Actor):
    """Answers first, and then waits for the adder in the same turn."""

    def __init__(self, adder: Any) -> None:
        super().__init__()
        self.adder = adder
        self.number = 0

    def answer_and_ask(self) -> Any:
        assert self.reply_to is not None
        self.reply_to.set("answered")
        self.number = self.adder.increment(self.number).get()
        return DEFERRED


def bookkeeper_on(actor_system: SystemHarness) -> tuple[Any, Any]:
    """Proxies of a bookkeeper and of its adder."""
    adder = actor_system.spawn(Adder).proxy()
    return actor_system.spawn(Bookkeeper, adder).proxy(), adder


def test_handler_counts_with_answers_of_another_actor(two_workers: SystemHarness) -> None:
    bookkeeper, adder = bookkeeper_on(two_workers)
    assert bookkeeper.count_to(REQUESTS).get(timeout=WAIT_TIMEOUT_S) == list(range(REQUESTS + 1))
    assert adder.calls.get(timeout=WAIT_TIMEOUT_S) == REQUESTS


WAITS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "attribute": (lambda adder: adder.calls.get(), 0),
    "several futures": (lambda adder: pykka.get_all([adder.increment(number) for number in range(3)]), [1, 2, 3]),
    "map": (lambda adder: adder.increment(1).map(str).get(), "2"),
    "join": (lambda adder: adder.increment(1).join(adder.increment(2)).get(), [2, 3]),
    "later get": (lambda adder: [adder.increment(1), adder.increment(2).get()][0].get(), 2),
}


@pytest.mark.parametrize("name", WAITS)
def test_handler_waits_for_future_of_another_actor(two_workers: SystemHarness, name: str) -> None:
    wait, expected = WAITS[name]
    bookkeeper, _ = bookkeeper_on(two_workers)
    assert bookkeeper.call(wait).get(timeout=WAIT_TIMEOUT_S) == expected


def test_error_of_asked_actor_is_raised_in_asking_handler(two_workers: SystemHarness) -> None:
    bookkeeper, _ = bookkeeper_on(two_workers)

    def divide_by_zero(adder: Any) -> str:
        with pytest.raises(ZeroDivisionError):
            adder.divide(1, 0).get()
        return "raised"

    assert bookkeeper.call(divide_by_zero).get(timeout=WAIT_TIMEOUT_S) == "raised"
    assert bookkeeper.count_to(2).get(timeout=WAIT_TIMEOUT_S) == [0, 1, 2]


def test_two_handlers_wait_at_the_same_time_with_three_workers() -> None:
    """Both bookkeepers may wait, because the third worker runs the adder."""
    with open_system("threads-3") as actor_system:
        adder = actor_system.spawn(Adder).proxy()
        bookkeepers = [actor_system.spawn(Bookkeeper, adder).proxy() for _ in range(2)]
        counts = pykka.get_all([bookkeeper.count_to(REQUESTS) for bookkeeper in bookkeepers], timeout=WAIT_TIMEOUT_S)
        assert counts == [list(range(REQUESTS + 1))] * 2


def test_get_in_handler_on_one_worker_raises_would_deadlock_with_advice() -> None:
    """The actors work on after it."""
    with open_system("threads-1") as actor_system:
        bookkeeper, adder = bookkeeper_on(actor_system)
        with pytest.raises(WouldDeadlock, match=r"no other worker is free \(workers=1\): start the system with more"):
            bookkeeper.count_to(2).get(timeout=WAIT_TIMEOUT_S)
        assert bookkeeper.count_to(0).get(timeout=WAIT_TIMEOUT_S) == [0]
        assert adder.increment(1).get(timeout=WAIT_TIMEOUT_S) == 2


def test_worker_whose_answer_has_arrived_counts_as_free(two_workers: SystemHarness) -> None:
    """The interrupter may wait: the bookkeeper's wait has ended, even if its thread has not run since."""
    adder = two_workers.spawn(Adder).proxy()
    interrupter = two_workers.spawn(Interrupter, adder).proxy()
    bookkeeper = two_workers.spawn(Bookkeeper, interrupter).proxy()
    for number in range(1, REQUESTS + 1):
        asked = bookkeeper.call(lambda other: other.answer_and_ask().get())
        assert asked.get(timeout=WAIT_TIMEOUT_S) == "answered"
        assert interrupter.number.get(timeout=WAIT_TIMEOUT_S) == number


def test_wait_for_reply_that_another_worker_has_just_settled_is_not_refused() -> None:
    """The reply may be settled after ``get`` has looked and before its wait is checked."""
    waits = WaitingWorkers(1)
    waits.running[threading.get_ident()] = "asking"
    reply = Reply()
    reply.receiver = "asked"
    with pytest.raises(WouldDeadlock), waits.waiting_for(reply):
        pass
    reply.set("answer")
    with waits.waiting_for(reply):
        assert reply.get() == "answer"
