"""Groups of the consumer protocol in a cluster, in virtual time: no partition of a topic has two members.

Nodes die, are drained and start again. Members go on with their partitions, and rebalances with the next coordinator.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from itertools import count

import pytest
from cluster.simulated_store import SimulatedStore, StoreFaults
from simulated_consumers import ConsumerMember, Owners
from simulated_processes import COUNTS, SimulatedWorker

from callboard.actors.errors import ErrorCode
from callboard.actors.javahash import offsets_partition
from callboard.runtime.cluster.operator import Operator
from callboard.runtime.cluster.patient_store import PatientStore
from callboard.runtime.cluster.register import Register, planned_owners
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.testing.simulation.loop import VirtualLoop
from callboard.runtime.testing.simulation.loop import run as run_virtually

NODES = ("n0", "n1", "n2")
TOPIC, PARTITIONS = "jobs", 6
MEMBERS = 3
BEATS = 3
WAIT_S = 60.0
MOVES = 4
SEEDS = range(4)


def group_of(partition: int) -> str:
    """A group whose records are in this partition of the offsets."""
    return next(
        name for name in map("group-{}".format, range(1000)) if offsets_partition(name, COUNTS.offsets) == partition
    )


GROUPS = tuple(map(group_of, range(COUNTS.offsets)))


class Scenario:
    """Three nodes, and a group for each partition of the offsets."""

    def __init__(self, seed: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.draw = random.Random(seed)
        self.workers: dict[str, SimulatedWorker] = {}
        self.members: list[ConsumerMember] = []
        self._tasks: dict[ConsumerMember | SimulatedWorker, asyncio.Task[None]] = {}
        self._store = SimulatedStore(self.draw, StoreFaults())
        self._by_port: dict[int, SimulatedWorker] = {}
        self._owners = Owners()
        self._numbers = count()
        self.operator = Operator(PatientStore(self._store.client()), SessionEnvironment(now=loop.time))

    async def begin(self) -> None:
        for name in NODES:
            self.start(name)
        await self.until(self.is_balanced)
        for group in GROUPS:
            for _ in range(MEMBERS):
                self.join(group)
        await self.settle()

    def start(self, name: str) -> None:
        port = len(self._by_port) + 1
        worker = SimulatedWorker(self.loop, name, port, self._store, self._by_port, [(TOPIC, PARTITIONS)])
        self.workers[name] = worker
        self._tasks[worker] = worker.process.start(worker.serve(_nothing, ()))

    def join(self, group: str) -> None:
        member = ConsumerMember(
            self.loop, group, f"{group}-member-{next(self._numbers)}", TOPIC, self.workers, self._owners
        )
        self.members.append(member)
        self._tasks[member] = member.process.start(member.run())

    async def leave(self, member: ConsumerMember) -> None:
        self.members.remove(member)
        self._tasks.pop(member).cancel()
        await member.process.start(member.leave())

    async def kill(self, name: str) -> None:
        self.workers[name].kill()
        await self.served()
        self.start(name)

    async def stop(self, name: str) -> None:
        await self.workers[name].stop()
        await self.served()
        self.start(name)

    async def drain(self, name: str) -> None:
        [session] = [session for session, node in (await self.operator.read()).nodes.items() if node.name == name]
        await self.operator.set_draining(session, True)
        await self.until(lambda: session not in self.register().owners)
        await self.served()
        await self.operator.set_draining(session, False)

    def register(self) -> Register:
        """The newest version that some node has read."""
        registers = [worker.register for worker in self.workers.values() if not worker.process.is_dead]
        return max(filter(None, registers), key=lambda register: register.version)

    def is_balanced(self) -> bool:
        registers = [worker.register for worker in self.workers.values()]
        return all(
            register is not None
            and len(register.nodes) == len(NODES)
            and planned_owners(register) == list(register.owners)
            for register in registers
        )

    async def served(self) -> None:
        """Until each member has sent some more heartbeats that have succeeded."""
        goals = {member: member.beats + BEATS for member in self.members}
        await self.until(lambda: all(member.beats >= goal for member, goal in goals.items()))

    async def settle(self) -> None:
        await self.until(self.is_balanced)
        await self.until(self.is_shared)
        await self.served()

    def is_shared(self) -> bool:
        """Each group's members have all partitions, and fair shares of them."""
        for group in GROUPS:
            shares = [len(member.partitions) for member in self.members if member.group == group]
            if sum(shares) != PARTITIONS or max(shares) - min(shares) > 1:
                return False
        return True

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                for task in self._tasks.values():
                    if task.done() and not task.cancelled():
                        task.result()
                await asyncio.sleep(0.05)


async def _nothing(_: object) -> None:
    """Processes without members of their own."""


@pytest.mark.parametrize("move", [Scenario.kill, Scenario.stop, Scenario.drain])
def test_members_keep_their_partitions_and_epochs(move: Callable[[Scenario, str], Awaitable[None]]) -> None:
    async def run() -> None:
        scenario = Scenario(1)
        await scenario.begin()
        before = [(member.epoch, member.partitions, member.changes) for member in scenario.members]
        for name in NODES:
            await move(scenario, name)
            await scenario.settle()
        assert [(member.epoch, member.partitions, member.changes) for member in scenario.members] == before
        assert [member.fenced for member in scenario.members] == [0] * len(GROUPS) * MEMBERS
        errors = set().union(*(member.errors for member in scenario.members))
        assert errors <= {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}

    run_virtually(run())


@pytest.mark.parametrize("seed", SEEDS)
def test_rebalances_go_on_at_the_next_coordinator(seed: int) -> None:
    """Members join and leave at the moment at which a node dies or is drained: no partition has two of them."""

    async def run() -> None:
        scenario = Scenario(seed)
        await scenario.begin()
        draw = scenario.draw
        for _ in range(MOVES):
            for group in GROUPS:
                scenario.join(group)
            await asyncio.sleep(draw.uniform(0, 2))
            leaving = [draw.choice([each for each in scenario.members if each.group == group]) for group in GROUPS]
            await asyncio.gather(*map(scenario.leave, leaving))
            await asyncio.sleep(draw.uniform(0, 2))
            move = draw.choice((Scenario.kill, Scenario.stop, Scenario.drain))
            await move(scenario, draw.choice(NODES))
            await scenario.settle()

    run_virtually(run(), seed)
