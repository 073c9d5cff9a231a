"""Things that a session does at once, or that happen while it does something, in the order that would do harm."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import pairwise
from unittest.mock import Mock

import pytest

from callboard.runtime.cluster.garbage import GarbageCollector
from callboard.runtime.cluster.handover import BATCHES, Handover
from callboard.runtime.cluster.keys import MANIFESTS, REGISTER, manifest_key, register_key, round_key, wal_prefix
from callboard.runtime.cluster.manifest import create_manifest, newest_manifest
from callboard.runtime.cluster.operator import Operator
from callboard.runtime.cluster.register import Endpoint, Register, decode_register, planned_owners
from callboard.runtime.cluster.register_log import RegisterLog
from callboard.runtime.cluster.session import NodeIdentity, Phase, Session, SessionListener
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.cluster.session_log import SessionLog
from callboard.runtime.cluster.wal import decode_round
from callboard.runtime.log.format.batch import encode_batch, frame_record
from callboard.runtime.log.journal_frames import encode_frame
from callboard.runtime.log.partition_counts import PartitionCounts

from .memory_store import Memory, MemoryStore

SESSION, TAKER, OTHER = "a", "b", "c"
TTL_S = 0.1
"""Who gives a partition away waits for the taker a part of it."""
ENVIRONMENT = SessionEnvironment(ttl_s=TTL_S)
TURNS = 20
"""Of the loop: enough for the operations of a read, unless it waits for something."""
ROUNDS = 3
ENDPOINTS = {"": Endpoint("n", 1)}
COMPACTIONS = 4
"""More than the manifests that a collector leaves in any case."""


async def _believe() -> None:
    """Nobody is declared dead here."""


class InterruptedStore(MemoryStore):
    """``before``: what happens once before an operation or an answer, by its name and the beginning of its key."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self.before: dict[str, Callable[[], Awaitable[None]]] = {}

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        await self._interrupt(f"get {keys[0]}")
        return await super().get(keys)

    async def list(self, prefix: str, after: str = "") -> list[str]:
        await self._interrupt(f"list {prefix}")
        return await super().list(prefix, after)

    async def create(self, key: str, value: bytes) -> bool:
        await self._interrupt(f"create {key}")
        is_created = await super().create(key, value)
        await self._interrupt(f"created {key}")
        return is_created

    async def _interrupt(self, operation: str) -> None:
        for beginning in list(self.before):
            if operation.startswith(beginning):
                await self.before.pop(beginning)()


