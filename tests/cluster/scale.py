"""``python -m cluster.scale``: many nodes of the protocol's code on a simulated store, in virtual time.

Nodes start, some are killed and start again, a tenth of them is killed at once, and all are restarted one after the
other. It prints for each stage how many operations of the store there are, how fast partitions are served again, how
often the register changes, and how partitions are distributed. Partitions are empty: groups and their commits cost the
same on one node as on many, see docs/scale.md.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import lru_cache, partial
from statistics import median
from typing import NamedTuple

import pytest

from callboard.runtime.cluster import handover, register_log
from callboard.runtime.cluster.keys import REGISTER
from callboard.runtime.cluster.register import Register, decode_register, planned_owners
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.testing.simulation.loop import Process, VirtualLoop

from .operation_costs import print_operation_costs
from .register_costs import print_register_costs
from .scale_store import ScaleStore
from .simulated_node import SimulatedNode

POLL_S = 0.05
TRANSACTIONS = 50
RESTART_S = 3.0
GIVE_UP_S = 120.0
KINDS = ("get", "put", "create", "list", "delete")


class Size(NamedTuple):
    """``minutes``: virtual ones. The stages share them."""

    nodes: int = 200
    partitions: int = 1000
    minutes: float = 10.0
    ttl_s: float = 1.5
    latency_s: float = 0.003


class Stage(NamedTuple):
    """``times_s``: until the partitions of a node were served again, one for each node that was killed or restarted."""

    name: str
    seconds: float
    counts: Counter[str]
    changes: int
    moved: int
    register_bytes: int
    least: int
    most: int
    times_s: Sequence[float]


class Scale:
    """``nodes`` by name, with their processes."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.counts = PartitionCounts(size.partitions, min(TRANSACTIONS, size.partitions))
        self.loop = VirtualLoop(1)
        self.store = ScaleStore(random.Random(2), size.latency_s)
        self.nodes: dict[str, tuple[SimulatedNode, Process]] = {}
        self.stages: list[Stage] = []
        self._random = random.Random(3)

    def start_node(self, name: str) -> None:
        process = Process(self.loop, name)
        node = SimulatedNode(name, self.store.client(), self._environment(), self.counts, lambda *_: None)
        self.nodes[name] = node, process
        process.start(node.run())

    def _environment(self) -> SessionEnvironment:
        draw = random.Random(self._random.random())
        return SessionEnvironment(
            ttl_s=self.size.ttl_s,
            now=self.loop.time,
            sleep=asyncio.sleep,
            token=lambda: draw.getrandbits(64).to_bytes(8, "big"),
        )

    # What there is ---------------------------------------------------------------------------------------------------

    def register(self) -> Register | None:
        keys = self.store.list(REGISTER, "")
        return decode_register(self.store.values[keys[-1]]) if keys else None

    def served(self) -> Counter[int]:
        """How many living nodes serve each partition."""
        living = [node for node, process in self.nodes.values() if not process.is_dead]
        return Counter(partition for node in living for partition in node.values)

    def is_balanced(self) -> bool:
        register = self.register()
        if register is None or len(register.nodes) < len(self.nodes):
            return False
        is_planned = list(register.owners) == planned_owners(register)
        return is_planned and len(self.served()) == sum(self.counts)

    def are_served(self, partitions: Collection[int]) -> bool:
        served = self.served()
        return all(partition in served for partition in partitions)

    async def until(self, condition: Callable[[], bool]) -> float:
        """How long it took, in virtual seconds. Raises TimeoutError."""
        started_s = self.loop.time()
        while not condition():
            if self.loop.time() - started_s > GIVE_UP_S:
                raise TimeoutError(f"not within {GIVE_UP_S} virtual seconds")
            await asyncio.sleep(POLL_S)
        return self.loop.time() - started_s

    # Stages ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """The stages; what remains of the minutes is idle."""
        end_s = self.loop.time() + 60 * self.size.minutes
        await self._stage("all nodes start within 10 s", self._start_all)
        await self._stage("nothing happens for 30 s", self._idle)
        await self._stage("ten nodes are killed, one after the other", self._kill_some)
        await self._stage("a tenth of the nodes is killed at once", self._kill_many)
        await self._stage("a rolling restart of all nodes", self._restart_all)
        await self._stage("nothing happens until the end", partial(self._end, end_s))

    async def _stage(self, name: str, work: Callable[[], Awaitable[Sequence[float]]]) -> None:
        counts, before, started_s = self.store.counts.copy(), self.register(), self.loop.time()
        times_s = await work()
        after = self.register()
        assert after is not None
        epochs = before.epochs if before is not None else (0,) * len(after.epochs)
        owned = Counter(after.owners).values()
        stage = Stage(
            name,
            self.loop.time() - started_s,
            self.store.counts - counts,
            after.version - (before.version if before is not None else 0),
            sum(after.epochs) - sum(epochs),
            len(after.encode()),
            min(owned),
            max(owned),
            times_s,
        )
        self.stages.append(stage)
        print_stage(stage, self.size.nodes)

    async def _start_all(self) -> Sequence[float]:
        started_s = self.loop.time()
        for number in range(self.size.nodes):
            self.start_node(f"n{number:04d}")
            await asyncio.sleep(10 / self.size.nodes)
        await self.until(self.is_balanced)
        return [self.loop.time() - started_s]

    async def _idle(self, seconds: float = 30.0) -> Sequence[float]:
        await asyncio.sleep(max(seconds, 1.0))
        return []

    async def _end(self, end_s: float) -> Sequence[float]:
        """The node that was restarted last gets its partitions back."""
        await self.until(self.is_balanced)
        return await self._idle(end_s - self.loop.time())

    async def _kill_some(self) -> Sequence[float]:
        times_s = []
        for name in self._random.sample(sorted(self.nodes), min(10, self.size.nodes // 2)):
            times_s.append(await self._kill([name]))
            await self._start_again([name])
        return times_s

    async def _kill_many(self) -> Sequence[float]:
        names = self._random.sample(sorted(self.nodes), max(1, self.size.nodes // 10))
        time_s = await self._kill(names)
        await self._start_again(names)
        return [time_s]

    async def _kill(self, names: Collection[str]) -> float:
        partitions = [partition for name in names for partition in self.nodes[name][0].values]
        for name in names:
            self.nodes[name][1].kill()
        return await self.until(lambda: self.are_served(partitions))

    async def _start_again(self, names: Collection[str]) -> None:
        await asyncio.sleep(RESTART_S)
        for name in names:
            self.start_node(name)
        await self.until(self.is_balanced)

    async def _restart_all(self) -> Sequence[float]:
        return [await self._restart(name) for name in sorted(self.nodes)]

    async def _restart(self, name: str) -> float:
        """It leaves, and starts again at once. Returns how long its partitions were not served."""
        node, process = self.nodes[name]
        partitions = list(node.values)
        left = process.start(node.leave())
        await self.until(lambda: not node.values)
        time_s = await self.until(lambda: self.are_served(partitions))
        await asyncio.wait({left})
        process.kill()
        self.start_node(name)
        await asyncio.sleep(2 * POLL_S)
        return time_s


def run(size: Size) -> Scale:
    """All nodes are in this process, so what they would compute from one register is computed once."""
    loop_error: list[dict[str, object]] = []
    scale = Scale(size)
    scale.loop.set_exception_handler(lambda _, context: loop_error.append(context))
    plans: dict[str, list[str]] = {}

    def planned_once(register: Register) -> list[str]:
        if register.token not in plans:
            plans.clear()
            plans[register.token] = planned_owners(register)
        return plans[register.token]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handover, "planned_owners", planned_once)
        patch.setattr(register_log, "decode_register", lru_cache(maxsize=20)(decode_register))
        try:
            scale.loop.run_until_complete(scale.run())
        finally:
            scale.loop.end()
    if loop_error:
        raise RuntimeError(f"an error nobody handled: {loop_error[0]}")
    return scale


def print_stage(stage: Stage, nodes: int) -> None:
    print(f"{stage.name}: {stage.seconds:.0f} s")
    each = ", ".join(f"{kind} {stage.counts[kind] / stage.seconds / nodes:.2f}" for kind in KINDS)
    total = sum(stage.counts[kind] for kind in KINDS) / stage.seconds
    print(f"  store operations: {total:,.0f}/s; per node and second: {each}")
    read, written = stage.counts["bytes read"], stage.counts["bytes written"]
    print(
        f"  keys read {stage.counts['keys read'] / stage.seconds:,.0f}/s; "
        f"{read / stage.seconds / 1e6:.2f} MB/s read, {written / stage.seconds / 1e6:.2f} MB/s written"
    )
    print(
        f"  register: {stage.register_bytes:,} bytes, {stage.changes} changes; {stage.moved} partitions moved; "
        f"{stage.least} to {stage.most} partitions per node"
    )
    if stage.times_s:
        print(f"  served again after: median {median(stage.times_s):.2f} s, longest {max(stage.times_s):.2f} s")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m cluster.scale", description=__doc__)
    default = Size()
    parser.add_argument("--nodes", type=int, default=default.nodes)
    parser.add_argument("--partitions", type=int, default=default.partitions)
    parser.add_argument("--minutes", type=float, default=default.minutes, help="virtual minutes, at least")
    parser.add_argument("--ttl", type=float, default=default.ttl_s, help="session timeout in seconds")
    parser.add_argument("--latency-ms", type=float, default=1000 * default.latency_s, help="of one store operation")
    parser.add_argument("--register", action="store_true", help="print what a change of the register costs, and end")
    parser.add_argument("--operations", metavar="URL", help="print the CPU time of operations of this store, and end")
    options = parser.parse_args(arguments)
    if options.operations:
        print_operation_costs(options.operations)
        return 0
    if options.register:
        print_register_costs()
        return 0
    logging.disable(logging.CRITICAL)
    started_s = time.process_time()
    size = Size(options.nodes, options.partitions, options.minutes, options.ttl, options.latency_ms / 1000)
    run(size)
    print(f"{time.process_time() - started_s:.0f} s of CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
