"""Members in processes that are nodes of one cluster: no shard has two owners, and no commit is lost.

Processes die, freeze and start again, in virtual time. The partitions move, the members stay.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from cluster.simulated_store import SimulatedStore, StoreFaults
from simulated_processes import SimulatedWorker

from callboard.runtime.member.errors import ShardLost
from callboard.runtime.member.member import Member
from callboard.runtime.member.shards import Shard
from callboard.runtime.testing.simulation.loop import VirtualLoop
from callboard.runtime.testing.simulation.loop import run as run_virtually

SEEDS, LONG_SEEDS = range(2), range(2, 12)
GROUPS = ("a", "b", "c")
SHARDS = 3
PROCESSES = 3
STEP_S = 0.4
SETTLE_S = 90.0
FAULTS = 5
PROTOCOLS = ("classic", "consumer")
RUNS = [
    *(pytest.param(seed, protocol) for protocol in PROTOCOLS for seed in SEEDS),
    *(pytest.param(seed, protocol, marks=pytest.mark.long) for protocol in PROTOCOLS for seed in LONG_SEEDS),
]


class Ledger:
    """What the members have done with each shard, in the order of time."""

    def __init__(self) -> None:
        self.workers: dict[tuple[str, Any], tuple[int, str]] = {}  # token and member of the last step
        self.acknowledged: dict[tuple[str, Any], int] = {}
        self.steps_s: dict[tuple[str, Any], float] = {}
        self.lost = 0

    async def work_on(self, member: Member, shard: Shard) -> None:
        key = member.group_id, shard.name
        loop = asyncio.get_running_loop()
        offset = shard.next_offset or 0
        if not shard.is_revoked:  # else its process was frozen, and others have gone on
            assert offset >= self.acknowledged.get(key, 0), f"a commit of {key} was lost"
        while not shard.is_revoked:
            worker = shard.token, member.member_id
            last = self.workers.get(key, worker)
            assert worker[0] > last[0] or worker == last, f"{worker} works on {key} after {last}"
            self.workers[key], self.steps_s[key] = worker, loop.time()
            offset += 1
            try:
                await shard.commit(offset)
            except ShardLost:
                self.lost += 1
                return
            self.acknowledged[key] = max(offset, self.acknowledged.get(key, 0))
            await asyncio.sleep(STEP_S)

    def is_settled(self, now_s: float) -> bool:
        """Whether all shards are worked on."""
        keys = [(group, number) for group in GROUPS for number in range(SHARDS)]
        return all(now_s - self.steps_s.get(key, -1e9) < 3 * STEP_S for key in keys)


class Scenario:
    """Some processes, of which one at a time dies or freezes. ``protocol``: of their members."""

    def __init__(self, seed: int, protocol: str) -> None:
        self.options: Any = {"resources": {"jobs": SHARDS}, "protocol": protocol}
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.draw = random.Random(seed)
        self.ledger = Ledger()
        self.workers: dict[str, SimulatedWorker] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self._store = SimulatedStore(self.draw, StoreFaults())
        self._by_port: dict[int, SimulatedWorker] = {}

    def start(self, name: str) -> None:
        worker = SimulatedWorker(self.loop, name, len(self._by_port) + 1, self._store, self._by_port)
        self.workers[name] = worker
        self.tasks.append(worker.process.start(worker.serve(self._work, GROUPS, **self.options)))

    async def _work(self, member: Member) -> None:
        async def handle(shard: Shard) -> None:
            await self.ledger.work_on(member, shard)

        await member.run(handle)

    async def settle(self) -> None:
        async with asyncio.timeout(SETTLE_S):
            while not self.ledger.is_settled(self.loop.time()):
                self.check()
                await asyncio.sleep(0.5)
        self.check()

    def check(self) -> None:
        for task in self.tasks:
            if task.done():
                task.result()

    async def kill(self, name: str) -> None:
        self.workers[name].kill()
        await asyncio.sleep(self.draw.uniform(0, 12))
        self.start(name)

    async def freeze(self, name: str) -> None:
        process = self.workers[name].process
        process.freeze()
        await asyncio.sleep(self.draw.choice((1, 4, 20)) * self.draw.random())
        process.thaw()


@pytest.mark.parametrize(("seed", "protocol"), RUNS)
def test_no_shard_has_two_owners_and_no_commit_is_lost(seed: int, protocol: str) -> None:
    async def run() -> None:
        scenario = Scenario(seed, protocol)
        for number in range(PROCESSES):
            scenario.start(f"n{number}")
        await scenario.settle()
        for _ in range(FAULTS):
            await asyncio.sleep(scenario.draw.uniform(1, 10))
            fault = scenario.draw.choice((scenario.kill, scenario.freeze))
            await fault(scenario.draw.choice(sorted(scenario.workers)))
            scenario.check()
        await scenario.settle()

    run_virtually(run(), seed)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_of_other_processes_keep_their_shards_when_a_node_dies(protocol: str) -> None:
    """With their tokens: the group is the same one at another node."""

    async def run() -> None:
        scenario = Scenario(1, protocol)
        for number in range(PROCESSES):
            scenario.start(f"n{number}")
        await scenario.settle()
        await asyncio.sleep(10)
        before = dict(scenario.ledger.workers)
        scenario.workers["n1"].kill()
        await asyncio.sleep(6)  # less than the session, so the dead process's members are not missed yet
        assert scenario.ledger.workers == before
        assert scenario.ledger.lost == 0
        steps_s = scenario.ledger.steps_s
        going_on = [key for key in before if scenario.loop.time() - steps_s[key] < 3 * STEP_S]
        assert len(going_on) >= len(before) / 2
        await scenario.settle()

    run_virtually(run(), 1)