class Owner:
    """Owns all partitions, and has stored some rounds of the first one."""

    def __init__(self, partitions: int = 1, environment: SessionEnvironment = ENVIRONMENT) -> None:
        memory = Memory()
        self.partitions = partitions
        self.store, self.others = InterruptedStore(memory), MemoryStore(memory)
        self.register = RegisterLog(self.store, environment)
        self.log = SessionLog(self.store, environment, SESSION)
        self.handover = Handover(self.store, environment, self.log, self._release, self.change)
        self.collector = GarbageCollector(self.others, environment, SESSION, self.register, self.log.held)

    async def begin(self) -> None:
        await self.register.create(PartitionCounts(self.partitions, 0))
        for partition in range(self.partitions):
            await self.log.load(partition, 1)
        for offset in range(ROUNDS):
            batch = encode_batch(offset, 0, 0, [frame_record(0, 0, b"key", b"%d" % offset)])
            await self.log.append(encode_frame([(0, batch)]), [(0, batch)])

    def _release(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            self.handover.release(partition)

    async def change(self, change: Callable[[Register], Register | None]) -> Register | None:
        return await self.register.change(change, _believe)

    async def join(self, *sessions: str) -> Register:
        """The first one owns the partition."""
        for session in sessions:
            await self.change(lambda register, name=session: register.with_node(name, name, ENDPOINTS, ""))  # type: ignore[misc]
        return await self.register.read()

    async def compact_and_collect(self) -> None:
        """Others create the next versions of the manifest, then this session collects garbage."""
        for _ in range(COMPACTIONS):
            newest = await newest_manifest(self.others, 0)
            assert await create_manifest(self.others, newest._replace(version=newest.version + 1, token="other"))
        await self.collector.collect()


def test_session_that_deletes_rounds_while_it_leaves_seals_its_wal_above_them() -> None:
    async def run() -> None:
        owner = Owner()
        await owner.begin()
        await owner.log.checkpoint()
        owner.store.before["list wal/"] = owner.log._checkpoints.delete_rounds
        await owner.log.seal()
        assert await owner.others.list(wal_prefix(SESSION)) == [round_key(SESSION, ROUNDS)]
        [data] = await owner.others.get([round_key(SESSION, ROUNDS)])
        assert data is not None
        assert decode_round(data).is_seal

    asyncio.run(run())


def test_checkpoint_that_waits_finds_the_version_taken_that_a_compaction_has_created() -> None:
    async def run() -> None:
        owner = Owner()
        await owner.begin()
        owner.store.before["create man/"] = owner.compact_and_collect
        await owner.log.checkpoint()
        newest = await newest_manifest(owner.others, 0)
        assert newest == owner.log.held[0].manifest
        assert newest.end == ROUNDS

    asyncio.run(run())


def test_rounds_of_a_partition_stay_until_its_last_manifest_stands() -> None:
    async def run() -> None:
        owner = Owner()
        await owner.begin()
        owner.store.before["create man/"] = owner.log._checkpoints.delete_rounds
        before = await owner.others.list(wal_prefix(SESSION))
        await owner.handover.close([0])
        assert await owner.others.list(wal_prefix(SESSION)) == before
        assert len(before) == ROUNDS

    asyncio.run(run())


def test_partition_is_given_to_a_node_that_is_there_when_the_register_changes() -> None:
    async def run() -> None:
        owner = Owner()
        await owner.begin()
        await owner.join(SESSION, TAKER, OTHER)
        register = await owner.change(lambda register: register.with_draining(SESSION, True))
        assert register is not None
        [partition] = owner.handover.surplus(register)
        planned = planned_owners(register)[partition]

        async def planned_one_leaves() -> None:
            await owner.change(lambda register: register.without_nodes([planned]))

        owner.store.before["create man/"] = planned_one_leaves
        await owner.handover.give([partition])
        register = await owner.register.read()
        assert register.owners[partition] in register.nodes.keys() - {SESSION}

    asyncio.run(run())


def test_few_partitions_are_given_at_once_and_each_batch_waits_for_the_one_before_it() -> None:
    """Nobody takes them, so each batch waits for a quarter of the TTL, and then the next one is given."""
    slept_s = [0.0]

    async def sleep(seconds: float) -> None:
        slept_s[0] += seconds

    async def run() -> list[int]:
        owner = Owner(4 * BATCHES, SessionEnvironment(ttl_s=TTL_S, now=lambda: slept_s[0], sleep=sleep))
        await owner.begin()
        surplus = owner.handover.surplus(await owner.join(SESSION, TAKER))
        before = len(await owner.others.list(REGISTER))
        await owner.handover.give(surplus)
        versions = await owner.others.get((await owner.others.list(REGISTER))[before - 1 :])
        counts = [len(decode_register(value).owned(TAKER)) for value in filter(None, versions)]
        return [after - before for before, after in pairwise(counts)]

    assert asyncio.run(run()) == [2] * BATCHES
    assert BATCHES * TTL_S / 4 <= slept_s[0] < BATCHES * TTL_S / 2


def test_node_that_nobody_can_take_partitions_from_gives_none() -> None:
    async def run() -> None:
        owner = Owner()
        await owner.begin()
        before = await owner.join(SESSION)
        await owner.handover.give(owner.handover.surplus(before))
        assert await owner.register.read() == before

    asyncio.run(run())


def test_read_during_a_change_skips_no_version_of_the_register() -> None:
    async def run() -> None:
        owner = Owner()
        await owner.begin()
        reads: list[asyncio.Task[Register]] = []

        async def read_meanwhile() -> None:
            reads.append(asyncio.create_task(owner.register.read()))
            for _ in range(TURNS):
                await asyncio.sleep(0)

        owner.store.before["created cluster/"] = read_meanwhile
        register = await owner.join(SESSION, TAKER, OTHER)
        assert (await reads[0]).version >= 1
        assert register.nodes.keys() == {SESSION, TAKER, OTHER}
        assert await owner.others.list(REGISTER) == [register_key(version) for version in range(4)]

    asyncio.run(run())


def test_collector_of_a_partition_that_another_session_owns_by_now_deletes_nothing() -> None:
    """That session has deleted all manifests that were listed."""

    async def run() -> None:
        owner = Owner()
        await owner.begin()
        collector = GarbageCollector(
            owner.store, SessionEnvironment(ttl_s=TTL_S), SESSION, owner.register, owner.log.held
        )

        async def replace_all() -> None:
            newest = await newest_manifest(owner.others, 0)
            listed = await owner.others.list(MANIFESTS)
            taken = newest._replace(version=newest.version + COMPACTIONS, epoch=2, token="other")
            assert await create_manifest(owner.others, taken)
            await owner.others.delete(listed)

        owner.store.before["get man/"] = replace_all
        await collector.collect()
        assert await owner.others.list(MANIFESTS) == [manifest_key(0, owner.log.held[0].manifest.version + COMPACTIONS)]

    asyncio.run(run())


def test_operator_waits_for_the_lease_of_the_node_that_it_seals() -> None:
    async def run() -> None:
        owner = Owner()
        await owner.begin()
        await owner.join(SESSION, TAKER)
        owners: list[str] = []

        async def sleep(seconds: float) -> None:
            assert seconds == TTL_S
            owners.extend((await owner.register.read()).owners)

        environment = SessionEnvironment(ttl_s=TTL_S, sleep=sleep)
        await Operator(owner.others, environment).seal(SESSION, None)
        assert owners == [SESSION]
        assert (await owner.register.read()).owners == (TAKER,)

    asyncio.run(run())


def test_register_that_was_read_before_a_newer_one_is_not_applied_after_it() -> None:
    async def run() -> None:
        owner = Owner()
        await owner.begin()
        listener = Mock(spec=SessionListener)
        session = Session(owner.others, SessionEnvironment(ttl_s=TTL_S), NodeIdentity("a", ENDPOINTS), listener)
        session.phase = Phase.ACTIVE
        older = await owner.join(session.name, TAKER)
        newer = older.given({0: TAKER}).numbered(older.version + 1, "newer")
        for register in (older, newer, older):
            session._apply(register)
        listener.gained.assert_called_once_with({0: 1})

    asyncio.run(run())


def test_checkpoint_of_many_partitions_may_be_cancelled(recwarn: pytest.WarningsRecorder) -> None:
    """It writes for some at a time. Coroutines of the others that are never run would cause warnings."""

    async def run() -> None:
        owner = Owner(partitions=40)
        await owner.begin()
        batch = encode_batch(0, 0, 0, [frame_record(0, 0, b"key", b"value")])
        batches = [(partition, batch) for partition in range(1, owner.partitions)]
        await owner.log.append(encode_frame(batches), batches)
        is_writing, never = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            is_writing.set()
            await never.wait()

        owner.store.before["create "] = wait
        checkpoint = asyncio.create_task(owner.log.checkpoint())
        await is_writing.wait()
        checkpoint.cancel()
        await asyncio.wait({checkpoint})
        assert checkpoint.cancelled()

    asyncio.run(run())
    assert not recwarn.list


def test_nobody_waits_for_nodes_that_leave_as_well() -> None:
    """They load nothing. Without a node to give to, the rest stays: it gets its owner when this session has left."""
    slept_s = [0.0]

    async def sleep(seconds: float) -> None:
        slept_s[0] += seconds

    async def run() -> None:
        owner = Owner(4 * BATCHES, SessionEnvironment(ttl_s=TTL_S, now=lambda: slept_s[0], sleep=sleep))
        await owner.begin()
        surplus = owner.handover.surplus(await owner.join(SESSION, TAKER))
        for session in (SESSION, TAKER):
            await owner.change(lambda register, name=session: register.with_draining(name, True))  # type: ignore[misc]
        await owner.handover.give(surplus)
        assert slept_s == [0.0]
        assert len(list(owner.log.held)) > len(surplus)  # of two nodes each has half

    asyncio.run(run())


def test_session_that_leaves_is_not_fenced_by_the_register_without_it() -> None:
    async def run() -> None:
        store = InterruptedStore(Memory())
        environment = SessionEnvironment(ttl_s=TTL_S)
        listener = Mock(spec=SessionListener)
        listener.followed_key.return_value = None
        session = Session(store, environment, NodeIdentity("a", ENDPOINTS), listener)
        await session.register.create(PartitionCounts(1, 0))
        await session.join()
        running = asyncio.create_task(session.run())

        async def read_meanwhile() -> None:
            await asyncio.sleep(2 * TTL_S)

        store.announce_change = read_meanwhile  # type: ignore[method-assign]
        await session.leave()
        await running
        listener.fenced.assert_not_called()

    asyncio.run(run())
