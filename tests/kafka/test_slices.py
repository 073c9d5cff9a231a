"""Long requests run in slices: other connections are served in between, and few of them run at a time."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import MemoryClient, NodeHarness, async_test, frame, running_node
from peers.wire import decode

from callboard.actors.errors import ErrorCode
from callboard.actors.steps import SLICE_NS, Steps, run_steps
from callboard.runtime.kafka.call import Call
from callboard.runtime.kafka.codec.codes import NO_THROTTLE, kafka_error
from callboard.runtime.kafka.connections.time_budget import BUDGET_NS, TimeBudget
from callboard.runtime.kafka.slices import FINISH_NS, Slices

STEP_NS = SLICE_NS // 4
JOBS_MAX = 2
STEPS_A_SLICE = 4

Log = list[tuple[str, Any]]


class Turns:
    """A loop of which a test runs one turn after the other."""

    def __init__(self) -> None:
        self._callbacks: deque[Callable[[], None]] = deque()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def run(self) -> bool:
        """Run the callbacks of one turn; False if there are none."""
        count = len(self._callbacks)
        for _ in range(count):
            self._callbacks.popleft()()
        return count > 0

    def run_all(self) -> int:
        """Run until there are no callbacks; return the number of turns."""
        return sum(1 for _ in iter(self.run, False))


class LoggedJob:
    """A job of ``size`` steps that logs its steps and its end."""

    def __init__(self, name: str, size: int, log: Log, error: Exception | None = None) -> None:
        self.steps = self._steps()
        self.is_wanted = True
        self.is_answer = False
        self._name, self._size, self._log, self._error = name, size, log, error

    def _steps(self) -> Steps[str]:
        for number in range(self._size):
            self._log.append((self._name, number))
            yield
        if self._error is not None:
            raise self._error
        return "done"

    def finish(self, result: Any) -> None:
        self._log.append((self._name, result))

    def fail(self, error: Exception) -> None:
        self._log.append((self._name, error))

    def drop(self) -> None:
        self._log.append((self._name, "dropped"))


@pytest.fixture
def turns() -> Turns:
    return Turns()


@pytest.fixture
def slices(turns: Turns) -> Slices:
    """Each reading of the clock is a step later."""
    return slices_with(turns, lambda: 0)


def slices_with(turns: Turns, budget_clock_ns: Callable[[], int]) -> Slices:
    budget = TimeBudget(turns.call_soon, budget_clock_ns)
    return Slices(turns.call_soon, itertools.count(step=STEP_NS).__next__, JOBS_MAX, budget)


@pytest.mark.parametrize("is_in_turn", [False, True])
def test_job_waits_for_the_next_turn_if_the_time_of_this_one_is_spent(turns: Turns, is_in_turn: bool) -> None:
    log: Log = []
    slices = slices_with(turns, itertools.count(step=BUDGET_NS).__next__)
    for name in "ab":
        (slices.run_in_turn if is_in_turn else slices.run)(LoggedJob(name, 1, log))
    assert {name for name, _ in log} == {"a"}
    turns.run_all()
    assert {name for name, _ in log} == {"a", "b"}


def test_short_job_ends_in_its_first_slice(slices: Slices) -> None:
    log: Log = []
    slices.run(LoggedJob("a", 2, log))
    assert log == [("a", 0), ("a", 1), ("a", "done")]
    assert len(slices) == 0


def test_long_job_of_an_actors_turn_goes_on_in_the_next_turn_of_the_loop(slices: Slices, turns: Turns) -> None:
    log: Log = []
    slices.run_in_turn(LoggedJob("a", 2, log))
    assert log == [("a", 0)]
    turns.run()
    assert log == [("a", 0), ("a", 1), ("a", "done")]


def test_long_job_takes_one_slice_a_turn(slices: Slices, turns: Turns) -> None:
    log: Log = []
    slices.run(LoggedJob("a", 10 * STEPS_A_SLICE, log))
    sizes = [len(log)]
    while turns.run():
        sizes.append(len(log) - sum(sizes))
    assert max(sizes) <= STEPS_A_SLICE + 1
    assert len(sizes) >= 10
    assert log[-1] == ("a", "done")


def test_jobs_take_turns(slices: Slices, turns: Turns) -> None:
    log: Log = []
    for name in "ab":
        slices.run(LoggedJob(name, 4 * STEPS_A_SLICE, log))
    turns.run_all()
    changes = [name for name, _ in itertools.groupby(log, key=lambda entry: entry[0])]
    assert changes[:6] == list("ababab")


def test_short_job_behind_long_ones_ends_at_once(slices: Slices) -> None:
    log: Log = []
    for number in range(JOBS_MAX + 1):
        slices.run(LoggedJob(f"long {number}", 2 * STEPS_A_SLICE, log))
    slices.run(LoggedJob("short", 0, log))
    assert log[-1] == ("short", "done")


def test_job_behind_long_one_goes_on_in_a_later_turn(slices: Slices, turns: Turns) -> None:
    log: Log = []
    slices.run(LoggedJob("long", 2 * STEPS_A_SLICE, log))
    slices.run(LoggedJob("other", 2, log))
    assert [what for name, what in log if name == "other"] == [0]
    turns.run_all()
    assert ("other", "done") in log


def test_no_more_than_jobs_max_take_turns_after_their_first_slice(slices: Slices, turns: Turns) -> None:
    log: Log = []
    for name in "abcd":
        slices.run(LoggedJob(name, 5 * STEPS_A_SLICE, log))
    while turns.run():
        steps = Counter(name for name, what in log)
        ended = {name for name, what in log if what == "done"}
        assert len({name for name in steps if steps[name] > STEPS_A_SLICE + 1} - ended) <= JOBS_MAX
    assert [name for name, what in log if what == "done"] == list("abcd")


def test_new_job_gets_a_slice_before_jobs_that_wait(slices: Slices, turns: Turns) -> None:
    log: Log = []
    for number in range(10):
        slices.run(LoggedJob(f"long {number}", 50 * STEPS_A_SLICE, log))
    for _ in range(30):
        turns.run()
    slices.run(LoggedJob("short", 1, log))
    for _ in range(3):
        turns.run()
    assert ("short", "done") in log


def test_jobs_that_have_begun_go_on_while_new_ones_come(slices: Slices, turns: Turns) -> None:
    log: Log = []
    slices.run(LoggedJob("a", 10 * STEPS_A_SLICE, log))
    for number in range(60):
        slices.run(LoggedJob(f"new {number}", 10 * STEPS_A_SLICE, log))
        turns.run()
    assert ("a", "done") in log


def test_job_that_is_not_wanted_any_more_is_dropped(slices: Slices, turns: Turns) -> None:
    log: Log = []
    job = LoggedJob("a", 10 * STEPS_A_SLICE, log)
    slices.run(job)
    steps = len(log)
    job.is_wanted = False
    turns.run_all()
    assert log[steps:] == [("a", "dropped")]


def test_error_ends_its_job_only(slices: Slices, turns: Turns) -> None:
    log: Log = []
    error = ValueError("bad")
    slices.run(LoggedJob("a", STEPS_A_SLICE, log, error))
    slices.run(LoggedJob("b", STEPS_A_SLICE, log))
    turns.run_all()
    assert ("a", error) in log
    assert log[-1] == ("b", "done")


def test_bug_at_the_end_of_a_job_does_not_stop_the_others(
    slices: Slices, turns: Turns, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(LoggedJob):
        def finish(self, result: Any) -> None:
            raise RuntimeError("broken")

    log: Log = []
    slices.run(Broken("a", STEPS_A_SLICE, log))
    slices.run(LoggedJob("b", 1, log))
    turns.run_all()
    assert log[-1] == ("b", "done")
    assert "the end of a job was not handled" in caplog.text


def test_stop_finishes_jobs_that_have_begun_and_drops_the_others(slices: Slices) -> None:
    log: Log = []
    for name in "ab":
        slices.run(LoggedJob(name, 5 * STEPS_A_SLICE, log))
    slices.finish_active()
    assert [entry for entry in log if not isinstance(entry[1], int)] == [("a", "done"), ("b", "dropped")]
    assert len(slices) == 0


def test_stop_finishes_jobs_that_answer_although_they_have_not_begun(slices: Slices) -> None:
    """Otherwise a change would be durable, and its client would not know."""
    log: Log = []
    for name in "abc":
        job = LoggedJob(name, 1, log)
        job.is_answer = name != "b"
        job.is_wanted = name != "c"
        slices.run_later(job)
    slices.finish_active()
    assert [entry for entry in log if not isinstance(entry[1], int)] == [
        ("a", "done"),
        ("b", "dropped"),
        ("c", "dropped"),
    ]


def test_stop_gives_up_answers_that_take_too_long(slices: Slices) -> None:
    """The clock is read before each of them."""
    log: Log = []
    in_time = (FINISH_NS - 1) // STEP_NS
    for number in range(in_time + 2):
        job = LoggedJob(str(number), 1, log)
        job.is_answer = True
        slices.run_later(job)
    slices.finish_active()
    assert [what for _, what in log if not isinstance(what, int)] == ["done"] * in_time + ["dropped"] * 2


def test_crash_drops_all_jobs(slices: Slices, turns: Turns) -> None:
    log: Log = []
    for name in "ab":
        slices.run(LoggedJob(name, 5 * STEPS_A_SLICE, log))
    slices.drop_all()
    turns.run_all()
    assert sorted(name for name, what in log if what == "dropped") == ["a", "b"]


def test_run_steps_returns_the_result() -> None:
    log: Log = []
    assert run_steps(LoggedJob("a", 3, log).steps) == "done"
    assert len(log) == 3


# Requests -------------------------------------------------------------------------------------------------------------


class SteppedHandler:
    """Handles heartbeats in steps until ``is_done`` or ``error``; the response is made in steps too."""

    def __init__(self, error: Exception | None = None) -> None:
        self.is_done = False
        self.steps = 0
        self._error = error

    def __call__(self, call: Call) -> Steps[None]:
        while not self.is_done:
            self.steps += 1
            yield
        if self._error is not None:
            raise self._error
        call.encode_and_respond(lambda: self._encode(call))

    def _encode(self, call: Call) -> Steps[bytes]:
        yield
        return call.schema.write(
            call.make("HeartbeatResponse", throttle_time=NO_THROTTLE, error_code=kafka_error(ErrorCode.NONE))
        )


HEARTBEAT = frame("heartbeat", 4, group_id="g", generation_id=1, member_id="m", group_instance_id=None)
API_VERSIONS = frame("api_versions", 0)


@asynccontextmanager
async def served_in_steps(
    folder: Path, handler: SteppedHandler, *, reads_only: bool = False
) -> AsyncIterator[tuple[NodeHarness, MemoryClient]]:
    """A node whose heartbeats ``handler`` handles, and a client that has sent one."""
    async with running_node(folder) as harness:
        routes = harness.node.services.routes
        route = routes.find(12, 4)
        assert route is not None
        routes.loaded[12 << 16 | 4] = route._replace(handle=handler, reads_only=reads_only)
        client = MemoryClient(harness.node)
        client.feed(HEARTBEAT)
        yield harness, client


async def some_turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


@async_test
async def test_request_in_steps_is_answered_while_others_are_served(tmp_path: Path) -> None:
    handler = SteppedHandler()
    async with served_in_steps(tmp_path, handler) as (harness, client):
        steps = handler.steps
        other = await harness.connect()
        await other.ask("api_versions", 0)
        assert handler.steps > steps
        assert client.answers() == []
        handler.is_done = True
        [answer] = await client.answered(1)
        assert decode("heartbeat", 4, answer)["error_code"] == "NONE"


@async_test
async def test_requests_behind_one_in_steps_wait_for_its_response(tmp_path: Path) -> None:
    handler = SteppedHandler()
    async with served_in_steps(tmp_path, handler) as (_, client):
        client.feed(API_VERSIONS + HEARTBEAT)
        await some_turns()
        assert client.answers() == []
        handler.is_done = True
        heartbeat, versions, _ = await client.answered(3)
        assert decode("heartbeat", 4, heartbeat)["error_code"] == "NONE"
        assert decode("api_versions", 0, versions)["error_code"] == "NONE"


@async_test
async def test_error_in_steps_closes_the_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    handler = SteppedHandler(RuntimeError("broken"))
    async with served_in_steps(tmp_path, handler) as (harness, client):
        client.feed(API_VERSIONS)
        handler.is_done = True
        while not client.is_closed:
            await asyncio.sleep(0)
        assert client.answers() == []
        assert "internal error in heartbeat version 4" in caplog.text
        client.close()
        assert client.connection not in harness.node.connections


@pytest.mark.parametrize("reads_only", [True, False])
@async_test
async def test_request_of_client_that_is_gone_is_given_up_if_it_only_reads(tmp_path: Path, reads_only: bool) -> None:
    handler = SteppedHandler()
    async with served_in_steps(tmp_path, handler, reads_only=reads_only) as (harness, client):
        client.close()
        await some_turns()
        steps = handler.steps
        await some_turns()
        assert (handler.steps == steps) is reads_only
        handler.is_done = True
        await some_turns()
        assert client.connection not in harness.node.connections
        assert len(harness.node.services.slices) == 0


@async_test
async def test_stop_answers_a_request_that_has_begun(tmp_path: Path) -> None:
    handler = SteppedHandler()
    async with served_in_steps(tmp_path, handler) as (harness, client):
        handler.is_done = True
        await harness.node.stop()
        assert len(client.answers()) == 1


@async_test
async def test_error_in_steps_closes_a_connection_that_drains(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    handler = SteppedHandler(RuntimeError("broken"))
    async with served_in_steps(tmp_path, handler) as (_, client):
        client.connection.stop_reading()
        handler.is_done = True
        while not client.is_closed:
            await asyncio.sleep(0)
        assert "the end of a job was not handled" not in caplog.text
