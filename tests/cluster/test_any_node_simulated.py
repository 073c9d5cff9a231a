"""Any node of three answers about any group, in virtual time: while nodes die, freeze or are slow, and partitions move.

Requests between nodes go through the connections of the product, over a network that is simulated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar, cast

import pytest
from simulated_processes import COUNTS, DELAY_S, SimulatedWorker

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.actors.javahash import offsets_partition
from callboard.actors.messages import LeaveGroup, LeavingMember
from callboard.runtime.client.connection import ChannelLost, Connection
from callboard.runtime.cluster import node_connections
from callboard.runtime.embed.any_group import requests_of
from callboard.runtime.embed.port import PortAdmin
from callboard.runtime.embed.results import CommittedOffset, GroupExplanation, GroupReset
from callboard.runtime.member.member import Member
from callboard.runtime.node.node import Node
from callboard.runtime.settings.address import Address
from callboard.runtime.testing.simulation.loop import VirtualLoop
from callboard.runtime.testing.simulation.loop import run as run_virtually

from .simulated_store import SimulatedStore, StoreFaults

T = TypeVar("T")
GROUPS = ("a", "b", "c", "d")
SHARDS = 2
SETTLE_S = 60.0
ANSWER_S = 2.0  # what a client of the HTTP API waits for


class Wire:
    """One end of a connection of two processes: what is written arrives at the other end later."""

    def __init__(self, network: Network, target: SimulatedWorker) -> None:
        self._network = network
        self._target = target
        self.receiver: Any = None
        self.back: Wire
        self.is_closed = False

    def write(self, data: Any) -> None:
        loop, delay_s = self._network.loop, DELAY_S + self._network.slow_s.get(self._target.name, 0.0)
        loop.call_later(delay_s, self._deliver, bytes(data), context=self._target.process.context)

    def _deliver(self, data: bytes) -> None:
        if not self.is_closed and not self.back.is_closed and not self._target.process.is_dead:
            self.receiver.data_received(data)

    def abort(self) -> None:
        self.is_closed = True

    close = abort

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 50_000) if name in ("peername", "sockname") else default

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Network:
    """Three nodes. ``slow_s``: by name of a node, how much later everything arrives there."""

    def __init__(self, seed: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.slow_s: dict[str, float] = {}
        self.workers: dict[str, SimulatedWorker] = {}
        self._store = SimulatedStore(random.Random(seed), StoreFaults())
        self._by_port: dict[int, SimulatedWorker] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def connect(self, address: Address, client_id: str, _security: object) -> Connection:
        """In place of ``connect_to``."""
        peer = self._by_port[address.port]
        own = next(worker for worker in self.workers.values() if client_id.split("/")[1].startswith(worker.name))
        client = Connection(address, client_id)
        there, back = Wire(self, peer), Wire(self, own)
        await asyncio.sleep(DELAY_S)
        if peer.process.is_dead:
            raise ChannelLost(f"cannot reach {address}")
        served = node_of(peer).connections.new_connection()
        there.receiver, back.receiver = served, client
        there.back, back.back = back, there
        peer.process.context.run(served.connection_made, cast("Any", back))
        client.connection_made(cast("Any", there))
        await client.exchange_versions()
        return client

    async def start(self) -> None:
        for number in range(1, 4):
            worker = SimulatedWorker(
                self.loop, f"n{number}", number, self._store, self._by_port, topics=(("jobs", SHARDS),)
            )
            self.workers[worker.name] = worker
            options: Any = {"resources": {"jobs": SHARDS}}
            self._tasks.append(worker.process.start(worker.serve(_work, GROUPS, **options)))
        await self.settle(3)

    async def settle(self, nodes: int, frozen: SimulatedWorker | None = None) -> None:
        """Until so many nodes have the partitions, as each of them knows, and serve their groups."""
        async with asyncio.timeout(SETTLE_S):
            while True:
                await asyncio.sleep(0.5)
                alive = [each for each in self.workers.values() if not each.process.is_dead and each is not frozen]
                owners = [worker.register.owners[: COUNTS.offsets] if worker.register else () for worker in alive]
                if len(set(owners)) == 1 and len(set(owners[0])) == nodes and self._is_loaded(alive):
                    return

    def _is_loaded(self, alive: list[SimulatedWorker]) -> bool:
        served = [[partition.is_active for partition in node_of(worker).groups.partitions] for worker in alive]
        return all(map(any, zip(*served, strict=True)))

    def owner(self, group: str) -> SimulatedWorker:
        worker = next(worker for worker in self.workers.values() if not worker.process.is_dead)
        register = worker.register
        assert register is not None
        name = register.nodes[register.owners[offsets_partition(group, COUNTS.offsets)]].name
        return self.workers[name]

    def others(self, group: str) -> list[SimulatedWorker]:
        owner = self.owner(group)
        return [worker for worker in self.workers.values() if worker is not owner and not worker.process.is_dead]


async def _work(member: Member) -> None:
    async def handle(shard: Any) -> None:
        while not shard.is_revoked:
            await asyncio.sleep(0.4)

    await member.run(handle)


def node_of(worker: SimulatedWorker) -> Node:
    assert worker._node is not None
    return worker._node


async def at(worker: SimulatedWorker, ask: Callable[[PortAdmin], Coroutine[Any, Any, T]]) -> T:
    """The answer of a node to what somebody asks there, within the time that he waits."""
    admin = PortAdmin(lambda: requests_of(node_of(worker)))
    async with asyncio.timeout(ANSWER_S):
        return await worker.process.start(ask(admin))


async def refusal(worker: SimulatedWorker, ask: Callable[[PortAdmin], Coroutine[Any, Any, Any]]) -> str:
    """Why it is not answered now."""
    with pytest.raises(CoordinatorError) as caught:
        await at(worker, ask)
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    return str(caught.value)


def simulate(monkeypatch: pytest.MonkeyPatch, check: Callable[[Network], Awaitable[None]], seed: int = 1) -> None:
    async def run() -> None:
        network = Network(seed)
        monkeypatch.setattr(node_connections, "connect_to", network.connect)
        await network.start()
        await asyncio.sleep(5)
        await check(network)

    run_virtually(run(), seed)


def explain(group: str) -> Callable[[PortAdmin], Coroutine[Any, Any, GroupExplanation]]:
    return lambda admin: admin.explain(group)


def offsets(group: str) -> Callable[[PortAdmin], Coroutine[Any, Any, Mapping[Any, CommittedOffset]]]:
    return lambda admin: admin.offsets(group)


def reset(group: str, dry_run: bool = False) -> Callable[[PortAdmin], Coroutine[Any, Any, GroupReset]]:
    return lambda admin: admin.evict_and_reset(group, {("jobs", 0): 7}, reason="again", dry_run=dry_run)


def test_any_node_answers_about_any_group(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(network: Network) -> None:
        assert {network.owner(group).name for group in GROUPS} == {"n1", "n2", "n3"}
        for group in GROUPS:
            explained = [await at(worker, explain(group)) for worker in network.workers.values()]
            assert {len(each.rebalances) for each in explained} == {len(explained[0].rebalances)}
            assert all(each.now is not None and each.now.member_count == 3 for each in explained)
            for worker in network.workers.values():
                done = await at(worker, reset(group))
                assert len(done.removed) == 3
                assert (await at(worker, offsets(group)))["jobs", 0].offset == 7
                await asyncio.sleep(10)  # the members join again

    simulate(monkeypatch, check)


def test_node_dies_between_the_plan_and_the_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(network: Network) -> None:
        asked = network.others("a")[0]
        plan = await at(asked, reset("a", dry_run=True))
        network.owner("a").kill()
        text = await refusal(asked, reset("a"))
        assert "group 'a' is between two nodes of the cluster, or its node does not answer" in text
        await network.settle(2)
        done = await at(asked, reset("a"))
        assert done.after == plan.after
        for worker in network.others("nobody's"):
            assert (await at(worker, offsets("a")))["jobs", 0].offset == 7

    simulate(monkeypatch, check)


def test_frozen_node_is_named_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def check(network: Network) -> None:
        asked, owner = network.others("a")[0], network.owner("a")
        await at(asked, explain("a"))
        owner.process.freeze()
        assert "did not answer within 1.5 s" in await refusal(asked, explain("a"))
        await network.settle(2, frozen=owner)
        await at(asked, explain("a"))

    simulate(monkeypatch, check)


def test_slow_node_gets_no_change_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(network: Network) -> None:
        asked = network.others("a")[0]
        before = await at(asked, lambda admin: admin.describe("a"))
        network.slow_s[asked.name] = 5.0  # the answer comes too late
        remove = LeaveGroup("a", (LeavingMember(before.members[0].member_id, None, "member was removed by an admin"),))
        text = await refusal(asked, lambda admin: admin._requests().ask(remove))
        assert "the change may have been made: look before you repeat it" in text
        network.slow_s.clear()
        await asyncio.sleep(20)
        described = await at(asked, lambda admin: admin.describe("a"))
        records = (await at(asked, explain("a"))).rebalances
        assert len(described.members) == 3
        assert [record.why.cause for record in records].count("evicted") == 1

    simulate(monkeypatch, check)
