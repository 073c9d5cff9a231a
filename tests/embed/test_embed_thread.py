"""A coordinator on its own thread: the methods of Coordinator for any other thread."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from callboard import Coordinator, CoordinatorError, ErrorCode, StartError, ThreadCoordinator

DEADLINE_S = 60.0
ONLY_ON_LOOP = {"DEFAULTS", "in_thread", "node", "interceptor", "connector"}
"""For the coordinator's own thread; reached by ``asynchronous``."""


def test_thread_coordinator_has_each_public_method_of_coordinator() -> None:
    """With the same parameters and result types."""
    blocking = {name: value for name, value in vars(ThreadCoordinator).items() if not name.startswith("_")}
    on_loop = {name: value for base in Coordinator.__mro__[:-1] for name, value in vars(base).items() if name[0] != "_"}
    assert set(on_loop) - ONLY_ON_LOOP == set(blocking) - {"run", "asynchronous"}
    for name in set(on_loop) - ONLY_ON_LOOP:
        if inspect.isfunction(on_loop[name]):
            blocking_signature, signature = inspect.signature(blocking[name]), inspect.signature(on_loop[name])
            assert blocking_signature.parameters == signature.parameters, name
            assert name == "member" or blocking_signature.return_annotation == signature.return_annotation, name


def test_thread_coordinator_methods_return_the_coordinators_results(tmp_path: Path) -> None:
    with Coordinator.in_thread(tmp_path, "127.0.0.1:0", topics={"jobs": 2}, group_max_size=9) as coordinator:
        bootstrap = coordinator.bootstrap
        assert coordinator.reset("g", {"jobs": 7}) == {("jobs", 0): 7, ("jobs", 1): 7}
        assert coordinator.offsets("g")["jobs", 1].offset == 7
        assert [group.group_id for group in coordinator.groups(states=["Empty"], prefix="g").groups] == ["g"]
        assert coordinator.describe("g").state == "Empty"
        assert coordinator.groups_of_topic("jobs") == ("g",)
        coordinator.restart("killed")
        coordinator.loaded()
        assert coordinator.bootstrap == bootstrap
        coordinator.delete_offsets("g", [("jobs", 0)])
        assert set(coordinator.offsets("g")) == {("jobs", 1)}
        assert coordinator.remove_members("g") == ()
        coordinator.delete("g")
        coordinator.create_topic("more", 1)
        assert len(coordinator.grow_topic("more", 3).partitions) == 3
        coordinator.delete_topic("jobs")
        assert [topic.name for topic in coordinator.topics()] == ["more"]
        coordinator.set(group_max_size=5)
        assert coordinator.settings.group_max_size == 5
        with pytest.raises(CoordinatorError) as caught:
            coordinator.describe("g")
        assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_thread_coordinator_accepts_calls_from_many_threads() -> None:
    with Coordinator.in_thread(topics={"jobs": 1}) as coordinator, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: coordinator.reset(f"g{number}", {"jobs": number}), range(100)))
        offsets = pool.map(lambda number: coordinator.offsets(f"g{number}")["jobs", 0].offset, range(100))
        assert list(offsets) == list(range(100))


def test_run_executes_a_coroutine_on_the_coordinators_loop() -> None:
    with Coordinator.in_thread(topics={"jobs": 1}) as coordinator:

        async def reset_offsets() -> Any:
            with pytest.raises(RuntimeError, match="coordinator's own thread"):
                coordinator.offsets("g")
            with pytest.raises(RuntimeError, match="coordinator's own thread"):
                coordinator.stop()
            return await coordinator.asynchronous.reset("g", {"jobs": 3}), threading.current_thread().name

        assert coordinator.run(reset_offsets()) == ({("jobs", 0): 3}, "callboard-coordinator")


def test_failed_start_raises_in_the_calling_thread(tmp_path: Path) -> None:
    with Coordinator.in_thread(tmp_path):
        second = Coordinator.in_thread(tmp_path)
        with pytest.raises(StartError, match="in use by process"):
            second.start()
        second.stop()
        with pytest.raises(RuntimeError, match="is not running"):
            second.offsets("g")
    with Coordinator.in_thread(tmp_path):
        pass


