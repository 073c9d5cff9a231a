"""ClusterPart: how a process reaches all nodes of its cluster, for its members and its admin methods."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ...actors.errors import CoordinatorError, ErrorCode
from ..client.security import NO_SECURITY, ClientSecurity, load_security
from ..cluster.engines import open_store
from ..cluster.register_follower import RegisterFollower
from ..cluster.session_environment import SessionEnvironment
from ..cluster.store import StoreRefused
from ..common.errors import StartError
from ..common.logs import get_logger
from ..member.local import LocalConnector
from ..settings.listeners import PLAINTEXT
from ..settings.table import Options
from .any_group import requests_of
from .cluster_environment import peer_security
from .cluster_members import ClusterConnector
from .cluster_requests import ClusterRequests
from .group_owners import GroupOwners, RegisterSource
from .node_requests import NodeRequests
from .node_resets import NodeResets

OBSERVES = (
    "this Coordinator is an observer and has no node: ask a Coordinator of the cluster that owns partitions, or "
    "`callboard serve --cluster`"
)

log = get_logger("callboard.cluster")


class ClusterPart:
    """``local``: reaches the node of this process; None for an observer. ``refusal``: why the cluster cannot be used.

    It outlives the node, which a restart replaces. ``security``: of connections to the nodes, see ``security_of``.
    """

    def __init__(self, local: LocalConnector | None, security: ClientSecurity = NO_SECURITY) -> None:
        self.refusal = ""
        self._local = local
        self._owners = GroupOwners(security=security)
        self._news = asyncio.Event()
        self.connector = ClusterConnector(self._owners, local)
        self.requests = ClusterRequests(self._owners, self._set_settings, self._own_resets)

    def attach(self, source: RegisterSource) -> None:
        """Use this register from now on."""
        self.refusal = ""
        self._owners.source = source
        source.on_register_changed = self._register_changed

    def detach(self) -> None:
        """Reach nobody any more."""
        self._owners.source = None
        self.connector.close_moved()
        self.requests.close()

    def refuse(self, error: Exception) -> None:
        """The cluster, or its store, does not let this process take part."""
        self.refusal = str(error)
        self._news.set()

    async def wait_until_joined(self) -> None:
        """Return when this process takes part. Raises StartError if it is refused."""
        while not self._has_joined():
            if self.refusal:
                raise StartError(f"the cluster cannot be used: {self.refusal}")
            self._news.clear()
            await self._news.wait()

    def _has_joined(self) -> bool:
        source = self._owners.source
        if source is None or source.register is None:
            return False
        return self._local is None or source.own_session in source.register.nodes

    def _register_changed(self) -> None:
        self._news.set()
        self.connector.close_moved()

    async def _set_settings(self, settings: Mapping[str, float | bool | str | None]) -> None:
        """Each node has its own."""
        if self._local is None:
            raise RuntimeError(OBSERVES)
        node = self._local.node
        assert node is not None, "set while the coordinator runs"
        await NodeRequests(node).set(settings)

    async def _own_resets(self) -> NodeResets:
        """New records are kept in the data folder of this process's node; those of all nodes are found."""
        if self._local is None:
            raise CoordinatorError(ErrorCode.UNSUPPORTED_VERSION, OBSERVES)
        node = self._local.node
        assert node is not None, "asked while the coordinator runs"
        return await requests_of(node).resets()


def security_of(options: Options, *, is_observer: bool) -> ClientSecurity:
    """How a process connects to the nodes: as the environment variables of clients say, else as its node does.

    Raises StartError.
    """
    given = load_security()
    if is_observer or given.settings.protocol != PLAINTEXT:
        return given
    return peer_security(options)


class Observer:
    """A process that reads the register and owns nothing."""

    def __init__(self, url: str, name: str, part: ClusterPart) -> None:
        """Raises StartError for a bad URL or a missing library."""
        self._part = part
        self._store = open_store(url, name)
        self._follower = RegisterFollower(self._store, SessionEnvironment())
        part.attach(self._follower)
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        try:
            await self._follower.run()
        except (StoreRefused, StartError) as error:
            log.error("the cluster refuses this observer", reason=str(error))
            self._part.refuse(error)
        except Exception as error:
            log.exception("bug in an observer of the cluster")
            self._part.refuse(StartError(repr(error)))

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
        await self._store.close()
