"""Child processes: jobs and results, their end with the parent, and their failures."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from callboard.runtime.common.child_main import pack
from callboard.runtime.common.child_process import ChildEnded, ChildProcess

TARGET = "test_child_process:run"
DEADLINE_S = 60.0


def run(job: str) -> Iterator[object]:
    """The jobs of these tests, in the child process."""
    if job == "pid":
        yield os.getpid()
    elif job == "print":
        print("this must not reach the parent")
        yield "printed"
    elif job == "many":
        yield from range(1000)
    elif job == "fail":
        yield "first"
        raise ValueError("bad job")
    elif job == "hang":
        yield "hanging"
        time.sleep(1000)


async def results(child: ChildProcess, job: str) -> list[object]:
    return [result async for result in child.results(job)]


async def run_jobs(*jobs: str) -> list[list[object]]:
    child = ChildProcess(TARGET)
    await child.start()
    try:
        return [await results(child, job) for job in jobs]
    finally:
        await child.stop()


def test_child_runs_jobs_one_after_the_other_in_one_process() -> None:
    first, many, second = asyncio.run(run_jobs("pid", "many", "pid"))
    assert first == second != [os.getpid()]
    assert many == list(range(1000))


def test_output_of_the_child_does_not_mix_with_results() -> None:
    assert asyncio.run(run_jobs("print", "print")) == [["printed"], ["printed"]]


def test_job_that_raises_ends_the_child() -> None:
    with pytest.raises(ChildEnded):
        asyncio.run(run_jobs("fail"))


def test_killed_child_raises_child_ended() -> None:
    async def main() -> None:
        child = ChildProcess(TARGET)
        await child.start()
        with pytest.raises(ChildEnded):
            async for result in child.results("hang"):
                assert result == "hanging"
                child.kill()
        with pytest.raises(ChildEnded):
            await results(child, "pid")
        await child.stop()
        await child.stop()

    asyncio.run(main())


def test_child_ignores_signals_to_the_process_group() -> None:
    """Ctrl-C in a terminal reaches the child too, but its parent decides when it ends."""

    async def main() -> None:
        child = ChildProcess(TARGET)
        await child.start()
        [pid] = await results(child, "pid")
        assert isinstance(pid, int)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)
            assert await results(child, "pid") == [pid]
        await child.stop()

    asyncio.run(main())


def test_process_that_loads_partitions_starts_without_asyncio() -> None:
    modules = "callboard.runtime.common.child_main, callboard.runtime.loading.child"
    program = f"import sys, {modules}; print('asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_child_exits_when_its_parent_is_gone_in_the_middle_of_a_job() -> None:
    program = f"from callboard.runtime.common.child_main import serve; serve({TARGET!r})"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    command, environment = [sys.executable, "-c", program], {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(pack("hang"))
        child.stdin.flush()
        expected = pack("hanging")
        assert child.stdout.read(len(expected)) == expected
        child.stdin.close()
        assert child.wait(DEADLINE_S) == 0