@pytest.mark.parametrize("is_interrupted", [True, False], ids=["interrupt", "stop in another thread"])
def test_start_that_is_interrupted_releases_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_interrupted: bool
) -> None:
    """A start may take long, for example while the store of a cluster cannot be reached."""
    starting = threading.Event()

    class WaitsAfterStart(Coordinator):
        async def start(self) -> None:
            await super().start()
            try:
                starting.set()
                await asyncio.Event().wait()
            finally:
                await self.stop()

    coordinator = ThreadCoordinator(WaitsAfterStart(tmp_path))
    if is_interrupted:

        def interrupt() -> None:
            assert starting.wait(DEADLINE_S)
            raise KeyboardInterrupt

        monkeypatch.setattr(coordinator._started, "result", interrupt)
        with pytest.raises(KeyboardInterrupt):
            coordinator.start()
    else:
        with ThreadPoolExecutor(1) as pool:
            started = pool.submit(coordinator.start)
            assert starting.wait(DEADLINE_S)
            coordinator.stop()
            with pytest.raises(RuntimeError, match="has stopped"):
                started.result(DEADLINE_S)
    assert "callboard-coordinator" not in [thread.name for thread in threading.enumerate()]
    with Coordinator.in_thread(tmp_path):
        pass
    coordinator.stop()


def test_use_before_start_or_after_stop_raises_runtime_error() -> None:
    coordinator = Coordinator.in_thread()
    with pytest.raises(RuntimeError, match="is not running yet: use it inside `with`"):
        coordinator.offsets("g")
    with pytest.raises(RuntimeError, match="is not running yet: use it inside `with`"):
        _ = coordinator.bootstrap
    coordinator.stop()
    with coordinator:
        with pytest.raises(RuntimeError, match="started before"):
            coordinator.start()
        thread = coordinator.run(_this_thread())
    assert not thread.is_alive()
    coordinator.stop()
    with pytest.raises(RuntimeError, match="has stopped"):
        coordinator.offsets("g")


def test_error_in_the_body_stops_the_coordinator(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Coordinator.in_thread(tmp_path):
        raise ZeroDivisionError
    with Coordinator.in_thread(tmp_path):
        pass


async def _this_thread() -> threading.Thread:
    return threading.current_thread()


def test_interrupt_before_the_future_exists_cancels_the_coroutine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would continue and keep its locks."""
    original = asyncio.run_coroutine_threadsafe

    def interrupted(*arguments: Any) -> Any:
        original(*arguments)
        raise KeyboardInterrupt

    async def forever() -> None:
        await asyncio.Event().wait()

    with Coordinator.in_thread() as coordinator:
        coro = forever()
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
            coordinator.run(coro)
        for _ in range(5):  # steps of the loop in which the coroutine starts and is cancelled
            coordinator.run(asyncio.sleep(0))
        assert inspect.getcoroutinestate(coro) == inspect.CORO_CLOSED


PROGRAM = """
import atexit, sys, threading
import callboard

coordinator = callboard.Coordinator.in_thread(data=sys.argv[1], listen="127.0.0.1:0")
coordinator.start()

def work():
    threading.main_thread().join()
    with callboard.connect_in_thread(coordinator.bootstrap) as remote:
        for source in (coordinator, remote):
            with source.member("g", resources={"jobs": 1}) as member:
                shard = member.next_assignment().shards[0]
                print(shard.next_offset, flush=True)
                shard.commit((shard.next_offset or 0) + 1)

worker = threading.Thread(target=work)
worker.start()
"""


@pytest.mark.parametrize(
    "end",
    [
        "atexit.register(coordinator.stop)",
        "threading.Thread(target=lambda: (worker.join(), coordinator.stop())).start()",
    ],
)
def test_coordinator_is_used_and_stopped_after_the_end_of_the_main_thread(tmp_path: Path, end: str) -> None:
    """It failed there: Python's own pools of threads refuse all work then."""
    arguments = [sys.executable, "-c", PROGRAM + end, str(tmp_path)]
    process = subprocess.run(arguments, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (process.stdout, process.stderr) == ("None\n1\n", "")
    with Coordinator.in_thread(tmp_path) as coordinator:
        assert coordinator.offsets("g")["jobs", 0].offset == 2
