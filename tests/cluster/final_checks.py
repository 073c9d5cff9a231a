"""What a simulated cluster must be able to do after a time without faults, and what its store must have then."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from callboard.runtime.cluster.keys import FLOORS, REGISTER, ROUNDS, number_of, owner_of, round_key
from callboard.runtime.cluster.register import NOBODY, decode_register
from callboard.runtime.cluster.wal import decode_round

from .violation import Violation

if TYPE_CHECKING:
    from .simulated_cluster import Client, Cluster

LOAD_S = 3.0
NOTICED_S = 1.5
"""A death is noticed so many TTLs later: clocks differ by 8 %, and nodes look eight times per TTL."""
LOADING_SINCE_TTLS = 1.4
"""So long after a death the other nodes are loading."""


async def check_commits(cluster: Cluster, clients: Iterable[Client], serving: dict[int, list[str]]) -> None:
    """Each partition's node acknowledges commits. Its lease alone does not say that it can write."""
    for client in clients:
        if not await client.commit_to(serving[client.partition][0]):
            raise Violation(f"{serving[client.partition][0]} serves partition {client.partition} and commits nothing")


async def check_watching(cluster: Cluster, ttl_s: float) -> None:
    """A node dies, and another one while the rest load what the first one had. Loads last longer than a TTL."""
    names = sorted({session.partition("-")[0] for session in _members(cluster)})
    if len(names) < 3:
        return  # one has left for good
    for place in cluster.places.values():
        place.node.load_s = LOAD_S
    first, second, *_ = names
    _kill(cluster, first)
    await asyncio.sleep(LOADING_SINCE_TTLS * ttl_s)
    sessions = _kill(cluster, second)
    await asyncio.sleep(NOTICED_S * ttl_s)
    if sessions & _members(cluster):
        raise Violation(f"{second} has been dead for {NOTICED_S * ttl_s} s and is still in the register")


def check_owners(cluster: Cluster) -> None:
    """In each version of the register, each partition belongs to one of its nodes."""
    for key, data in cluster.store.values.items():
        if key.startswith(REGISTER):
            register = decode_register(data)
            strangers = set(register.owners) - (register.nodes.keys() or {NOBODY})
            if strangers:
                raise Violation(f"in {key} partitions belong to {sorted(strangers)}, and they are not among the nodes")


def check_seals(cluster: Cluster) -> None:
    """A WAL that is sealed ends at its floor or above: below, a round that lands late could be the end."""
    values = cluster.store.values
    floors, ends = dict[str, int](), dict[str, int]()
    for key in values:
        for prefix, numbers in ((FLOORS, floors), (ROUNDS, ends)):
            if key.startswith(prefix):
                numbers[owner_of(key)] = max(numbers.get(owner_of(key), 0), number_of(key))
    for session, end in ends.items():
        if decode_round(values[round_key(session, end)]).is_seal and end < floors.get(session, 0):
            raise Violation(f"the WAL of {session} is sealed at {end}, below its floor {floors[session]}")


def _kill(cluster: Cluster, name: str) -> set[str]:
    """Returns its sessions."""
    cluster.places[name].process.kill()
    cluster.tell(f"{name}: kill, while loads are slow")
    return {session for session in _members(cluster) if session.startswith(f"{name}-")}


def _members(cluster: Cluster) -> set[str]:
    """The sessions of the newest register."""
    values = cluster.store.values
    return set(decode_register(values[max(key for key in values if key.startswith(REGISTER))]).nodes)
