"""The size of the register, and what a change of it costs each node: ``python -m cluster.scale --register``."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from callboard.runtime.cluster.register import Endpoint, Register, decode_register, empty_register, planned_owners
from callboard.runtime.log.partition_counts import PartitionCounts

SIZES = ((3, 50), (10, 50), (100, 500), (200, 1000), (1000, 5000))
"""Nodes, and partitions of offsets; there are 50 of transactions."""
REPEATS = 5


def make_register(nodes: int, partitions: int) -> Register:
    register = empty_register(PartitionCounts(partitions, 50), "0" * 16, "c" * 22, 1500)
    for number in range(nodes):
        name = f"node-{number:04d}"
        endpoints = {"": Endpoint(f"{name}.example.org", 9092)}
        register = register.with_node(f"{name}-{number:016x}", name, endpoints, "1.0")
    return register.given(dict(enumerate(planned_owners(register))))


def milliseconds(work: Callable[[], object]) -> float:
    """The least of some attempts, in CPU time."""
    times_s = []
    for _ in range(REPEATS):
        started_s = time.process_time()
        work()
        times_s.append(time.process_time() - started_s)
    return 1000 * min(times_s)


def print_register_costs() -> None:
    print("| nodes | partitions | bytes | decode, ms | plan, ms | encode, ms |\n|---|---|---|---|---|---|")
    for nodes, partitions in SIZES:
        register = make_register(nodes, partitions)
        data = register.encode()
        times = (
            milliseconds(partial(decode_register, data)),
            milliseconds(partial(planned_owners, register)),
            milliseconds(register.encode),
        )
        print(f"| {nodes:,} | {partitions:,} + 50 | {len(data):,} | {' | '.join(f'{ms:.2f}' for ms in times)} |")
