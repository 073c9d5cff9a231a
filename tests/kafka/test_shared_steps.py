"""Requests share the result of a computation that begins after them, and each of them drives it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from callboard.actors.steps import Steps, run_steps
from callboard.runtime.kafka.shared_steps import SharedSteps

KEY = "list"


class Work:
    """Computations of ``length`` steps that return their number."""

    def __init__(self, length: int = 3) -> None:
        self.length = length
        self.begun = 0
        self.steps = 0
        self.closed = 0

    def make(self) -> Steps[int]:
        self.begun += 1
        number = self.begun
        try:
            for _ in range(self.length):
                self.steps += 1
                yield
        except GeneratorExit:
            self.closed += 1
            raise
        return number


def advance(steps: Generator[None, None, Any], count: int = 1) -> None:
    for _ in range(count):
        next(steps)


def test_single_request_gets_its_own_result() -> None:
    shared, work = SharedSteps(), Work()
    assert run_steps(shared.result(KEY, work.make)) == 1
    assert run_steps(shared.result(KEY, work.make)) == 2
    assert len(shared) == 0


def test_requests_during_a_computation_share_the_next_one() -> None:
    """A request never gets the result of a computation that began before it: it could lack the client's own change."""
    shared, work = SharedSteps(), Work()
    first = shared.result(KEY, work.make)
    advance(first)
    later = [shared.result(KEY, work.make) for _ in range(10)]
    assert run_steps(first) == 1
    assert [run_steps(steps) for steps in later] == [2] * 10
    assert work.steps == 2 * work.length
    assert len(shared) == 0


def test_requests_with_other_keys_share_nothing() -> None:
    shared, work = SharedSteps(), Work()
    one, other = shared.result("one", work.make), shared.result("other", work.make)
    advance(one)
    advance(other)
    assert {run_steps(one), run_steps(other)} == {1, 2}


def test_request_goes_on_when_the_one_that_began_is_given_up() -> None:
    shared, work = SharedSteps(), Work()
    first = shared.result(KEY, work.make)
    advance(first)
    second = shared.result(KEY, work.make)
    first.close()
    assert run_steps(second) == 2
    assert (work.closed, len(shared)) == (1, 0)


def test_request_that_never_had_a_slice_is_given_up() -> None:
    shared, work = SharedSteps(), Work()
    shared.result(KEY, work.make).close()
    assert (work.steps, len(shared)) == (0, 0)


def test_computation_without_requests_is_given_up() -> None:
    shared, work = SharedSteps(), Work()
    steps = shared.result(KEY, work.make)
    advance(steps)
    steps.close()
    assert (work.closed, len(shared)) == (1, 0)


def test_error_reaches_only_the_requests_that_share_the_computation() -> None:
    shared, work = SharedSteps(), Work()

    def fail() -> Steps[int]:
        yield
        raise ValueError("broken")

    first = shared.result(KEY, fail)
    advance(first)
    second = shared.result(KEY, work.make)
    assert run_steps(second) == 1
    with pytest.raises(ValueError, match="broken"):
        run_steps(first)
