"""A simulated cluster: some nodes, clients that increase numbers, faults, and what has to hold all the time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, TypeVar

from callboard.runtime.cluster import manifest
from callboard.runtime.cluster.keys import REGISTER, number_of
from callboard.runtime.cluster.operator import Operator
from callboard.runtime.cluster.patient_store import PatientStore
from callboard.runtime.cluster.register import Register, decode_register
from callboard.runtime.cluster.register_log import newest_register
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.log.compaction.swap import CompactionSettings
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.settings.table import Settings
from callboard.runtime.testing.simulation.loop import Process, VirtualLoop

from .final_checks import check_commits, check_owners, check_seals, check_watching
from .simulated_compaction import CompactionPlace, SimulatedCompactor, compact_owned
from .simulated_node import SimulatedNode
from .simulated_store import NodeStore, SimulatedStore, StoreFaults
from .violation import Violation

T = TypeVar("T")
COUNTS = PartitionCounts(3, 1)
PARTITIONS = sum(COUNTS)
TTL_S = 1.5
FAULTS_S = 15.0
CALM_S = 8.0
"""Within this time without faults every partition is served again. A late effect of up to 15 s does not delay it."""
REQUEST_TIMEOUT_S = 1.0
SEEDS_PER_OPERATOR = 4
"""In one of so many seeds an operator drains and seals nodes."""
PACK_ROUNDS = (0, 2)
"""By turns of as many seeds."""
SLOW_LOADS = 0.25
"""The part of the seeds with three nodes or more that end with slow loads."""


class Place(NamedTuple):
    """A node, the process that it runs in, and its connection to the store."""

    node: SimulatedNode
    process: Process
    store: NodeStore


class CompactorPlace(NamedTuple):
    compactor: SimulatedCompactor
    process: Process


class Cluster:
    """``places`` by node name. ``log``: what happened, for the report of a failure.

    ``is_exclusive``: a node that starts again ends its earlier session.
    """

    def __init__(self, loop: VirtualLoop, seed: int, is_exclusive: bool) -> None:
        self.random = random.Random(seed)
        self.loop = loop
        self.is_exclusive = is_exclusive
        self.has_operator = seed % SEEDS_PER_OPERATOR == 0
        self.pack_rounds = PACK_ROUNDS[seed // SEEDS_PER_OPERATOR % len(PACK_ROUNDS)]
        draw = self.random
        faults = StoreFaults(
            lost_request=draw.choice((0, 0, 0.01)),
            lost_answer=draw.choice((0, 0.01, 0.05)),
            conflict=draw.choice((0, 0, 0.02)),
            late=draw.choice((0, 0.01, 0.03)),
            slow=draw.choice((0, 0.02, 0.1, 0.3)),
            twice=draw.choice((0, 0, 0.02)),
            latency_s=draw.choice((0.002, 0.02, 0.1)),
        )
        self.store = SimulatedStore(random.Random(draw.random()), faults)
        self.checkpoint_s = draw.choice((0.3, 1.0, 5.0))
        self.garbage_s = draw.choice((0.5, 2.0, 10.0))
        self.merged_bytes_max = draw.choice((100, 1000, 4000))
        self.compaction_s = draw.choice((0.3, 1.0, 3.0))
        self.delete_retention_ms = draw.choice((0, 1000, 10_000))
        self.compactors: dict[str, CompactorPlace] = {}
        self.client_pause_s = draw.choice((0.05, 0.05, 0.5))
        self.repeats_loads = draw.random() < 0.2
        self.places: dict[str, Place] = {}
        self.log: list[str] = []
        self.acknowledged: dict[tuple[int, int], str] = {}  # the session by partition and epoch

    def tell(self, text: str) -> None:
        self.log.append(f"{self.loop.time():9.3f} {text}")

    def start_node(self, name: str) -> None:
        process, store = Process(self.loop, name), self.store.client()
        node = SimulatedNode(name, store, self.environment(), COUNTS, self._note_acknowledged)
        node.is_exclusive = self.is_exclusive
        node.repeats_loads = self.repeats_loads
        self.places[name] = Place(node, process, store)
        process.start(node.run())
        process.start(compact_owned(node, self._compaction_place(store), self._cleaner_settings(), self.loop.time))
        self.tell(f"{name} starts")

    def start_compactor(self, name: str) -> None:
        process, store, draw = Process(self.loop, name), self.store.client(), random.Random(self.random.random())
        compactor = SimulatedCompactor(self._compaction_place(store), PARTITIONS, draw, self.compaction_s)
        self.compactors[name] = CompactorPlace(compactor, process)
        process.start(compactor.run())

    def _compaction_place(self, store: NodeStore) -> CompactionPlace:
        draw = random.Random(self.random.random())

        def settings() -> CompactionSettings:
            now_ms = round(1000 * self.loop.time())
            ratio = draw.choice((-1.0, -1.0, 0.5))
            return CompactionSettings(now_ms, "simulated", ratio, self.delete_retention_ms, 1000, fast=False)

        return CompactionPlace(store, settings, lambda: draw.getrandbits(64).to_bytes(8, "big"))

    def _cleaner_settings(self) -> Settings:
        return Settings(log_cleaner_backoff_ms=round(3000 * self.compaction_s))

    def environment(self) -> SessionEnvironment:
        """The clock of a node runs up to 4 % too fast or too slow."""
        rate, draw = self.random.uniform(0.96, 1.04), random.Random(self.random.random())
        return SessionEnvironment(
            ttl_s=TTL_S,
            checkpoint_interval_s=self.checkpoint_s,
            pack_rounds=self.pack_rounds,
            continuity_interval_s=self.checkpoint_s,
            garbage_interval_s=self.garbage_s,
            now=lambda: self.loop.time() * rate,
            sleep=lambda seconds: asyncio.sleep(seconds / rate),
            token=lambda: draw.getrandbits(64).to_bytes(8, "big"),
        )

    def _note_acknowledged(self, session: str, partition: int, epoch: int) -> None:
        owner = self.acknowledged.setdefault((partition, epoch), session)
        if owner != session:
            raise Violation(f"{session} and {owner} both acknowledge partition {partition} with epoch {epoch}")

    async def ask(self, name: str, request: Callable[[SimulatedNode], Coroutine[Any, Any, T]]) -> T | None:
        """The answer of a node; None if none comes in time. A frozen node answers late, a dead one never."""
        place = self.places[name]
        if place.process.is_dead:
            return None
        task = place.process.start(request(place.node))
        done, _ = await asyncio.wait({task}, timeout=REQUEST_TIMEOUT_S)
        return task.result() if done else None

    def check(self) -> None:
        """What holds at any time. Raises Violation."""
        for name, place in self.places.items():
            if place.node.damages:
                raise Violation(f"{name} refuses partitions as damaged: {place.node.damages}")
        for name, compactor_place in self.compactors.items():
            if compactor_place.compactor.damages:
                raise Violation(f"{name} finds damage: {compactor_place.compactor.damages}")
        keys = sorted(key for key in self.store.values if key.startswith(REGISTER))
        versions = [number_of(key) for key in keys]
        if versions and versions != list(range(versions[0], versions[-1] + 1)):
            raise Violation(f"versions of the register are missing: {versions}")
        for error in self.loop.errors:
            raise Violation(f"an error nobody handled: {error}")

    def owners(self) -> dict[int, list[str]]:
        """The nodes that serve each partition now."""
        serving = {partition: list[str]() for partition in range(PARTITIONS)}
        for name, place in self.places.items():
            if not (place.process.is_dead or place.process.is_frozen):
                for partition in place.node.values:
                    if place.node.read(partition, b"") is not None:
                        serving[partition].append(name)
        return serving

    def newest_register(self) -> Register:
        return decode_register(self.store.values[max(key for key in self.store.values if key.startswith(REGISTER))])


class Client:
    """Increases one number of a partition. ``sent`` and ``acknowledged`` are its values."""

    def __init__(self, cluster: Cluster, partition: int, number: int) -> None:
        self.partition = partition
        self.key = b"%d" % number
        self.sent = self.acknowledged = 0
        self._cluster = cluster
        self._random = random.Random(cluster.random.random())
        self._believed = ""

    async def run(self) -> None:
        """Commit, to the node that has acknowledged last."""
        while True:
            if self._believed not in self._cluster.places:
                self._believed = self._random.choice(list(self._cluster.places))
            self.sent += 1
            value = self.sent
            answer = await self._cluster.ask(self._believed, partial(self._commit, value))
            if answer:
                self.acknowledged = value
            else:
                self._believed = ""
            await asyncio.sleep(self._cluster.client_pause_s * (1 + 4 * self._random.random()))

    async def commit_to(self, name: str) -> bool:
        """Commit to one node, without a second attempt."""
        self.sent += 1
        return bool(await self._cluster.ask(name, partial(self._commit, self.sent)))

    async def _commit(self, value: int, node: SimulatedNode) -> bool:
        return await node.commit(self.partition, self.key, value)

    def read(self, name: str) -> None:
        """Read it from a node that runs. Raises Violation if the answer is older than what was acknowledged before."""
        self._compare(name, self._cluster.places[name].node.read(self.partition, self.key), self.acknowledged)

    async def ask(self, name: str) -> None:
        """Read it from a node that may be frozen, and answers when it runs again. Raises Violation."""
        least = self.acknowledged
        self._compare(name, await self._cluster.ask(name, self._read), least)

    def _compare(self, name: str, value: int | None, least: int) -> None:
        if value is not None and not least <= value <= self.sent:
            raise Violation(
                f"{name} reads {value} of partition {self.partition}, key {self.key!r}; "
                f"acknowledged: {least}, sent: {self.sent}"
            )

    async def _read(self, node: SimulatedNode) -> int | None:
        return node.read(self.partition, self.key)


class Reader:
    """Asks each node for the numbers that it serves, again and again: a node that was replaced must not answer."""

    def __init__(self, cluster: Cluster, names: list[str], clients: list[Client]) -> None:
        self._cluster = cluster
        self._clients = clients
        self._random = random.Random(cluster.loop.seed)
        self._choices = {name: random.Random(cluster.random.random()) for name in names}
        self._asked: dict[str, asyncio.Task[None]] = {}  # by the name of a node that was frozen

    async def run(self) -> None:
        while True:
            for name, place in self._cluster.places.items():
                if name in self._asked:
                    self._end_asking(name)
                elif place.process.is_frozen:
                    client = self._choices[name].choice(self._clients)
                    self._asked[name] = self._cluster.loop.create_task(client.ask(name))
                elif not place.process.is_dead:
                    for client in self._clients:
                        client.read(name)
            await asyncio.sleep(0.1 * self._random.random())

    def _end_asking(self, name: str) -> None:
        if self._asked[name].done():
            self._asked.pop(name).result()


Fault = Callable[[str], Awaitable[None]]
"""Takes the name of a node, and returns when the node is well again."""


class Faults:
    """Freezes, kills and cuts nodes, lets them leave and come back. An operator drains some and seals others."""

    def __init__(self, cluster: Cluster, names: list[str]) -> None:
        self._cluster = cluster
        self._names = names
        self._random = random.Random(cluster.random.random())
        freeze, kill, cut, leave = self._freeze, self._kill, self._cut, self._leave
        mixes: list[list[Fault]] = [[freeze, freeze, kill, cut, leave], [leave, leave, freeze], [freeze, cut]]
        self._kinds = self._random.choice(mixes)
        if cluster.has_operator:
            self._kinds += [self._drain, self._drain, self._seal]
        self._rate = self._random.choice((0.6, 1.0, 2.0))

    async def run(self) -> None:
        end_s = self._cluster.loop.time() + FAULTS_S
        while self._cluster.loop.time() < end_s:
            await asyncio.sleep(self._random.expovariate(self._rate))
            name, kind = self._random.choice(self._names), self._random.choice(self._kinds)
            asyncio.get_running_loop().create_task(self._hit(name, kind))
        while any(self._is_hit(name) for name in self._names):
            await asyncio.sleep(0.1)

    def _is_hit(self, name: str) -> bool:
        place = self._cluster.places.get(name)
        return place is None or place.process.is_dead or place.process.is_frozen or place.store.is_cut

    async def _hit(self, name: str, kind: Fault) -> None:
        if not self._is_hit(name):
            self._cluster.tell(f"{name}: {kind.__name__.strip('_')}")
            await kind(name)

    def _silence_s(self) -> float:
        """Often about as long as the others wait before they declare the node dead."""
        return self._random.choice((self._random.uniform(0.2, 5.0), self._random.uniform(0.9, 1.5) * TTL_S))

    async def _freeze(self, name: str) -> None:
        process = self._cluster.places[name].process
        process.freeze()
        await asyncio.sleep(self._silence_s())
        if not process.is_dead:
            process.thaw()

    async def _kill(self, name: str) -> None:
        self._cluster.places[name].process.kill()
        await asyncio.sleep(self._random.uniform(0.1, 3.0))
        self._cluster.start_node(name)

    async def _cut(self, name: str) -> None:
        store = self._cluster.places[name].store
        store.is_cut = True
        await asyncio.sleep(self._silence_s())
        store.is_cut = False

    async def _leave(self, name: str) -> None:
        place = self._cluster.places[name]
        left = place.process.start(place.node.leave())
        await asyncio.wait({left}, timeout=5)
        while place.process.is_frozen and not place.process.is_dead:
            await asyncio.sleep(0.1)
        if place.process.is_dead:
            return
        place.process.kill()
        self._cluster.start_node(name)

    async def _drain(self, name: str) -> None:
        """Its session may end meanwhile. Another one of the same process begins drained."""
        await self._operate(name, partial(Operator.set_draining, is_draining=True))
        await asyncio.sleep(self._random.uniform(0.2, 4.0))
        await self._operate(name, partial(Operator.set_draining, is_draining=False))

    async def _seal(self, name: str) -> None:
        await self._operate(name, partial(Operator.seal, counter=None))

    async def _operate(self, name: str, change: Callable[..., Awaitable[object]]) -> None:
        """By a command on a machine of its own, until it is done."""
        cluster = self._cluster
        store = PatientStore(cluster.store.client())
        operator = Operator(store, cluster.environment())
        if await newest_register(store) is not None:
            sessions = [session for session, node in (await operator.read()).nodes.items() if node.name == name]
            for session in sessions:
                await change(operator, session)


async def disturb_compactors(cluster: Cluster, names: list[str]) -> None:
    """They sleep, often for so long that the versions they have read are deleted, or die and start again."""
    draw = random.Random(cluster.random.random())
    while True:
        await asyncio.sleep(draw.expovariate(0.7))
        name = draw.choice(names)
        process = cluster.compactors[name].process
        if draw.random() < 0.3:
            process.kill()
            cluster.start_compactor(name)
            continue
        process.freeze()
        await asyncio.sleep(draw.choice((0.3, 2.0, 8.0)) * draw.random())
        process.thaw()


async def _run(cluster: Cluster) -> None:
    names = [f"n{number}" for number in range(cluster.random.choice((2, 3, 3, 4)))]
    for name in names:
        cluster.start_node(name)
        await asyncio.sleep(cluster.random.choice((0.0, 0.3)))
    loop = cluster.loop
    clients = [Client(cluster, partition, number) for partition in range(PARTITIONS) for number in range(2)]
    tasks = [loop.create_task(client.run()) for client in clients]
    tasks.append(loop.create_task(Reader(cluster, names, clients).run()))
    compactors = [f"c{number}" for number in range(cluster.random.choice((1, 2, 3)))]
    for name in compactors:
        cluster.start_compactor(name)
    tasks.append(loop.create_task(disturb_compactors(cluster, compactors)))
    tasks.append(loop.create_task(Faults(cluster, names).run()))
    await _until_done(cluster, tasks)
    cluster.store.faults = StoreFaults()
    await _until(cluster, tasks, loop.time() + CALM_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    serving = cluster.owners()
    if any(len(nodes) != 1 for nodes in serving.values()):
        raise Violation(f"after {CALM_S} s without faults partitions are served by {serving}")
    register = cluster.newest_register()
    absent = [name for name in names if not any(node.name == name for node in register.nodes.values())]
    if absent:
        raise Violation(f"after {CALM_S} s without faults {absent} take no part")
    for client in clients:
        client.read(serving[client.partition][0])
    await check_commits(cluster, clients, serving)
    if len(names) > 2 and cluster.random.random() < SLOW_LOADS:
        await check_watching(cluster, TTL_S)


async def _until_done(cluster: Cluster, tasks: list[asyncio.Task[None]]) -> None:
    """Until the last task, that of the faults, is done."""
    while not tasks[-1].done():
        await _check_all(cluster, tasks)


async def _until(cluster: Cluster, tasks: list[asyncio.Task[None]], end_s: float) -> None:
    while cluster.loop.time() < end_s:
        await _check_all(cluster, tasks)


async def _check_all(cluster: Cluster, tasks: list[asyncio.Task[None]]) -> None:
    await asyncio.sleep(0.25)
    cluster.check()
    for task in tasks:
        if task.done():
            task.result()


def simulate(seed: int, *, is_exclusive: bool = False) -> Cluster:
    """Run one seed. Raises Violation, with what happened."""
    loop = VirtualLoop(seed)
    loop.set_exception_handler(lambda _, context: loop.errors.append(context))
    cluster = Cluster(loop, seed, is_exclusive)
    merged_bytes_max, manifest.MERGED_BYTES_MAX = manifest.MERGED_BYTES_MAX, cluster.merged_bytes_max
    try:
        loop.run_until_complete(_run(cluster))
        cluster.check()
        check_owners(cluster)
        check_seals(cluster)
    except Violation as violation:
        history = "\n".join(cluster.log)
        raise Violation(f"seed {seed}: {violation}\n{history}\n{cluster.newest_register()}") from None
    finally:
        manifest.MERGED_BYTES_MAX = merged_bytes_max
        loop.end()
    return cluster
