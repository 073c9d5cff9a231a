"""The log's calls run one after the other and in their order, on the event loop or in the log's thread."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from pathlib import Path

import pytest
from harness import async_test
from log_helpers import LazyDisk, entry
from structlog.testing import capture_logs

from callboard.actors.ports import Appended
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.kernel_sync import KernelSync
from callboard.runtime.disk.loop_threads import LoopThreads, new_threads
from callboard.runtime.disk.threads import Call, OwnThreads
from callboard.runtime.log.offsets_log import OffsetsLog

LOOP, THREAD = "MainThread", "callboard-log"
TIMEOUT_S = 30.0


def short() -> bool:
    return True


class HeldSync(KernelSync):
    """A sync ends when a test says so."""

    def __init__(self) -> None:
        self._eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._error_number = 0
        self.refusal: OSError | None = None
        self.started: list[int] = []
        self.is_released = False

    def start(self, fd: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.started.append(fd)

    def finish(self, error_number: int = 0) -> None:
        self._error_number = error_number
        os.eventfd_write(self._eventfd, 1)

    def take_error_number(self) -> int | None:
        try:
            os.eventfd_read(self._eventfd)
        except BlockingIOError:
            return None
        return self._error_number

    def release(self) -> None:
        self.is_released = True
        os.close(self._eventfd)


class RecordingWork:
    """Records its calls and the threads in which they run."""

    def __init__(self) -> None:
        self.due = inf
        self.is_closed = False
        self.turns: list[tuple[str, str]] = []
        self._running = threading.Lock()

    def turn(self, call: Call | None) -> None:
        assert self._running.acquire(blocking=False), "two calls run at the same time"
        if call is None:
            self.due = inf
            self.note("due")
        else:
            call()
        self._running.release()

    def note(self, name: str) -> None:
        self.turns.append((name, threading.current_thread().name))

    def close(self) -> None:
        self.is_closed = True


class Harness:
    def __init__(self, sync: KernelSync) -> None:
        self.work = RecordingWork()
        self.threads = LoopThreads(asyncio.get_running_loop(), sync)
        self.errors: list[Exception | None] = []

    async def start(self) -> None:
        self.threads.start(self.work, time.monotonic)
        await asyncio.sleep(0)  # now it uses the loop

    def put(self, name: str, is_short: Callable[[], bool] = short) -> None:
        self.threads.put(partial(self.work.note, name), is_short)

    def put_long(self, name: str) -> None:
        self.threads.put(partial(self.work.note, name))

    def put_synced(self, name: str, fd: int, is_short: Callable[[], bool] = short) -> None:
        def write() -> None:
            self.work.note(name)
            self.threads.sync(Disk(), fd, partial(self._synced, name))

        self.threads.put(write, is_short)

    def _synced(self, name: str, error: Exception | None) -> None:
        self.work.note(f"{name} synced")
        self.errors.append(error)

    async def turns(self, count: int) -> list[tuple[str, str]]:
        """All turns, once there are so many."""
        async with asyncio.timeout(TIMEOUT_S):
            while len(self.work.turns) < count:
                await asyncio.sleep(0.001)
        return self.work.turns

    def close(self) -> None:
        self.threads.put(self.work.close)
        self.threads.close()


async def started_harness() -> tuple[Harness, HeldSync]:
    sync = HeldSync()
    harness = Harness(sync)
    await harness.start()
    return harness, sync


@contextmanager
def opened_file(path: Path) -> Iterator[int]:
    fd = os.open(path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


@async_test
async def test_short_calls_run_on_the_loop_and_others_in_the_thread() -> None:
    harness, _ = await started_harness()
    harness.put("a")
    assert harness.work.turns == [("a", LOOP)]  # at once
    harness.put_long("b")
    harness.put("c")
    harness.put("d")
    assert await harness.turns(4) == [("a", LOOP), ("b", THREAD), ("c", LOOP), ("d", LOOP)]
    await asyncio.to_thread(harness.put, "e")
    assert (await harness.turns(5))[4] == ("e", LOOP)
    harness.close()


@async_test
async def test_no_call_runs_during_a_sync(tmp_path: Path) -> None:
    harness, sync = await started_harness()
    with opened_file(tmp_path) as fd:
        harness.put_synced("a", fd)
        harness.put_synced("b", fd)
        harness.put_long("c")
        harness.work.due = 0.0
        await asyncio.sleep(0.05)
        assert harness.work.turns == [("a", LOOP)]
        sync.finish()
        assert await harness.turns(3) == [("a", LOOP), ("a synced", LOOP), ("b", LOOP)]
        sync.finish()
        assert await harness.turns(6) == [
            *(("a", LOOP), ("a synced", LOOP), ("b", LOOP), ("b synced", LOOP)),
            *(("c", THREAD), ("due", THREAD)),
        ]
        assert (sync.started, harness.errors) == ([fd, fd], [None, None])
    harness.close()


@async_test
async def test_error_of_a_sync_names_the_file(tmp_path: Path) -> None:
    harness, sync = await started_harness()
    with opened_file(tmp_path) as fd:
        harness.put_synced("a", fd)
        sync.finish(errno.EIO)
        await harness.turns(2)
    (error,) = harness.errors
    assert isinstance(error, OSError) and error.errno == errno.EIO
    assert str(tmp_path / "file") in str(error)
    harness.close()


@async_test
async def test_thread_syncs_what_the_kernel_refuses(tmp_path: Path) -> None:
    harness, sync = await started_harness()
    sync.refusal = OSError(errno.EINVAL, "io_submit: Invalid argument")
    with opened_file(tmp_path) as fd, capture_logs() as logs:
        harness.put_synced("a", fd)
        harness.put_synced("b", fd)
        turns = await harness.turns(4)
    assert turns == [("a", LOOP), ("a synced", LOOP), ("b", THREAD), ("b synced", THREAD)]
    assert harness.errors == [None, None]
    assert [line["reason"] for line in logs] == ["[Errno 22] io_submit: Invalid argument"]
    harness.close()


@async_test
async def test_work_that_becomes_due_on_the_loop_wakes_the_thread() -> None:
    harness, _ = await started_harness()
    await asyncio.sleep(0.02)  # the thread sleeps without end

    def plan() -> None:
        harness.work.due = time.monotonic() + 0.01

    harness.threads.put(plan, short)
    assert await harness.turns(1) == [("due", THREAD)]
    harness.close()


@async_test
async def test_wait_on_the_loop_ends_the_sync_first(tmp_path: Path) -> None:
    harness, sync = await started_harness()
    event = threading.Event()
    with opened_file(tmp_path) as fd:
        harness.put_synced("a", fd)
        harness.put("b")
        harness.threads.put(event.set)
        threading.Timer(0.02, sync.finish).start()
        harness.threads.wait(event)
        assert harness.work.turns == [("a", LOOP), ("a synced", LOOP), ("b", THREAD)]
    harness.put("c")
    assert (await harness.turns(4))[3] == ("c", LOOP)
    harness.close()


@async_test
async def test_close_finishes_what_waits_and_frees_the_loop(tmp_path: Path) -> None:
    for close_elsewhere in (False, True):
        harness, sync = await started_harness()
        with opened_file(tmp_path) as fd:
            harness.put_synced("a", fd)
            harness.put("b")
            threading.Timer(0.02, sync.finish).start()
            if close_elsewhere:
                await asyncio.to_thread(harness.close)
                await asyncio.sleep(0.01)
            else:
                harness.close()
        assert [name for name, _ in harness.work.turns] == ["a", "a synced", "b"]
        assert sync.is_released
        assert not asyncio.get_running_loop().remove_reader(sync.fileno())


@async_test
async def test_halt_drops_the_sync_and_what_waits(tmp_path: Path) -> None:
    harness, sync = await started_harness()
    with opened_file(tmp_path) as fd:
        harness.put_synced("a", fd)
        harness.put("b")
        threading.Timer(0.02, sync.finish).start()
        harness.threads.halt()
    await asyncio.sleep(0.01)
    assert harness.work.turns == [("a", LOOP)]
    assert harness.errors == [] and sync.is_released


def test_thread_runs_the_calls_of_a_closed_loop() -> None:
    async def open_and_leave() -> Harness:
        harness, _ = await started_harness()
        return harness

    harness = asyncio.run(open_and_leave())
    event = threading.Event()

    def put_both() -> None:
        harness.put("a")
        harness.threads.put(event.set)

    putter = threading.Thread(target=put_both)
    putter.start()
    assert event.wait(TIMEOUT_S)
    assert harness.work.turns == [("a", THREAD)]
    harness.close()
    putter.join()


@pytest.mark.parametrize("seed", range(5))
def test_calls_of_several_threads_run_in_their_order(seed: int, tmp_path: Path) -> None:
    """Each thread's calls keep their order, and no two calls overlap."""

    async def scenario() -> None:
        harness, draw, order = Harness(_kernel_sync()), random.Random(seed), threading.Lock()
        await harness.start()
        expected: list[str] = []

        def put_some(source: str) -> None:
            for number in range(40):
                name, kind = f"{source}{number}", draw.choice(("short", "long", "synced", "synced and long"))
                with order:
                    expected.append(name)
                    if kind.startswith("synced"):
                        harness.put_synced(name, fd, partial(kind.__eq__, "synced"))
                        expected.append(f"{name} synced")
                    else:
                        harness.put(name, partial(kind.__eq__, "short"))
                if draw.random() < 0.3:
                    time.sleep(draw.random() / 1000)

        with opened_file(tmp_path) as fd:
            others = [asyncio.to_thread(put_some, source) for source in "ab"]
            tasks = [asyncio.ensure_future(other) for other in others]
            for number in range(60):
                harness.work.due = 0.0
                with order:
                    expected.append(f"loop{number}")
                    harness.put(f"loop{number}", lambda: draw.random() < 0.7)
                await asyncio.sleep(draw.random() / 1000)
            await asyncio.gather(*tasks)
            await asyncio.to_thread(harness.close)
        assert [name for name, _ in harness.work.turns if name != "due"] == expected

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


