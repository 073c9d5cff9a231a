"""Coordinators of one cluster in this process, on a shared folder, whose listeners are secured."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from callboard.runtime.cluster.engines import open_store
from callboard.runtime.cluster.operator import Operator
from callboard.runtime.cluster.patient_store import PatientStore
from callboard.runtime.cluster.register import Register
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.embed.coordinator import Coordinator
from callboard.runtime.security.audit_file import FILE_NAME

TTL_MS = 1500
COUNTS: Any = {"offsets_topic_num_partitions": 3, "transaction_state_log_num_partitions": 3}
DEADLINE_S = 60.0


class SecuredNodes:
    """``security``: of a node's listener, by its name. ``running``: coordinators by name."""

    def __init__(self, folder: Path, security: Callable[[str], Mapping[str, str]], **settings: Any) -> None:
        self.folder = folder
        self.running: dict[str, Coordinator] = {}
        self._security = security
        self._settings = {"audit": "file", "cluster_session_timeout_ms": TTL_MS, **COUNTS, **settings}
        self._url = (folder / "store").as_uri()
        (folder / "store").mkdir()

    async def start(self, name: str) -> Coordinator:
        coordinator = Coordinator(
            self.folder / name,
            "127.0.0.1:0",
            cluster=self._url,
            node_name=name,
            security=self._security(name),
            **self._settings,
        )
        await coordinator.start()
        self.running[name] = coordinator
        return coordinator

    async def stop(self, name: str) -> None:
        """As by SIGTERM."""
        await self.running.pop(name).stop()

    async def kill(self, name: str) -> None:
        """As by ``kill -9``."""
        await self.running.pop(name)._embedded.kill("killed")

    async def drain(self, name: str) -> None:
        """As ``callboard cluster drain``. Return when the node owns nothing."""
        store = open_store(self._url, "operator")
        try:
            operator = Operator(PatientStore(store), SessionEnvironment(TTL_MS / 1000))
            register = await operator.read()
            session = next(session for session, node in register.nodes.items() if node.name == name)
            await operator.set_draining(session, True)
            await until_true(lambda: not register_of(self.running[name]).owned(session))
        finally:
            await store.close()

    async def wait_until_balanced(self) -> None:
        """All nodes know that each of them owns its part, and each serves it."""
        await until_true(lambda: all(is_balanced(node, len(self.running)) for node in self.running.values()))

    def address(self, name: str) -> tuple[str, int]:
        host, _, port = self.running[name].bootstrap.rpartition(":")
        return host, int(port)

    def audited(self, name: str, kind: str) -> Iterator[dict[str, Any]]:
        """The lines of one kind in the audit trail of a node."""
        path = self.folder / name / FILE_NAME
        lines = path.read_text().splitlines() if path.exists() else []
        return (line for line in map(json.loads, lines) if line["kind"] == kind)


@asynccontextmanager
async def secured_nodes(
    folder: Path, names: Sequence[str], security: Callable[[str], Mapping[str, str]], **settings: Any
) -> AsyncIterator[SecuredNodes]:
    """Nodes that have all joined. ``settings``: of all of them; other arguments: see ``SecuredNodes``."""
    nodes = SecuredNodes(folder, security, **settings)
    try:
        for name in names:
            await nodes.start(name)
        await nodes.wait_until_balanced()
        yield nodes
    finally:
        for name in list(nodes.running):
            await nodes.stop(name)


def register_of(coordinator: Coordinator) -> Register:
    cluster: Any = coordinator.node.environment.cluster
    register: Register = cluster.ownership.register
    return register


def is_balanced(coordinator: Coordinator, nodes: int) -> bool:
    owned = Counter(register_of(coordinator).owners)
    return len(owned) == nodes and max(owned.values()) - min(owned.values()) <= 1


async def until_true(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)
