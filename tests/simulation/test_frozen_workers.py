"""Workers that ``Chaos`` freezes and kills: a simulation finds those that write without a look at their lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from callboard.runtime.member.shards import Shard, ShardState
from callboard.runtime.testing.simulation.chaos import Chaos
from callboard.runtime.testing.simulation.loop import current_process
from callboard.runtime.testing.simulation.scenario import Scenario, Sim
from callboard.runtime.testing.simulation.simulate import run_seed

NAMES = ("anna", "ben", "carl")
SEEDS = 10
GROUP = "g"


def workers(may_write: Callable[[Shard], bool]) -> Scenario:
    """Workers that write to a store, which must never get a token that is older than another one."""

    async def work(sim: Sim, shard: Shard) -> None:
        next_offset = shard.next_offset or 0
        while True:
            await asyncio.sleep(0.3)
            if may_write(shard):
                if not sim.holders.write((GROUP, shard.resource, shard.name), shard.token):
                    sim.fail(f"a stale write to {shard.name}")
                next_offset += 1
                await shard.commit(next_offset)

    async def worker(sim: Sim, name: str) -> None:
        member = sim.member(GROUP, resources={"jobs": 3}, session_timeout_ms=6000)
        await sim.serve(member, partial(work, sim), who=name)

    async def scenario(sim: Sim) -> None:
        for name in NAMES:
            sim.spawn(name, partial(worker, sim, name))
        await Chaos(sim).run(60, ("process frozen", "process killed", "cut off"))
        await sim.calm()
        await sim.until(lambda: len(sim.holders.held(GROUP)) == 3, 60, "all shards have an owner")

    return scenario


def first_failure(scenario: Scenario) -> str:
    for seed in range(SEEDS):
        failure = run_seed(scenario, seed).failure
        if failure is not None:
            return str(failure)
    return ""


def test_worker_that_writes_without_a_look_is_found() -> None:
    assert "stale write" in first_failure(workers(lambda shard: True))


def test_worker_that_looks_at_its_lease_before_each_write_has_no_stale_write() -> None:
    """Each shard with another look."""
    looks: list[Callable[[Shard], bool]] = [
        lambda shard: not shard.is_lost,
        lambda shard: not shard.is_revoked,
        lambda shard: shard.lease_left_s > 0,
    ]
    assert first_failure(workers(lambda shard: looks[shard.number](shard))) == ""


def test_look_that_does_not_compare_with_the_clock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shard, "is_lost", property(lambda shard: shard.state is ShardState.LOST))
    assert "stale write" in first_failure(workers(lambda shard: not shard.is_lost))


async def beat(beats: list[str], name: str) -> None:
    while True:
        await asyncio.sleep(1)
        beats.append(name)


def test_chaos_kills_processes_of_functions_and_starts_them_again() -> None:
    async def scenario(sim: Sim) -> None:
        starts: list[str] = []

        async def program() -> None:
            process = current_process()
            assert process is not None
            starts.append(process.name)
            await asyncio.sleep(1e6)

        sim.spawn("a", program)
        sim.spawn("b", program())
        await Chaos(sim).run(60, ("process killed",), pause_s=2)
        await sim.calm()
        await sim.sleep(1)
        assert starts.count("b") == 1, "a coroutine cannot be started again, so its process is not killed"
        assert starts.count("a") > 5
        assert sim.spawned.running() == ["a", "b"]

    assert run_seed(scenario, 1).failure is None


def test_killed_process_starts_again_in_calm_and_not_once_more_later() -> None:
    async def scenario(sim: Sim) -> None:
        beats: list[str] = []
        sim.spawn("a", partial(beat, beats, "a"))
        sim.kill_for("a", 5)
        await sim.sleep(3)
        assert beats == []
        await sim.calm()
        await sim.sleep(2.5)
        assert beats == ["a", "a"]
        await sim.sleep(3)
        assert len(beats) == 5

    assert run_seed(scenario, 1).failure is None


def test_frozen_process_is_thawed_after_its_time_or_in_calm() -> None:
    async def scenario(sim: Sim) -> None:
        beats: list[str] = []
        for name in "ab":
            sim.spawn(name, beat(beats, name))
        sim.freeze_for("a", 5)
        sim.freeze_for("b", 500)
        await sim.sleep(4.5)
        assert beats == []
        await sim.sleep(3)
        assert set(beats) == {"a"}
        await sim.calm()
        await sim.sleep(2)
        assert "b" in beats

    assert run_seed(scenario, 1).failure is None
