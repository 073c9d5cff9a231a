"""``BlockingMember.run``: a thread for each shard. Threads of shards that stay with the member are not interrupted."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import callboard
from callboard.runtime.embed.thread import ThreadCoordinator
from callboard.runtime.member.blocking import BlockingMember, BlockingShard
from callboard.runtime.member.errors import ShardLost

DEADLINE_S = 30.0
JOBS: Any = {"resources": {"jobs": 4}, "heartbeat_interval_ms": 50}


@pytest.fixture
def coordinator() -> Iterator[ThreadCoordinator]:
    with callboard.Coordinator.in_thread(group_min_session_timeout_ms=100) as coordinator:
        yield coordinator


def wait_until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.005)


def leave_after(event: threading.Event, member: BlockingMember) -> None:
    assert event.wait(DEADLINE_S)
    member.leave()


class Worker:
    """A member in a thread of its own, whose handlers work until their shard is revoked."""

    def __init__(self, member: BlockingMember) -> None:
        self.member = member
        self.starts: Counter[int | str] = Counter()
        self.owned: set[int | str] = set()
        self.errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self.member:
                self.member.run(self.handle)
        except BaseException as error:
            self.errors.append(error)

    def handle(self, shard: BlockingShard) -> None:
        self.starts[shard.name] += 1
        self.owned.add(shard.name)
        while not shard.is_revoked:
            time.sleep(0.001)
        shard.commit((shard.next_offset or 0) + 1)
        self.owned.discard(shard.name)

    def stop(self) -> None:
        self.member.leave()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive() and self.errors == [] and self.owned == set()


def test_shards_that_stay_are_not_interrupted_and_moved_ones_end_before_the_next_owner(
    coordinator: ThreadCoordinator,
) -> None:
    ann = Worker(coordinator.member("g", **JOBS))
    wait_until(lambda: len(ann.owned) == 4)
    bob = Worker(coordinator.member("g", **JOBS))
    wait_until(lambda: len(bob.owned) == 2)
    assert ann.owned.isdisjoint(bob.owned) and len(ann.owned) == 2
    assert set(ann.starts.values()) == {1}
    assert {coordinator.offsets("g")["jobs", int(name)].offset for name in bob.owned} == {1}
    bob.stop()
    wait_until(lambda: len(ann.owned) == 4)
    assert ann.starts.total() == 6
    ann.stop()


def test_error_of_a_handler_is_raised_after_the_member_has_left(coordinator: ThreadCoordinator) -> None:
    ended: list[int | str] = []

    def handle(shard: BlockingShard) -> None:
        if shard.name == 0:
            raise LookupError("no such image")
        assert shard.revoked.wait(DEADLINE_S)
        ended.append(shard.name)

    with coordinator.member("g", **JOBS) as member, pytest.raises(LookupError, match="no such image"):
        member.run(handle)
    assert sorted(map(int, ended)) == [1, 2, 3]
    assert coordinator.describe("g").members == ()


def test_shard_lost_in_a_handler_is_no_error(coordinator: ThreadCoordinator) -> None:
    def handle(shard: BlockingShard) -> None:
        if shard.name == 0:
            raise ShardLost("gone")
        member.leave()

    with coordinator.member("g", **JOBS) as member:
        member.run(handle)


def test_leave_in_a_handler_returns_at_once_and_ends_the_run(coordinator: ThreadCoordinator) -> None:
    was_revoked: list[bool] = []

    def handle(shard: BlockingShard) -> None:
        if shard.name == 0:
            member.leave()
        was_revoked.append(shard.revoked.wait(DEADLINE_S))

    with coordinator.member("g", **JOBS) as member:
        member.run(handle)
    assert was_revoked == [True] * 4


def test_system_exit_ends_one_handler_as_it_ends_a_thread(coordinator: ThreadCoordinator) -> None:
    def handle(shard: BlockingShard) -> None:
        if shard.name != 0:
            raise SystemExit
        wait_until(lambda: len(handlers()) == 1)
        member.leave()

    def handlers() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("callboard jobs")]

    with coordinator.member("g", **JOBS) as member:
        member.run(handle)
    coordinator.describe("g")  # its event loop still runs


def test_handler_that_does_not_return_is_abandoned_and_does_not_keep_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    release, begun = threading.Event(), threading.Event()

    def handle(_: BlockingShard) -> None:
        begun.set()
        release.wait(DEADLINE_S)

    with callboard.Coordinator.in_thread(group_min_session_timeout_ms=100) as coordinator:
        options: Any = {**JOBS, "resources": {"jobs": 1}, "session_timeout_ms": 500, "rebalance_timeout_ms": 500}
        with coordinator.member("g", **options) as member:
            leaving = threading.Thread(target=leave_after, args=(begun, member))
            leaving.start()
            member.run(handle)
            leaving.join(DEADLINE_S)
    assert "shard.is_revoked in a handler of member.run()" in caplog.text
    assert not release.is_set()
    release.set()


def test_coroutine_function_as_a_handler_raises_type_error(coordinator: ThreadCoordinator) -> None:
    async def handle(shard: object) -> None:
        raise AssertionError(shard)

    for handler in (handle, None, lambda shard: handle(shard)):
        with coordinator.member("g", **JOBS) as member, pytest.raises(TypeError, match="function that blocks"):
            member.run(handler)  # type: ignore[arg-type]


def test_blocking_shard_is_lost_at_the_first_look_after_a_pause(coordinator: ThreadCoordinator) -> None:
    """No callback of the event loop has run since the clock moved."""
    ahead_s = 0.0
    looks: list[Any] = []

    def clock_s() -> float:
        return time.monotonic() + ahead_s

    loop, connector = coordinator.run(running_loop()), coordinator.asynchronous.connector
    options: Any = {"resources": {"jobs": 1}, "session_timeout_ms": 60_000}
    with BlockingMember(connector, "g", loop=loop, clock_s=clock_s, **options) as member:
        assignment = member.next_assignment(DEADLINE_S)
        shard = assignment.shards[0]
        looks.append((shard.is_revoked, shard.is_lost, assignment.is_over, shard.lease_left_s > 40))
        ahead_s = 50.0
        looks.append((shard.is_revoked, shard.is_lost, assignment.is_over, shard.lease_left_s > 0))
    assert looks == [(False, False, False, True), (True, True, True, False)]


async def running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


@pytest.mark.parametrize("is_remote", [False, True], ids=["in process", "over TCP"])
def test_end_of_the_loop_waits_for_handlers_as_leave_does(is_remote: bool) -> None:
    """The next owner must not begin while a handler still runs, and the handler may commit what it has done."""
    results: list[object] = []
    with callboard.Coordinator.in_thread(listen="127.0.0.1:0") as other, ThreadPoolExecutor(1) as pool:
        connection = callboard.connect_in_thread(other.bootstrap) if is_remote else callboard.Coordinator.in_thread()
        begun = threading.Event()

        def handle(shard: BlockingShard) -> None:
            begun.set()
            assert shard.revoked.wait(DEADLINE_S)
            time.sleep(0.1)  # as a handler that finishes its item
            results.append(shard.commit(7).durability)

        with connection:
            with pytest.raises(RuntimeError, match="call it after that"):
                use_assignment_and_end(connection)
            member = connection.member("g", resources={"jobs": 1})
            ended = pool.submit(run_member, member, handle)
            assert begun.wait(DEADLINE_S)
        assert results == ["" if is_remote else "synced"]
        ended.result(DEADLINE_S)


def use_assignment_and_end(connection: Any) -> None:
    """End the loop from work on a shard, which that would wait for."""
    end = connection.stop if isinstance(connection, ThreadCoordinator) else connection.close
    with connection.member("h", resources={"jobs": 1}) as member, member.next_assignment(DEADLINE_S):
        end()


def run_member(member: BlockingMember, handler: Callable[[BlockingShard], object]) -> None:
    with member:
        member.run(handler)
