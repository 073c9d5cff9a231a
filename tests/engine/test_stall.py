"""A stall of the process expires no session: time in which the process does not run does not count."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from runpy import run_path

import pytest
from peers.server import ServerProcess
from peers.waiting import wait_until
from peers.wire import Wire

from callboard.actors.base import Actor
from callboard.actors.timer.messages import Expired, Schedule
from callboard.runtime.engine import clock as clock_module
from callboard.runtime.engine.clock import CLOCK_CHECK_INTERVAL_MS, STALL_MS, SystemClock
from callboard.runtime.engine.system import System

SESSION_MS = 2000
STALL_S = 3.5  # longer than the session and than STALL_MS


class MachineClock:
    """A monotonic clock that the test advances, and the SystemClock that reads it."""

    def __init__(self) -> None:
        self.now_ms = 5000
        self.clock = SystemClock(lambda: self.now_ms * 1_000_000)


@pytest.fixture
def machine() -> MachineClock:
    return MachineClock()


def test_boottime_is_the_clock_that_counts_suspended_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = {time.CLOCK_BOOTTIME: 5000.0, time.CLOCK_MONOTONIC: 4000.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    assert run_path(clock_module.__file__)["boottime_s"]() == 5000.0


def test_monotonic_time_follows_machine_with_regular_reads(machine: MachineClock) -> None:
    clock = machine.clock
    clock.add_watcher()
    start_ms = clock.monotonic_ms()
    for _ in range(100):
        machine.now_ms += STALL_MS
        clock.monotonic_ms()
    assert clock.monotonic_ms() == start_ms + 100 * STALL_MS


def test_stall_counts_as_one_check_interval(machine: MachineClock) -> None:
    clock = machine.clock
    clock.add_watcher()
    start_ms = clock.monotonic_ms()
    machine.now_ms += 3_600_000
    assert clock.monotonic_ms() == start_ms + CLOCK_CHECK_INTERVAL_MS
    machine.now_ms += 10
    assert clock.monotonic_ms() == start_ms + CLOCK_CHECK_INTERVAL_MS + 10, "time after the stall counts"


def test_gap_without_watchers_is_not_a_stall(machine: MachineClock) -> None:
    """While no alarm is set the clock is not read regularly, so an hour counts as an hour."""
    clock = machine.clock
    start_ms = clock.monotonic_ms()
    machine.now_ms += 3_600_000
    clock.add_watcher()
    assert clock.monotonic_ms() == start_ms + 3_600_000
    clock.remove_watcher()
    machine.now_ms += 3_600_000
    assert clock.monotonic_ms() == start_ms + 7_200_000


class Waiting(Actor):
    handlers = {Expired: "on_expired"}

    def __init__(self, is_expired: asyncio.Event) -> None:
        super().__init__()
        self._is_expired = is_expired

    def on_expired(self, _message: Expired) -> None:
        self._is_expired.set()


def test_long_wait_with_set_alarm_is_not_a_stall() -> None:
    """A set alarm reads the clock at intervals, so a wait longer than STALL_MS ends in time."""

    async def main() -> None:
        async with System.on_loop() as system:
            clock, is_expired = system.clock, asyncio.Event()
            timer = system.start_timer()
            due_ms = clock.monotonic_ms() + STALL_MS + CLOCK_CHECK_INTERVAL_MS
            timer.tell(Schedule(system.spawn(Waiting, is_expired), "x", due_ms))
            start_s = time.monotonic()
            await asyncio.wait_for(is_expired.wait(), 30)
            assert clock.monotonic_ms() >= due_ms
            waited_ms = (time.monotonic() - start_s) * 1000
            assert waited_ms >= STALL_MS, "it did not end early"

    asyncio.run(main())


def test_stall_of_the_process_expires_no_session(tmp_path: Path) -> None:
    """After its server was stopped for longer than its session, a member's heartbeat succeeds.

    Then the member sends no heartbeats while the server runs, and its session expires.
    """
    with ServerProcess(tmp_path) as server, Wire(server.host, server.port) as wire:
        options = {"session_timeout": SESSION_MS, "rebalance_timeout": SESSION_MS, "protocol_type": "consumer"}
        protocols = [{"name": "range", "metadata": b""}]
        joined = wire.ask("join_group", 3, group_id="g", member_id="", protocols=protocols, **options)
        member = {"group_id": "g", "generation_id": joined["generation_id"], "member_id": joined["member_id"]}
        assignments = [{"member_id": joined["member_id"], "assignment": b"all"}]
        assert wire.ask("sync_group", 3, assignments=assignments, **member)["error_code"] == "NONE"
        server.send(signal.SIGSTOP)
        time.sleep(STALL_S)
        server.send(signal.SIGCONT)
        for _ in range(3):  # an overdue alarm may fire after the first request; it has fired after three
            wire.ask("list_groups", 4, states_filter=[])
        assert wire.ask("heartbeat", 3, **member)["error_code"] == "NONE"

        def state() -> str:
            [group] = wire.ask("describe_groups", 5, groups=["g"], include_authorized_operations=False)["groups"]
            return str(group["group_state"])

        wait_until(state, lambda group_state: group_state == "Empty", "the end of the session")
