"""A process that stood still expires nobody for it: what passed while nobody could be heard does not count."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest
from peers.server import ServerProcess
from peers.waiting import wait_until
from peers.wire import Wire

from callboard.actors.base import Actor
from callboard.actors.timer.messages import Expired, Schedule
from callboard.runtime.engine.clock import CLOCK_CHECK_INTERVAL_MS, STALL_MS, SystemClock
from callboard.runtime.engine.system import System

SESSION_MS = 2000
STANDS_STILL_S = 3.5  # longer than the session and than what counts as a stall


class Ticks:
    """The machine's time, in the test's hand."""

    def __init__(self) -> None:
        self.now_ms = 5000
        self.clock = SystemClock(lambda: self.now_ms * 1_000_000)


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


def test_monotonic_time_follows_machine_with_regular_reads(ticks: Ticks) -> None:
    clock = ticks.clock
    clock.add_watcher()
    began_ms = clock.monotonic_ms()
    for _ in range(100):
        ticks.now_ms += STALL_MS
        clock.monotonic_ms()
    assert clock.monotonic_ms() == began_ms + 100 * STALL_MS


def test_stall_counts_as_one_check_interval(ticks: Ticks) -> None:
    clock = ticks.clock
    clock.add_watcher()
    began_ms = clock.monotonic_ms()
    ticks.now_ms += 3_600_000
    assert clock.monotonic_ms() == began_ms + CLOCK_CHECK_INTERVAL_MS
    ticks.now_ms += 10
    assert clock.monotonic_ms() == began_ms + CLOCK_CHECK_INTERVAL_MS + 10, "and then it goes on"


def test_gap_without_watchers_is_not_a_stall(ticks: Ticks) -> None:
    """While no alarm is set nobody looks; then an hour is an hour."""
    clock = ticks.clock
    began_ms = clock.monotonic_ms()
    ticks.now_ms += 3_600_000
    clock.add_watcher()
    assert clock.monotonic_ms() == began_ms + 3_600_000
    clock.remove_watcher()
    ticks.now_ms += 3_600_000
    assert clock.monotonic_ms() == began_ms + 7_200_000


class Waiting(Actor):
    handlers = {Expired: "expired"}

    def __init__(self, rang: asyncio.Event) -> None:
        super().__init__()
        self._rang = rang

    def expired(self, _message: Expired) -> None:
        self._rang.set()


def test_long_wait_with_set_alarm_is_not_a_stall() -> None:
    """An alarm that is set looks at the clock in pulses, so that a wait longer than a stall ends in time."""

    async def main() -> None:
        async with System.on_loop() as system:
            clock, rang = system.clock, asyncio.Event()
            timer = system.start_timer()
            due_ms = clock.monotonic_ms() + STALL_MS + CLOCK_CHECK_INTERVAL_MS
            timer.tell(Schedule(system.spawn(Waiting, rang), "x", due_ms))
            began_s = time.monotonic()
            await asyncio.wait_for(rang.wait(), 30)
            assert clock.monotonic_ms() >= due_ms
            waited_ms = (time.monotonic() - began_s) * 1000
            assert waited_ms >= STALL_MS, "it was not early"

    asyncio.run(main())


def test_stall_of_the_process_expires_no_session(tmp_path: Path) -> None:
    """A member beats after its server was stopped for longer than its session: it is still a member.

    Then it is silent for real, and its session ends.
    """
    with ServerProcess(tmp_path) as server, Wire(server.host, server.port) as wire:
        options = {"session_timeout": SESSION_MS, "rebalance_timeout": SESSION_MS, "protocol_type": "consumer"}
        protocols = [{"name": "range", "metadata": b""}]
        joined = wire.ask("join_group", 3, group_id="g", member_id="", protocols=protocols, **options)
        member = {"group_id": "g", "generation_id": joined["generation_id"], "member_id": joined["member_id"]}
        share = [{"member_id": joined["member_id"], "assignment": b"all"}]
        assert wire.ask("sync_group", 3, assignments=share, **member)["error_code"] == "NONE"
        server.send(signal.SIGSTOP)
        time.sleep(STANDS_STILL_S)
        server.send(signal.SIGCONT)
        for _ in range(3):  # so that its overdue alarm has rung, whatever comes first after a stall
            wire.ask("list_groups", 4, states_filter=[])
        assert wire.ask("heartbeat", 3, **member)["error_code"] == "NONE"

        def state() -> str:
            [group] = wire.ask("describe_groups", 5, groups=["g"], include_authorized_operations=False)["groups"]
            return str(group["group_state"])

        wait_until(state, lambda found: found == "Empty", "the end of the session")
