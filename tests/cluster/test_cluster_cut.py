"""A consistent cut of a cluster's log, beside a node that writes between the looks at its WAL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from callboard.actors.records import TransactionRecord, TransactionValue
from callboard.actors.transactions.rules import TransactionState
from callboard.runtime.cluster.cut import Cut, Moved, content_of, make_cut
from callboard.runtime.cluster.keys import ROUNDS
from callboard.runtime.cluster.register import Endpoint, Register
from callboard.runtime.cluster.register_log import RegisterLog
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.cluster.session_log import SessionLog
from callboard.runtime.log.format.batch import encode_batch, frame_record, read_batches
from callboard.runtime.log.format.transaction_records import encode_transaction
from callboard.runtime.log.journal_frames import encode_frame
from callboard.runtime.log.partition_counts import PartitionCounts

from .memory_store import Memory, MemoryStore

COUNTS = PartitionCounts(2, 1)
TRANSACTIONS = 2
SESSION = "s"
FIRST, MIDDLE, LAST = 1, 2, 3

Act = Callable[[], Awaitable[object]]


class WatchedStore(MemoryStore):
    """``acts``: what a node does before a look at the WAL, by the number of the look."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self.acts: dict[int, Act] = {}
        self._looks = 0

    async def list(self, prefix: str, after: str = "") -> list[str]:
        if prefix.startswith(ROUNDS):
            self._looks += 1
            if self._looks in self.acts:
                await self.acts[self._looks]()
        return await super().list(prefix, after)


class Node:
    """Owns all partitions of a new cluster, and appends batches to them."""

    def __init__(self) -> None:
        memory, environment = Memory(), SessionEnvironment()
        self.store = WatchedStore(memory)
        self.register = RegisterLog(MemoryStore(memory), environment)
        self.log = SessionLog(MemoryStore(memory), environment, SESSION)
        self._ends = [0] * sum(COUNTS)

    async def join(self, *, loads: int = sum(COUNTS)) -> None:
        await self.register.create(COUNTS)
        await self.change(lambda register: register.with_node(SESSION, "n", {"": Endpoint("n", 1)}, ""))
        for partition in range(loads):
            await self.log.load(partition, 1)

    async def change(self, change: Callable[[Register], Register | None]) -> None:
        async def nothing() -> None:
            pass

        await self.register.change(change, nothing)

    async def append(self, partition: int, key: bytes, value: bytes | None) -> None:
        batch = encode_batch(self._ends[partition], 0, 0, [frame_record(0, 0, key, value)])
        self._ends[partition] += 1
        await self.log.append(encode_frame([(partition, batch)]), [(partition, batch)])

    async def decide(self, state: TransactionState) -> None:
        key, value = encode_transaction(TransactionRecord("t", TransactionValue(7, 0, 1000, state)))
        await self.append(TRANSACTIONS, key, value)

    async def shorten(self) -> None:
        """As at a checkpoint."""
        await self.log.checkpoint()
        await self.log._checkpoints.delete_rounds()


async def keys(node: Node, cut: Cut, partition: int) -> list[bytes]:
    data = b"".join(await content_of(node.store, cut, partition))
    return [key for batch in read_batches(data) for _, _, key, _ in batch.records() if key is not None]


def run(body: Callable[[Node], Awaitable[None]], *, loads: int = sum(COUNTS)) -> None:
    async def work() -> None:
        node = Node()
        await node.join(loads=loads)
        await body(node)

    asyncio.run(work())


def test_cut_has_segments_and_what_follows_in_the_wal() -> None:
    async def body(node: Node) -> None:
        await node.append(0, b"a", b"1")
        await node.shorten()
        await node.append(0, b"b", b"1")
        await node.append(1, b"c", b"1")
        cut = await make_cut(node.store)
        assert await keys(node, cut, 0) == [b"a", b"b"]
        assert await keys(node, cut, 1) == [b"c"]
        assert await keys(node, cut, TRANSACTIONS) == []

    run(body)


def test_offsets_are_cut_at_an_earlier_look_than_transactions() -> None:
    """Else a pending offset would have no transaction."""

    async def body(node: Node) -> None:
        async def offset_then_transaction() -> None:
            await node.append(0, b"late", b"1")
            await node.decide(TransactionState.ONGOING)

        node.store.acts = {MIDDLE: lambda: node.append(1, b"early", b"1"), LAST: offset_then_transaction}
        cut = await make_cut(node.store)
        assert await keys(node, cut, 0) == []
        assert await keys(node, cut, 1) == [b"early"]
        assert len(await keys(node, cut, TRANSACTIONS)) == 1

    run(body)


@pytest.mark.parametrize("look", [MIDDLE, LAST])
@pytest.mark.parametrize("state", [TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_ABORT])
def test_decision_between_the_looks_makes_another_cut_necessary(look: int, state: TransactionState) -> None:
    async def body(node: Node) -> None:
        node.store.acts = {look: lambda: node.decide(state)}
        with pytest.raises(Moved, match="a transaction was decided"):
            await make_cut(node.store)
        cut = await make_cut(node.store)
        assert len(await keys(node, cut, TRANSACTIONS)) == 1

    run(body)


def test_decision_before_the_first_look_does_not_matter() -> None:
    async def body(node: Node) -> None:
        node.store.acts = {FIRST: lambda: node.decide(TransactionState.PREPARE_COMMIT)}
        assert len(await keys(node, await make_cut(node.store), TRANSACTIONS)) == 1

    run(body)


def test_rounds_that_a_checkpoint_deletes_meanwhile_make_another_cut_necessary() -> None:
    async def body(node: Node) -> None:
        await node.append(0, b"a", b"1")
        node.store.acts = {FIRST: node.shorten}
        with pytest.raises(Moved, match="round 0 of session s is missing"):
            await make_cut(node.store)
        assert await keys(node, await make_cut(node.store), 0) == [b"a"]

    run(body)


def test_partitions_that_move_meanwhile_make_another_cut_necessary() -> None:
    async def body(node: Node) -> None:
        node.store.acts = {LAST: lambda: node.change(lambda register: register.with_draining(SESSION, True))}
        with pytest.raises(Moved, match="the register or the topics have changed"):
            await make_cut(node.store)
        await make_cut(node.store)

    run(body)


def test_partition_that_its_owner_has_not_loaded_yet_is_waited_for() -> None:
    async def body(node: Node) -> None:
        with pytest.raises(Moved, match="partition 2 is not loaded by its owner s"):
            await make_cut(node.store)
        await node.log.load(TRANSACTIONS, 1)
        await make_cut(node.store)

    run(body, loads=TRANSACTIONS)
