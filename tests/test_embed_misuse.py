"""What people do with an embedded coordinator that nobody meant, and what their programs do: threads, loops, forks."""

from __future__ import annotations

import asyncio
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from harness import async_test

import callboard
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.folder import DataFolder

DEADLINE_S = 120.0


@pytest.mark.parametrize(
    "options",
    [{"data": 5}, {"data": b"state"}, {"listen": 9092}, {"advertised": 9092}, {"topics": ["jobs"]}, {"topics": {3: 1}}],
    ids=repr,
)
def test_what_is_of_another_type_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(callboard.StartError, match=r"bad .*expected"):
        callboard.Coordinator(**options)


@async_test
async def test_a_restart_ends_in_one_of_three_ways() -> None:
    async with callboard.Coordinator() as coordinator:
        before = coordinator.node
        with pytest.raises(ValueError, match="'killed'"):
            await coordinator.restart("kiled")  # type: ignore[arg-type]
        assert coordinator.node is before


@async_test
async def test_stop_says_that_it_would_wait_for_whoever_calls_it() -> None:
    """It waited for as long as a rebalance may take, and then gave up."""
    async with callboard.Coordinator() as coordinator:

        async def handler(shard: callboard.Shard) -> None:
            await coordinator.stop()

        async with (
            coordinator.member("g", resources={"jobs": 1}) as member,
            await member.next_assignment() as assignment,
        ):
            with pytest.raises(RuntimeError, match="is called from"):
                await coordinator.stop()
            assert not assignment.is_over
        async with coordinator.member("g", resources={"jobs": 1}) as member:
            with pytest.raises(RuntimeError, match="is called from"):
                await member.run(handler)


@async_test
async def test_a_member_is_told_when_it_is_on_another_loop_than_its_coordinator() -> None:
    async def elsewhere(member: callboard.Member) -> None:
        async with asyncio.timeout(DEADLINE_S), member:
            await member.next_assignment()

    async with callboard.Coordinator() as coordinator:
        member = coordinator.member("g", resources={"jobs": 1})
        with pytest.raises(RuntimeError, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(elsewhere(member)))
        async with coordinator.member("g", resources={"jobs": 1}) as here:
            assert len((await here.next_assignment()).shards) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@async_test
async def test_a_forked_child_keeps_nothing_of_the_coordinator(tmp_path: Path) -> None:
    """Else a worker that outlives a killed parent holds port and folder, and no other coordinator can begin."""
    async with (
        callboard.Coordinator(tmp_path, "127.0.0.1:0") as coordinator,
        callboard.connect(coordinator.bootstrap) as remote,
        remote.member("g", resources={"jobs": 1}) as member,
    ):
        await member.next_assignment()
        files = coordinator.node.exclusive_fds()
        assert len(files) >= 4  # listener, folder, its lock, connections
        assert await asyncio.to_thread(_what_a_child_has, files) == len(files) * "-"
        with pytest.raises(callboard.StartError, match=r"lock|in use|process"):  # ours has it still
            DataFolder(tmp_path, disk=Disk())
        await member.shards[0].commit(1)


def _what_a_child_has(files: list[int]) -> str:
    """A "-" for each of these descriptors that leads to nothing in a forked child."""
    answers, said = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork among threads; the child does next to nothing
        child = os.fork()
    if not child:
        nothing = os.stat(os.devnull).st_rdev
        os.write(said, "".join("-" if os.fstat(fd).st_rdev == nothing else "+" for fd in files).encode())
        os._exit(0)
    os.close(said)
    with open(answers) as found:
        os.waitpid(child, 0)
        return found.read()
