"""``callboard cluster status``: what a cluster consists of. It only reads, so it works with and without nodes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ....actors.text import format_count
from ...cluster.garbage import MANIFESTS_KEPT
from ...cluster.keys import (
    MANIFESTS,
    REGISTER,
    ROUNDS,
    SEGMENTS,
    TOMBSTONES,
    alive_key,
    number_of,
    owner_of,
)
from ...cluster.manifest import Manifest, decode_manifest
from ...cluster.register import NodeEntry, Register
from ...cluster.session_environment import LOOKS_PER_TTL
from ...cluster.store import Store
from ...log.partition import partition_name
from ..tables import Column, Table, format_number

NODE_COLUMNS = (
    Column("name", "node"),
    Column("node_id", "id", is_number=True),
    Column("state", "state"),
    Column("address", "address"),
    Column("offsets_partitions", "offsets", is_number=True),
    Column("transactions_partitions", "transactions", is_number=True),
    Column("beat_age_ms", "last beat, ms", is_number=True),
    Column("wal_rounds", "WAL rounds", is_number=True),
    Column("session", "session"),
)


class NodeStatus(NamedTuple):
    """``state``: active, or draining.

    ``beat_age_ms``: since the last sign of life that was seen; None if there was none in a whole session timeout.
    """

    name: str
    node_id: int
    state: str
    address: str
    offsets_partitions: int
    transactions_partitions: int
    beat_age_ms: int | None
    wal_rounds: int
    session: str
    version: str


class Garbage(NamedTuple):
    """What nodes will delete. ``sessions`` have ended; ``rounds`` are theirs. Tombstones and seals stay for ever."""

    sessions: int
    rounds: int
    manifests: int
    segments: int


class ClusterStatus(NamedTuple):
    """``without_owner`` and ``not_loaded``: names of partitions. ``tails``: how many go on in the WAL of a session.

    ``damage``: why no node serves, "" if they may.
    """

    cluster_id: str
    register_version: int
    session_timeout_ms: int
    partitions: tuple[int, int]
    nodes: Sequence[NodeStatus]
    without_owner: Sequence[str]
    not_loaded: Sequence[str]
    tails: Mapping[str, int]
    segments: int
    segment_bytes: int
    tombstones: int
    garbage: Garbage
    damage: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            **self._asdict(),
            "nodes": [node._asdict() for node in self.nodes],
            "garbage": self.garbage._asdict(),
        }

    def facts(self) -> Iterable[tuple[str, str]]:
        """The lines above the table of nodes."""
        yield "cluster", self.cluster_id
        yield "register", f"version {self.register_version}"
        if self.damage:
            yield "damage", self.damage
        yield "session timeout", f"{format_number(self.session_timeout_ms)} ms"
        yield "partitions", f"{self.partitions[0]} of offsets, {self.partitions[1]} of transactions"
        yield "without an owner", _names(self.without_owner)
        yield "not loaded yet", _names(self.not_loaded)
        yield "content", f"{format_count(self.segments, 'segment')}, {format_count(self.segment_bytes, 'byte')}"
        gone = self.garbage
        counts = ((gone.rounds, "WAL round"), (gone.manifests, "manifest"), (gone.segments, "segment"))
        texts = ", ".join(format_count(number, unit) for number, unit in counts)
        yield "garbage", f"{texts}; {format_count(gone.sessions, 'session')} ended"

    def node_table(self) -> Table:
        fields = [column.key for column in NODE_COLUMNS]
        return Table(NODE_COLUMNS, [[getattr(node, name) for name in fields] for node in self.nodes])


async def read_status(store: Store, register: Register) -> ClusterStatus:
    """``store`` is patient. Takes up to one session timeout, to see which sessions live."""
    beats = asyncio.create_task(beat_ages(store, list(register.nodes), register.session_timeout_ms / 1000))
    manifest_keys, segment_keys, round_keys, tombstones, versions = await asyncio.gather(
        *(store.list(prefix) for prefix in (MANIFESTS, SEGMENTS, ROUNDS, TOMBSTONES, REGISTER))
    )
    manifests = await _read_manifests(store, manifest_keys)
    newest = {manifest.partition: manifest for manifest in manifests}  # in the order of their versions
    rounds = Counter(map(owner_of, round_keys))
    ages = await beats
    return ClusterStatus(
        cluster_id=register.cluster_id,
        register_version=max(register.version, *map(number_of, versions)),
        session_timeout_ms=register.session_timeout_ms,
        partitions=(register.counts.offsets, register.counts.transactions),
        nodes=[_node(register, session, ages[session], rounds[session]) for session in register.nodes],
        without_owner=partition_names(register, register.without_owner()),
        not_loaded=partition_names(register, _not_loaded(register, newest)),
        tails=Counter(manifest.tail.session for manifest in newest.values() if manifest.tail is not None),
        segments=sum(len(manifest.segments) for manifest in newest.values()),
        segment_bytes=sum(segment.size for manifest in newest.values() for segment in manifest.segments),
        tombstones=len(tombstones),
        garbage=_garbage(register, manifests, manifest_keys, segment_keys, rounds),
        damage=register.damage,
    )


async def beat_ages(store: Store, sessions: Sequence[str], ttl_s: float) -> Mapping[str, float | None]:
    """Seconds since the last sign of life of each session, seen by looking again and again for at most a TTL."""
    keys = [alive_key(session) for session in sessions]
    started_s, last = time.monotonic(), await store.get(keys)
    seen_s: dict[str, float] = {}
    while len(seen_s) < len(sessions) and time.monotonic() - started_s < ttl_s:
        await asyncio.sleep(ttl_s / LOOKS_PER_TTL)
        counters = await store.get(keys)
        for session, before, now in zip(sessions, last, counters, strict=True):
            if now is not None and now != before:
                seen_s[session] = time.monotonic()
        last = counters
    ended_s = time.monotonic()
    return {session: ended_s - seen_s[session] if session in seen_s else None for session in sessions}


async def _read_manifests(store: Store, keys: Sequence[str]) -> list[Manifest]:
    """Those that are still there, by partition and version."""
    values = zip(keys, await store.get(keys), strict=True)
    return [decode_manifest(int(owner_of(key)), number_of(key), data) for key, data in values if data is not None]


def _node(register: Register, session: str, beat_age_s: float | None, rounds: int) -> NodeStatus:
    node, owned, offsets = register.nodes[session], register.owned(session), register.counts.offsets
    of_offsets = sum(partition < offsets for partition in owned)
    age_ms = None if beat_age_s is None else round(1000 * beat_age_s)
    counts = of_offsets, len(owned) - of_offsets
    state = "draining" if node.is_draining else "active"
    return NodeStatus(node.name, node.node_id, state, addresses(node), *counts, age_ms, rounds, session, node.version)


def addresses(node: NodeEntry) -> str:
    return ",".join(f"{listener}://{host}:{port}" for listener, (host, port) in node.endpoints.items())


def _not_loaded(register: Register, newest: Mapping[int, Manifest]) -> list[int]:
    """Partitions whose owner has not written a manifest yet."""
    return [
        partition
        for partition, (owner, epoch) in enumerate(zip(register.owners, register.epochs, strict=True))
        if owner in register.nodes and (partition not in newest or newest[partition].epoch != epoch)
    ]


def partition_names(register: Register, partitions: Iterable[int]) -> list[str]:
    """Names like __consumer_offsets-7."""
    return [partition_name(partition, register.counts) for partition in partitions]


def _garbage(
    register: Register,
    manifests: Sequence[Manifest],
    manifest_keys: Sequence[str],
    segment_keys: Sequence[str],
    rounds: Mapping[str, int],
) -> Garbage:
    """The last round of a session that has ended is its seal."""
    ended = [number for session, number in rounds.items() if session not in register.nodes]
    named = {segment.key for manifest in manifests for segment in manifest.segments}
    versions = Counter(map(owner_of, manifest_keys))
    return Garbage(
        sessions=len(ended),
        rounds=sum(number - 1 for number in ended),
        manifests=sum(max(0, number - MANIFESTS_KEPT) for number in versions.values()),
        segments=sum(key not in named for key in segment_keys),
    )


def _names(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{len(names)}{shown and ': '}{shown}{more}"
