"""ThreadPool runs as many calls at once as it has threads, and works where no thread can be started."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from functools import partial

import pytest

from callboard.runtime.common.thread_pool import ThreadPool
from callboard.runtime.node.background import BackgroundThread
from callboard.runtime.node.environment import run_in_thread

DEADLINE_S = 60.0


def test_calls_run_at_once_up_to_the_number_of_threads() -> None:
    pool = ThreadPool(3, "pool")
    barrier = threading.Barrier(3)
    assert sorted(future.result(DEADLINE_S) for future in [pool.submit(barrier.wait, DEADLINE_S) for _ in "abc"]) == [
        0,
        1,
        2,
    ]
    names = {pool.submit(lambda: threading.current_thread().name).result(DEADLINE_S) for _ in range(20)}
    assert names <= {"pool_0", "pool_1", "pool_2"}
    pool.shutdown()


def test_one_thread_keeps_the_order_and_an_idle_one_is_used_again() -> None:
    pool, done = ThreadPool(1, "pool"), list[int]()
    for number in range(100):
        pool.submit(done.append, number)
    pool.shutdown()
    assert done == list(range(100))
    with pytest.raises(RuntimeError, match="'pool' is closed"):
        pool.submit(done.append, 100)


def test_errors_are_those_of_the_future() -> None:
    with ThreadPool(1, "pool") as pool:
        assert isinstance(pool.submit(partial(int, "x")).exception(DEADLINE_S), ValueError)
        assert isinstance(pool.submit(sys.exit).exception(DEADLINE_S), SystemExit)
        assert pool.submit(int, "5").result(DEADLINE_S) == 5


def test_work_that_has_not_begun_can_be_dropped() -> None:
    pool, begun, end = ThreadPool(1, "pool"), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        end.wait(DEADLINE_S)

    running = pool.submit(work)
    begun.wait(DEADLINE_S)
    waiting = pool.submit(work)
    pool.shutdown(wait=False, cancel_futures=True)
    assert waiting.cancelled() and not running.done()
    end.set()
    running.result(DEADLINE_S)


def test_threads_of_a_deleted_pool_end() -> None:
    pool = ThreadPool(1, "pool")
    thread = pool.submit(threading.current_thread).result(DEADLINE_S)
    del pool
    gc.collect()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_caller_does_the_work_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    pool, background, ids = ThreadPool(2, "pool"), BackgroundThread(), list[int]()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    ids.append(pool.submit(threading.get_ident).result(DEADLINE_S))
    background.run(threading.get_ident, ids.append)
    background.end()
    pool.shutdown()
    assert ids == [threading.get_ident()] * 2


def test_default_pool_of_a_loop() -> None:
    async def scenario() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPool(None, "pool"))
        assert await asyncio.to_thread(lambda: threading.current_thread().name) == "pool_0"

    asyncio.run(scenario())


def test_call_runs_in_a_loop_whose_pool_refuses_it() -> None:
    """As Python's own does when the main thread has ended."""
    program = """
import asyncio, threading
from callboard.runtime.node.environment import run_in_thread

async def scenario():
    threading.main_thread().join()
    print(await run_in_thread(lambda: "done"))

threading.Thread(target=lambda: asyncio.run(scenario())).start()
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (process.stdout, process.stderr) == ("done\n", "")


def test_errors_of_a_call_are_raised() -> None:
    with pytest.raises(RuntimeError, match="mine"):
        asyncio.run(run_in_thread(partial(_raise, RuntimeError("mine"))))


def _raise(error: Exception) -> None:
    raise error