def _kernel_sync() -> KernelSync:
    try:
        return KernelSync.take()
    except OSError as error:
        pytest.skip(f"this system has no asynchronous I/O: {error}")


@async_test
async def test_disk_and_system_decide_which_threads_a_log_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(new_threads(loop, LazyDisk()), OwnThreads)
    expected = type(_kernel_sync())
    threads = new_threads(loop, Disk())
    assert isinstance(threads, LoopThreads) and isinstance(threads._kernel_sync, expected)
    threads.close()

    def refuse() -> KernelSync:
        raise OSError(errno.EAGAIN, "io_setup: Resource temporarily unavailable")

    monkeypatch.setattr(KernelSync, "take", refuse)
    with capture_logs() as logs:
        assert isinstance(new_threads(loop, Disk()), OwnThreads)
    assert "io_setup" in logs[0]["reason"]


@async_test
async def test_log_writes_rounds_on_the_loop(tmp_path: Path) -> None:
    """Only those that need more room in the journal, or come while other work is due, go to the log's thread."""
    threads = LoopThreads(asyncio.get_running_loop(), _kernel_sync())
    log = OffsetsLog(tmp_path / "data", 2, threads=threads, checkpoint_bytes=20_000)
    log.open()
    await asyncio.sleep(0)
    loop, places, errors = asyncio.get_running_loop(), list[str](), set[str]()

    def done(acknowledged: asyncio.Event, outcomes: Sequence[Appended]) -> None:
        places.append(threading.current_thread().name)
        errors.update(outcome.error.name for outcome in outcomes)
        loop.call_soon_threadsafe(acknowledged.set)

    for number in range(300):
        acknowledged = asyncio.Event()
        log.append([entry(number % 2, number)], 1, partial(done, acknowledged))
        await acknowledged.wait()
    assert places.count(LOOP) > places.count(THREAD)
    assert errors == {"NONE"}
    log.check()
    assert [sum(1 for _ in log.read(partition)) for partition in (0, 1)] == [150, 150]
    log.close()
    reopened = OffsetsLog(tmp_path / "data", 2)
    reopened.open()
    assert [reopened.end_offset(partition) for partition in (0, 1)] == [150, 150]
    reopened.close()
