"""All nodes of a cluster have the same session timeout. A lease ends with its session."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from callboard.runtime.cluster.lease import Lease
from callboard.runtime.cluster.register_log import RegisterLog
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.common.errors import StartError
from callboard.runtime.log.partition_counts import PartitionCounts

from .cluster_server_helpers import ClusterServer
from .memory_store import Memory, MemoryStore

COUNTS = PartitionCounts(1, 1)


def test_register_has_the_session_timeout_that_it_was_created_with() -> None:
    async def run() -> None:
        store = MemoryStore(Memory())
        await RegisterLog(store, SessionEnvironment(ttl_s=3)).create(COUNTS)
        register = await RegisterLog(store, SessionEnvironment(ttl_s=3)).create(COUNTS)
        assert register.session_timeout_ms == 3000
        with pytest.raises(StartError, match=r"cluster_session_timeout_ms=1500, but .* with 3000, .* all nodes must"):
            await RegisterLog(store, SessionEnvironment(ttl_s=1.5)).create(COUNTS)

    asyncio.run(run())


def test_lease_of_a_session_that_has_ended_is_not_renewed() -> None:
    """The store may answer a sign of life later."""

    async def run() -> None:
        lease = Lease(MemoryStore(Memory()), "n1-1", SessionEnvironment())
        await lease.renew()
        assert lease.is_valid
        lease.end()
        assert not lease.is_valid
        await lease.renew()
        assert not lease.is_valid

    asyncio.run(run())


def test_server_with_another_session_timeout_is_refused_with_exit_code_2(tmp_path: Path) -> None:
    store = tmp_path / "shared"
    store.mkdir()
    first, other = (ClusterServer(tmp_path, store.as_uri(), name) for name in ("n1", "n2"))
    try:
        first.start()
        first.wait_for_log("partition taken over")
        other.launch("--set", "cluster_session_timeout_ms=3000")
        assert other.wait() == 2
    finally:
        first.end()
        other.end()
    assert "callboard: the cluster cannot be used: this node has cluster_session_timeout_ms=3000" in other.log
