"""What the log says while a node's store does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from unittest.mock import Mock

import pytest

from callboard.runtime.cluster.cluster_node import ClusterNode
from callboard.runtime.cluster.continuity import StoreOlder
from callboard.runtime.cluster.documents import FormatUnknown
from callboard.runtime.cluster.outage import REASONS_MAX, Outage
from callboard.runtime.cluster.register_log import RegisterLog
from callboard.runtime.cluster.session import NodeIdentity, Session, SessionListener
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.cluster.store import StoreRefused, StoreUnavailable
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.log.store import OwnershipListener

from .memory_store import Memory, MemoryStore

TTL_S = 0.04
FAILURES = 20
"""Of each task. The log had a line for each."""


class FailingStore(MemoryStore):
    """``reads``, ``signs``: how often a read and a sign of life have failed."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self.is_out = False
        self.reads = self.signs = 0

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        if self.is_out:
            self.reads += 1
            raise StoreUnavailable("no answer")
        return await super().get(keys)

    async def put(self, key: str, value: bytes) -> None:
        if self.is_out:
            self.signs += 1
            raise StoreUnavailable("no answer")
        await super().put(key, value)


def count(caplog: pytest.LogCaptureFixture, event: str) -> int:
    return sum(event in record.getMessage() for record in caplog.records)


def test_outage_is_logged_once_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    """A node looks and gives a sign of life several times a second: an hour's outage was tens of thousands of lines."""

    async def run() -> None:
        store = FailingStore(Memory())
        listener = Mock(spec=SessionListener)
        listener.followed_key.return_value = None
        session = Session(store, SessionEnvironment(ttl_s=TTL_S), NodeIdentity("a", {}), listener)
        await session.register.create(PartitionCounts(1, 0))
        await session.join()
        running = asyncio.create_task(session.run())
        store.is_out = True
        while min(store.reads, store.signs) < FAILURES:
            await asyncio.sleep(TTL_S)
        store.is_out = False
        while count(caplog, "the store is available again") < 2:
            await asyncio.sleep(TTL_S)
        session.halt()
        await running

    with caplog.at_level("INFO"):
        asyncio.run(run())
    assert count(caplog, "the store is not available") == 1
    assert count(caplog, "sign of life not written") == 1


def test_reasons_are_logged_once_each_and_not_without_end(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("out")
    for number in range(2 * REASONS_MAX):
        for seconds in range(3):
            outage.note(StoreUnavailable(f"{'x' * number} after {seconds} s"))
    assert count(caplog, "out") == REASONS_MAX
    outage.end()
    outage.note(StoreUnavailable(" after 0 s"))
    assert count(caplog, "out") == REASONS_MAX + 1


class RefusingStore(MemoryStore):
    """``answer``: raised by each read; None: it answers."""

    answer: StoreRefused | None = None

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        if self.answer is not None:
            raise self.answer
        return await super().get(keys)


DENIED = StoreRefused("permission denied")
NEWER = FormatUnknown("the register", "2", "1")


@pytest.mark.parametrize(("is_serving", "answer"), [(False, DENIED), (True, NEWER)], ids=["at the start", "newer"])
def test_node_ends_if_the_store_refuses_it_at_its_start_or_for_good(is_serving: bool, answer: StoreRefused) -> None:
    async def run() -> None:
        failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        store, node = make_node(failed.set_result)
        store.answer = None if is_serving else answer
        node.start(Mock(spec=OwnershipListener))
        while is_serving and not node.own_session:
            await asyncio.sleep(TTL_S)
        store.answer = answer
        assert await failed is answer
        node.stop()

    asyncio.run(run())


def test_node_that_finds_another_cluster_in_the_place_of_its_own_leaves_it_alone() -> None:
    """It said in the register of that one that the store had lost something, which stopped all of its nodes."""

    async def run() -> None:
        failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        memory, other, counts = Memory(), Memory(), PartitionCounts(1, 1)
        environment = SessionEnvironment(ttl_s=TTL_S, continuity_interval_s=TTL_S)
        node = ClusterNode(MemoryStore(memory), environment, NodeIdentity("a", {}), counts, failed.set_result)
        node.start(Mock(spec=OwnershipListener))
        while not node.own_session:
            await asyncio.sleep(TTL_S)
        await RegisterLog(MemoryStore(other), environment).create(counts)
        memory.values.clear()
        memory.values.update(other.values)
        assert isinstance(await failed, StoreOlder)
        assert (await RegisterLog(MemoryStore(memory), environment).read()).damage == ""
        node.stop()

    asyncio.run(run())


def test_node_that_served_joins_again_when_the_store_grants_it_its_rights_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It ended, as all others did, and nobody started them when the rights were back."""

    async def run() -> None:
        failures: list[Exception] = []
        store, node = make_node(failures.append)
        node.start(Mock(spec=OwnershipListener))
        while not (before := node.own_session):
            await asyncio.sleep(TTL_S)
        store.answer = DENIED
        while "the store refuses this node" not in caplog.text:
            assert not failures
            await asyncio.sleep(TTL_S)
        assert not node.own_session
        store.answer = None
        while not node.own_session:
            await asyncio.sleep(TTL_S)
        assert node.own_session != before
        node.stop()

    asyncio.run(run())
    assert count(caplog, "the store refuses this node") == 1


@pytest.mark.parametrize("is_other", [False, True], ids=["emptied", "another cluster"])
def test_node_that_served_does_not_begin_anew_in_a_store_without_its_cluster(is_other: bool) -> None:
    """All that it had acknowledged would be gone, and nobody would notice."""

    async def run() -> None:
        failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        store, node = make_node(failed.set_result)
        node.start(Mock(spec=OwnershipListener))
        while not node.own_session:
            await asyncio.sleep(TTL_S)
        store.answer = DENIED
        while node.own_session:
            await asyncio.sleep(TTL_S)
        other = MemoryStore(Memory())
        if is_other:
            await RegisterLog(other, SessionEnvironment()).create(PartitionCounts(1, 0))
        store._memory = other._memory
        store.answer = None
        while not failed.done():
            assert not node.own_session
            await asyncio.sleep(TTL_S)
        holds = "the cluster " if is_other else "no cluster"
        assert str(await failed).startswith(f"the store has {holds}")
        node.stop()

    asyncio.run(run())


def make_node(on_failed: Callable[[Exception], None]) -> tuple[RefusingStore, ClusterNode]:
    store = RefusingStore(Memory())
    identity = NodeIdentity("a", {})
    return store, ClusterNode(store, SessionEnvironment(ttl_s=TTL_S), identity, PartitionCounts(1, 0), on_failed)
