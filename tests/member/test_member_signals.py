"""Tests of ``callboard.leave_on_signals``: the first signal leaves, a second one has its usual effect."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator

import pytest

import callboard

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
        os.kill(os.getpid(), signal.SIGUSR2)
        assert usual == [signal.SIGUSR2], "a second signal has its usual effect"
        assert coordinator.describe("g").members == ()
    assert ended == ["0"]


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
