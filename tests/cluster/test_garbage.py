"""What a collection of garbage deletes, what it leaves, and how many operations it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import pytest

from callboard.runtime.cluster.garbage import FIRST_PART, MANIFESTS_KEPT, READ_TOGETHER, GarbageCollector
from callboard.runtime.cluster.held_partitions import HeldPartitions
from callboard.runtime.cluster.keys import (
    MANIFESTS,
    PACKS,
    SEGMENTS,
    SESSIONS,
    alive_key,
    manifest_key,
    manifest_prefix,
    pack_key,
    round_key,
    segment_key,
    segment_prefix,
    wal_prefix,
)
from callboard.runtime.cluster.manifest import Manifest, Segment, create_manifest
from callboard.runtime.cluster.register import Endpoint
from callboard.runtime.cluster.register_log import RegisterLog
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.cluster.wal import WalWriter, seal
from callboard.runtime.log.partition_counts import PartitionCounts

from .memory_store import Memory, MemoryStore

SESSION, ENDED = "a", "b"
ENVIRONMENT = SessionEnvironment()
PARTITIONS = 4 * READ_TOGETHER + 2
VERSIONS = range(1, 7)
KEPT = VERSIONS[-MANIFESTS_KEPT:]
OPERATIONS = 12
"""The register, two lists, five reads of manifests, the tombstone, the deletion, and the list of sessions."""


class CountedStore(MemoryStore):
    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self.operations = 0
        self.listed: list[str] = []

    async def _turn(self) -> None:
        self.operations += 1
        await super()._turn()

    async def list(self, prefix: str, after: str = "") -> list[str]:
        self.listed.append(prefix)
        return await super().list(prefix, after)


async def _believe() -> None:
    """Nobody is declared dead here."""


class Collected:
    """A cluster in which a session has all partitions, with some versions of each and a lost segment for each."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.store = MemoryStore(self.memory)
        self.manifests: list[Manifest] = []

    async def begin(self) -> None:
        register = RegisterLog(self.store, ENVIRONMENT)
        await register.create(PartitionCounts(PARTITIONS, 0))
        endpoints = {"": Endpoint("n", 1)}
        await register.change(lambda current: current.with_node(SESSION, "n", endpoints, ""), _believe)
        for partition in range(PARTITIONS):
            for version in VERSIONS:
                key = segment_key(partition, version, "t")
                manifest = Manifest(partition, version, "m", 1, (Segment(key, 0, 1, 0, 0),))
                assert await create_manifest(self.store, manifest)
                self.memory.values |= {key: b"", segment_key(partition, version, "lost"): b""}
            self.manifests.append(manifest)

    async def collect(self, held: Collection[Manifest]) -> CountedStore:
        """By a session that holds these partitions."""
        store, partitions = CountedStore(self.memory), HeldPartitions()
        for manifest in held:
            partitions.hold(manifest)
        register = RegisterLog(store, ENVIRONMENT)
        await register.read()
        store.operations, store.listed = 0, []
        await GarbageCollector(store, ENVIRONMENT, SESSION, register, partitions).collect()
        return store

    def keys(self, prefix: str) -> Sequence[str]:
        return sorted(key for key in self.memory.values if key.startswith(prefix))


def test_collection_of_many_partitions_takes_few_operations_and_leaves_what_is_needed() -> None:
    async def run() -> None:
        collected = Collected()
        await collected.begin()
        store = await collected.collect(collected.manifests)
        assert store.operations <= OPERATIONS
        assert collected.keys(MANIFESTS) == [manifest_key(p, v) for p in range(PARTITIONS) for v in KEPT]
        assert collected.keys(SEGMENTS) == [segment_key(p, v, "t") for p in range(PARTITIONS) for v in KEPT]

    asyncio.run(run())


def test_collection_of_a_small_part_lists_its_own_partitions_only() -> None:
    async def run() -> None:
        collected = Collected()
        await collected.begin()
        store = await collected.collect(collected.manifests[3:4])
        assert store.listed == [manifest_prefix(3), segment_prefix(3), SESSIONS]
        assert collected.keys(manifest_prefix(3)) == [manifest_key(3, version) for version in KEPT]
        assert collected.keys(manifest_prefix(4)) == [manifest_key(4, version) for version in (0, *VERSIONS)]

    asyncio.run(run())


def test_manifests_from_the_one_on_that_the_next_checkpoint_follows_stay() -> None:
    async def run() -> None:
        collected = Collected()
        await collected.begin()
        await collected.collect([collected.manifests[0]._replace(version=2), *collected.manifests[1:]])
        assert collected.keys(manifest_prefix(0)) == [manifest_key(0, version) for version in VERSIONS[1:]]

    asyncio.run(run())


def test_nothing_of_an_ended_session_is_left_but_its_seal() -> None:
    async def run() -> None:
        collected = Collected()
        await collected.begin()
        wal = WalWriter(collected.store, ENDED)
        for number in range(3):
            await wal.append(b"", number.to_bytes(8, "big"))
        await seal(collected.store, ENDED, bytes(8))
        collected.memory.values |= {pack_key(ENDED, 0, 2): b"", alive_key(ENDED): b"1"}
        store = await collected.collect(collected.manifests)
        assert collected.keys(wal_prefix(ENDED)) == [round_key(ENDED, 3)]
        assert collected.keys(PACKS) == collected.keys(SESSIONS) == []
        assert (
            store.operations <= OPERATIONS + 7
        )  # the WAL, its end, the register, newest manifests, the packs, the deletion

    asyncio.run(run())


class JoiningStore(CountedStore):
    """When the sessions are listed, one that the register did not have has joined, has written, and was sealed."""

    async def list(self, prefix: str, after: str = "") -> list[str]:
        keys = await super().list(prefix, after)
        if prefix == SESSIONS:
            others = MemoryStore(self._memory)
            register = RegisterLog(others, ENVIRONMENT)
            await register.read()
            await register.change(lambda current: current.with_node(ENDED, "b", {"": Endpoint("b", 1)}, ""), _believe)
            await WalWriter(others, ENDED).append(b"", bytes(8))
            await seal(others, ENDED, bytes(8))
        return keys


def test_session_that_has_joined_since_the_register_was_read_keeps_its_rounds() -> None:
    """Nobody has taken its partitions, so only the rounds have what it has acknowledged."""

    async def run() -> None:
        collected = Collected()
        await collected.begin()
        collected.memory.values |= {alive_key(ENDED): b"1"}
        store = JoiningStore(collected.memory)
        register = RegisterLog(store, ENVIRONMENT)
        await GarbageCollector(store, ENVIRONMENT, SESSION, register, HeldPartitions()).collect()
        assert collected.keys(wal_prefix(ENDED)) == [round_key(ENDED, 0), round_key(ENDED, 1)]
        assert collected.keys(SESSIONS) == [alive_key(ENDED)]

    asyncio.run(run())


def test_first_collection_comes_early() -> None:
    """A session that ends within the interval leaves no garbage to the next one."""

    async def run() -> None:
        collected, slept_s = Collected(), list[float]()
        await collected.begin()

        async def sleep(seconds: float) -> None:
            slept_s.append(seconds)
            if len(slept_s) > 1:
                raise asyncio.CancelledError

        environment = SessionEnvironment(sleep=sleep)
        register = RegisterLog(collected.store, environment)
        garbage = GarbageCollector(collected.store, environment, SESSION, register, HeldPartitions())
        with pytest.raises(asyncio.CancelledError):
            await garbage.collect_regularly()
        assert slept_s == [environment.garbage_interval_s * FIRST_PART, environment.garbage_interval_s]

    asyncio.run(run())
