"""``callboard cluster drain``: a node gives its partitions to the others, and takes none."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from ....actors.text import format_count
from ...cluster.manifest import newest_manifest
from ...cluster.operator import Operator
from ...cluster.register import Register
from ...cluster.store import Store
from .errors import CommandFailed
from .nodes import environment_of, session_of

LOOK_S = 0.1


async def drain(store: Store, register: Register, node: str, timeout_s: float) -> str:
    """Returns what was done, when all partitions of the node are served by others. Raises CommandFailed."""
    environment = environment_of(register)
    operator, session = Operator(store, environment), session_of(register, node)
    started_s = environment.now()
    given = (await operator.read()).owned(session)

    def check(newest: Register) -> None:
        if newest.taking() == [session]:
            raise CommandFailed(f"no other node takes partitions than {node}; start one first, or end another drain")

    await operator.set_draining(session, True, check)
    register = await operator.read()
    while register.owned(session) or not await _is_served(store, register, given):
        if environment.now() - started_s > timeout_s:
            left = format_count(len(register.owned(session)), "partition")
            raise CommandFailed(
                f"{node} still owns {left} after {timeout_s:g} s, or others do not serve what it gave them; "
                "if it lives, it goes on: see callboard cluster status"
            )
        await asyncio.sleep(LOOK_S)
        register = await operator.read()
    seconds = environment.now() - started_s
    return f"{node} owns nothing: others serve its {format_count(len(given), 'partition')} after {seconds:.1f} s"


async def undo_drain(store: Store, register: Register, node: str) -> str:
    session = session_of(register, node)
    if not register.nodes[session].is_draining:
        return f"{node} was not drained"
    await Operator(store, environment_of(register)).set_draining(session, False)
    return f"{node} takes partitions again"


async def _is_served(store: Store, register: Register, partitions: Collection[int]) -> bool:
    """Whether the owners of these partitions have begun to serve them."""
    manifests = await asyncio.gather(*(newest_manifest(store, partition) for partition in partitions))
    return all(manifest.epoch == register.epochs[manifest.partition] for manifest in manifests)
