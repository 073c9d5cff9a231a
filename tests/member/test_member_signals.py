"""Tests of ``callboard.leave_on_signals``: the first signal leaves, a second one has its usual effect."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from math import inf

import pytest

import callboard
from callboard.runtime.common import stop_request
from callboard.runtime.common.stop_request import SAME_REQUEST_S

SIGNALS = (signal.SIGUSR2,)
DEADLINE_S = 60.0


@pytest.fixture
def usual(request: pytest.FixtureRequest) -> Iterator[list[int]]:
    """The signals that reached the program's own handler."""
    received: list[int] = []
    previous = signal.signal(signal.SIGUSR2, lambda number, _frame: received.append(number))
    yield received
    signal.signal(signal.SIGUSR2, previous)


def test_signal_ends_run_of_blocking_member_after_its_handlers(usual: list[int]) -> None:
    ended: list[str] = []

    def handle(shard: callboard.BlockingShard) -> None:
        os.kill(os.getpid(), signal.SIGUSR2)
        assert shard.revoked.wait(DEADLINE_S)
        assert shard.commit(1).durability == "synced", "a handler may commit until it ends"
        ended.append(str(shard.name))

    with (
        callboard.Coordinator.in_thread() as coordinator,
        coordinator.member("g", resources={"jobs": 1}) as member,
        callboard.leave_on_signals(member, SIGNALS),
    ):
        member.run(handle)
        assert usual == []
        time.sleep(SAME_REQUEST_S)
        os.kill(os.getpid(), signal.SIGUSR2)
        assert usual == [signal.SIGUSR2], "a second signal has its usual effect"
        assert coordinator.describe("g").members == ()
    assert ended == ["0"]


def test_signal_that_comes_twice_makes_a_blocking_member_leave(
    usual: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``timeout`` signals a process and its group. The second one ended the process before it had left."""
    leaves: list[object] = []
    monkeypatch.setattr(callboard.BlockingMember, "start_leaving", lambda self: leaves.append(self))
    monkeypatch.setattr(stop_request, "SAME_REQUEST_S", inf)
    with (
        callboard.Coordinator.in_thread() as coordinator,
        callboard.leave_on_signals(coordinator.member("g", resources={"jobs": 1}), SIGNALS),
    ):
        for count in (1, 2):
            os.kill(os.getpid(), signal.SIGUSR2)
            assert (len(leaves), usual) == (count, [])
        monkeypatch.setattr(stop_request, "SAME_REQUEST_S", 0)
        os.kill(os.getpid(), signal.SIGUSR2)
        assert usual == [signal.SIGUSR2]


def test_signal_that_comes_twice_makes_a_member_on_a_loop_leave(
    usual: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves: list[object] = []
    monkeypatch.setattr(callboard.Member, "start_leaving", lambda self: leaves.append(self))
    monkeypatch.setattr(stop_request, "SAME_REQUEST_S", inf)

    async def scenario() -> None:
        async with callboard.Coordinator() as coordinator:
            member = coordinator.member("g", resources={"jobs": 1})
        with callboard.leave_on_signals(member, SIGNALS):
            for count in (1, 2):
                os.kill(os.getpid(), signal.SIGUSR2)
                while len(leaves) < count:
                    await asyncio.sleep(0)
            assert usual == []

    asyncio.run(scenario())


def test_signal_cancels_handlers_of_member_and_ends_its_run() -> None:
    ended: list[str] = []

    async def handle(shard: callboard.Shard) -> None:
        os.kill(os.getpid(), signal.SIGUSR2)
        try:
            await asyncio.Event().wait()
        finally:
            await shard.commit(1)
            ended.append(str(shard.name))

    async def scenario() -> None:
        async with (
            asyncio.timeout(DEADLINE_S),
            callboard.Coordinator() as coordinator,
            coordinator.member("g", resources={"jobs": 1}) as member,
        ):
            with callboard.leave_on_signals(member, SIGNALS):
                await member.run(handle)
            assert (await coordinator.describe("g")).members == ()

    asyncio.run(scenario())
    assert ended == ["0"]
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_handlers_of_the_program_are_restored_after_the_block(usual: list[int]) -> None:
    with (
        callboard.Coordinator.in_thread() as coordinator,
        coordinator.member("g", resources={"jobs": 1}) as member,
    ):
        with callboard.leave_on_signals(member, SIGNALS):
            pass
        os.kill(os.getpid(), signal.SIGUSR2)
        assert usual == [signal.SIGUSR2]


def test_leave_on_signals_outside_of_the_main_thread_is_refused() -> None:
    errors: list[str] = []

    def use_in_thread() -> None:
        with callboard.Coordinator.in_thread() as coordinator:
            member = coordinator.member("g", resources={"jobs": 1})
            with pytest.raises(RuntimeError) as error, callboard.leave_on_signals(member):
                raise AssertionError("entered")
            errors.append(str(error.value))

    thread = threading.Thread(target=use_in_thread)
    thread.start()
    thread.join(DEADLINE_S)
    assert errors == ["signals reach the main thread only: use leave_on_signals() there"]


class ForkedChild:
    """It waits until a signal ends it."""

    def __init__(self) -> None:
        self.ready_fd, write_fd = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # a fork with threads; the child uses none of their locks
            self.pid = os.fork()
        if not self.pid:
            os.write(write_fd, b".")
            signal.alarm(round(DEADLINE_S))
            while True:
                signal.pause()
        os.close(write_fd)

    def end_by_signal(self) -> int:
        """Returns the signal that ended it."""
        with open(self.ready_fd, "rb") as ready:
            assert ready.read(1) == b"."
        os.kill(self.pid, signal.SIGUSR2)
        return os.WTERMSIG(os.waitpid(self.pid, 0)[1])


def test_signal_of_a_forked_child_ends_the_child() -> None:
    """As multiprocessing's ``terminate``; the child has no member that could leave."""
    with (
        callboard.Coordinator.in_thread() as coordinator,
        coordinator.member("g", resources={"jobs": 1}) as member,
        callboard.leave_on_signals(member, SIGNALS),
    ):
        assert ForkedChild().end_by_signal() == signal.SIGUSR2
        assert member.next_assignment(DEADLINE_S).shards[0].commit(1).durability == "synced"


def test_signal_of_a_forked_child_does_not_make_the_parent_leave() -> None:
    """They share the socket by which an event loop learns of signals."""

    async def scenario() -> None:
        async with (
            asyncio.timeout(DEADLINE_S),
            callboard.Coordinator() as coordinator,
            coordinator.member("g", resources={"jobs": 1}) as member,
        ):
            assignment = await member.next_assignment()
            with callboard.leave_on_signals(member, SIGNALS):
                assert ForkedChild().end_by_signal() == signal.SIGUSR2
                await asyncio.sleep(0.01)  # the loop would handle the signal
                assert not assignment.is_over
                await assignment.shards[0].commit(1)

    asyncio.run(scenario())
