"""A campaign: real servers of one cluster, clients that commit all the time, and faults one after the other.

A client's outage is its longest time without an acknowledged commit. What was acknowledged is compared with what is
read, while the faults happen and at the end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from cluster.cluster_server_helpers import ClusterServer
from cluster.probe import INTERVAL_S, ProbeClient

from callboard.actors.javahash import offsets_partition
from callboard.runtime.cluster.engines import open_store
from callboard.runtime.cluster.register import planned_owners
from callboard.runtime.cluster.register_log import newest_register
from callboard.runtime.cluster.store import StoreUnavailable

from .measured import load_average

PARTITIONS = 50
WAIT_S = 120.0
POLL_S = 0.05
LONG_GAP_S = 0.1
CALM_S = 0.5


class Fault(NamedTuple):
    """``begin`` and ``end`` get the number of the cycle. ``victim`` too: who is hit, None if all are.

    ``has_zombie``: the victim is alive meanwhile, so clients go on asking it. ``counts_end``: what any client notices
    until the cluster is as before is part of the outage.
    """

    victim: Callable[[int], ClusterServer | None]
    begin: Callable[[int], Awaitable[None]]
    end: Callable[[int], Awaitable[None]]
    has_zombie: bool = False
    counts_end: bool = False


class Workload(NamedTuple):
    """Clients, each with one group of another partition while there are enough. ``interval_s``: between requests."""

    clients: int
    interval_s: float


FEW_CLIENTS = Workload(12, INTERVAL_S)


class Unserved(Exception):
    """For ``WAIT_S`` some client was not served, or the servers did not share the partitions."""


class Outage(NamedTuple):
    """Of one fault. ``seconds``: that of the client that waited longest. ``load``: of the machine, at the end."""

    seconds: float
    clients: int
    load: float


class Campaign:
    """``servers`` have joined. Everything runs on one event loop, in ``async with``."""

    def __init__(self, servers: Sequence[ClusterServer], url: str, workload: Workload = FEW_CLIENTS) -> None:
        self.outages: list[Outage] = []
        self.violations: list[str] = []
        self._servers = servers
        self._store = open_store(url, "campaign")
        self._stopping = asyncio.Event()
        bootstrap = [server.address for server in servers]
        count = workload.clients
        names = [group_of(place * PARTITIONS // count, f"group-{place}") for place in range(count)]
        self._clients = [ProbeClient(name, bootstrap, interval_s=workload.interval_s) for name in names]
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def acknowledged(self) -> int:
        return sum(client.acknowledged_count for client in self._clients)

    async def __aenter__(self) -> Campaign:
        self._tasks = [asyncio.create_task(client.run(self._stopping)) for client in self._clients]
        await self.settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping.set()
        await asyncio.gather(*self._tasks)
        await self._check(self._clients)
        await self._store.close()

    async def cycle(self, fault: Fault, number: int) -> Outage:
        """One fault: until all clients are served in spite of it, then until the cluster is as it was before."""
        victim = fault.victim(number)
        hit = await self._clients_of(victim)
        zombies = self._zombies(hit, victim, number) if victim is not None and fault.has_zombie else []
        until = asyncio.Event()
        tasks = [asyncio.create_task(zombie.run(until)) for zombie in zombies]
        await self._wait_for_commits(self._clients)
        begun_s = time.monotonic()
        await fault.begin(number)
        if victim is not None:
            await self._wait_until(lambda: all(client.coordinator != victim.address for client in hit))
        await self._wait_for_commits(self._clients)
        ended_s = time.monotonic()
        await fault.end(number)
        await self.settle()
        until.set()
        await asyncio.gather(*tasks)
        await self._check(zombies)
        if fault.counts_end:
            hit, ended_s = self._clients, time.monotonic()
        return self._note_outage(hit, begun_s, ended_s)

    def note_unserved(self, text: str) -> None:
        """A fault after which the cluster did not come back."""
        self.outages.append(Outage(WAIT_S, len(self._clients), load_average()))
        self.violations.append(text)

    async def _clients_of(self, victim: ClusterServer | None) -> list[ProbeClient]:
        """Those that it serves. A busy machine may have stalled it, so that it has to get its partitions back."""
        async with _limited(lambda: "no client has the server as its coordinator"):
            while True:
                hit = [client for client in self._clients if victim is None or client.coordinator == victim.address]
                if hit:
                    return hit
                await self.settle()

    def _note_outage(self, hit: Sequence[ProbeClient], begun_s: float, ended_s: float) -> Outage:
        longest_s = [
            max((gap.seconds for gap in client.gaps if gap.end_s > begun_s and gap.start_s < ended_s), default=0.0)
            for client in hit
        ]
        for client in self._clients:
            client.gaps = [gap for gap in client.gaps if gap.seconds > LONG_GAP_S][-1:]
        self.outages.append(Outage(round(max(longest_s), 3), len(hit), load_average()))
        return self.outages[-1]

    async def settle(self) -> None:
        """Until all servers own what they should, and all clients are served."""
        async with _limited(lambda: "the servers do not share the partitions"):
            while not await self._is_balanced():
                await asyncio.sleep(POLL_S)
        await self._wait_for_commits(self._clients)
        await asyncio.sleep(CALM_S)

    async def _is_balanced(self) -> bool:
        with suppress(StoreUnavailable):
            register = await newest_register(self._store)
            return (
                register is not None
                and len(register.nodes) == len(self._servers)
                and planned_owners(register) == list(register.owners)
            )
        return False

    def _zombies(self, hit: Sequence[ProbeClient], victim: ClusterServer, number: int) -> list[ProbeClient]:
        """Clients that ask only the victim, each for another group of the same partition."""
        bootstrap = [server.address for server in self._servers]
        groups = [group_of(offsets_partition(client.group, PARTITIONS), f"pinned-{number}") for client in hit]
        return [ProbeClient(group, bootstrap, victim.address) for group in groups]

    async def _wait_for_commits(self, clients: Sequence[ProbeClient]) -> None:
        """Until each client has two more acknowledgements: the second was sent after this began."""
        goals = [client.acknowledged_count + 2 for client in clients]

        def are_served() -> bool:
            return all(client.acknowledged_count >= goal for client, goal in zip(clients, goals, strict=True))

        await self._wait_until(are_served)

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        def counts() -> str:
            by_group = {client.group: client.acknowledged_count for client in self._clients}
            return f"a client is not served; acknowledged by group: {by_group}"

        async with _limited(counts):
            while not condition():
                await asyncio.sleep(POLL_S)

    async def _check(self, clients: Sequence[ProbeClient]) -> None:
        for client in clients:
            client.use([server.address for server in self._servers])
        lost = await asyncio.gather(*(client.check() for client in clients))
        self.violations += [text for text in lost if text]
        self.violations += [text for client in clients for text in client.violations]


@asynccontextmanager
async def _limited(what: Callable[[], str]) -> AsyncIterator[None]:
    """Raises Unserved with ``what`` after ``WAIT_S``."""
    try:
        async with asyncio.timeout(WAIT_S):
            yield
    except TimeoutError:
        raise Unserved(f"after {WAIT_S:g} s: {what()}") from None


def group_of(partition: int, prefix: str) -> str:
    """The name of a group in a partition of the offsets topic."""
    return next(
        name for number in range(100_000) if offsets_partition(name := f"{prefix}-{number}", PARTITIONS) == partition
    )
