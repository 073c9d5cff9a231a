"""Tests of the virtual loop: asyncio's behaviour with virtual time and without sockets and threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator

import pytest

from callboard.runtime.testing.simulation.loop import START_S, LoopClock, Process, Stuck, VirtualLoop, run


def virtual() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def test_sleep_of_a_day_takes_no_real_time() -> None:
    async def day() -> float:
        await asyncio.sleep(86_400)
        return virtual().time()

    begun_s = time.monotonic()
    assert run(day()) == START_S + 86_400
    assert time.monotonic() - begun_s < 60


def test_timers_fire_in_order_and_never_early() -> None:
    fired: list[tuple[float, float]] = []

    async def main() -> None:
        loop = virtual()
        for delay_s in (3.3, 0.1, 2.2, 0.1000004):
            due_s = loop.time() + delay_s
            loop.call_at(due_s, lambda due_s: fired.append((due_s, loop.time())), due_s)
        loop.call_later(1, fired.clear).cancel()
        await asyncio.sleep(5)

    run(main())
    assert [due_s for due_s, _ in fired] == sorted(due_s for due_s, _ in fired) and len(fired) == 4
    assert all(now_s >= due_s for due_s, now_s in fired)


def test_simultaneous_timers_fire_in_order_of_seed() -> None:
    def order(seed: int) -> tuple[int, ...]:
        fired: list[int] = []

        async def main() -> None:
            for number in range(6):
                virtual().call_later(1, fired.append, number)
            await asyncio.sleep(2)

        run(main(), seed)
        return tuple(fired)

    assert order(1) == order(1)
    assert len({order(seed) for seed in range(20)}) > 10


def test_asyncio_timeouts_groups_and_locks_work() -> None:
    async def main() -> list[str]:
        steps: list[str] = []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(100))
                group.create_task(fail())
        steps.append(await asyncio.to_thread(lambda: "done at once"))
        steps += [str(number) async for number in numbers()]
        return steps

    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError("as planned")

    async def numbers() -> AsyncIterator[int]:
        for number in range(2):
            await asyncio.sleep(1)
            yield number

    assert run(main()) == ["done at once", "0", "1"]


def test_deadlock_raises_stuck_with_waiting_task() -> None:
    async def main() -> None:
        await wait_forever()

    async def wait_forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match=r"wait for ever:\n.*wait_forever > Event\.wait"):
        run(main())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_endless_callbacks_raise_stuck() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="no time passes"):
        run(main())


def test_sockets_processes_and_threads_are_refused() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="no sockets"):
            await asyncio.open_connection("127.0.0.1", 9092)
        errors: list[RuntimeError] = []

        def from_outside(loop: VirtualLoop) -> None:
            try:
                loop.call_soon_threadsafe(print)
            except RuntimeError as error:
                errors.append(error)

        thread = threading.Thread(target=from_outside, args=(virtual(),))
        thread.start()
        thread.join()
        assert "one thread" in str(errors[0])

    run(main())


def test_uncaught_error_is_raised_at_end() -> None:
    async def main() -> None:
        virtual().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run(main())


def test_frozen_process_resumes_and_killed_process_stops() -> None:
    beats: list[float] = []
    ends: list[str] = []

    async def tick() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                beats.append(virtual().time() - START_S)
        finally:
            ends.append("finally")

    async def main() -> None:
        process = Process(virtual(), "p")
        process.start(tick())
        await asyncio.sleep(2.5)
        process.freeze()
        await asyncio.sleep(4)
        process.thaw()
        await asyncio.sleep(1.1)
        process.kill()
        await asyncio.sleep(10)
        assert not ends, "no code of a killed process runs"

    run(main())
    assert beats == [1, 2, 6.5, 7.5]


def test_timers_of_a_suspended_process_are_late_by_its_pause_and_others_are_not() -> None:
    beats: list[tuple[str, float]] = []

    async def tick(name: str, first_s: float) -> None:
        await asyncio.sleep(first_s)
        beats.append((name, virtual().time() - START_S))

    async def main() -> None:
        process, other = Process(virtual(), "p"), Process(virtual(), "other")
        for first_s in (1, 3, 4, 9):
            process.start(tick("p", first_s))
        other.start(tick("other", 8))
        await asyncio.sleep(2)
        process.freeze()
        await asyncio.sleep(5)
        process.thaw(timers_stood_still=True)
        await asyncio.sleep(100)

    run(main())
    assert sorted(beats, key=lambda beat: beat[1]) == beats
    assert set(beats) == {("p", 1), ("other", 8), ("p", 8), ("p", 9), ("p", 14)}


def test_loop_clock_follows_loop_time() -> None:
    async def main() -> tuple[int, int]:
        clock = LoopClock(virtual())
        wall_ms, now_ms = clock.wall_ms(), clock.monotonic_ms()
        await asyncio.sleep(1.5)
        return clock.wall_ms() - wall_ms, clock.monotonic_ms() - now_ms

    assert run(main()) == (1500, 1500)
