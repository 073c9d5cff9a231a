"""EmbeddedNode: what runs in an embedded coordinator. A node, alone or in a cluster, or an observer of a cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from ..disk.disk import Disk
from ..engine.completion import run_to_completion
from ..engine.own_listeners import serve_on_loop
from .cluster_arguments import OBSERVER
from .forked import close_in_forked_children
from .node_requests import NodeRequests

if TYPE_CHECKING:
    from socket import socket

    from ..kafka.interceptor import Interceptor
    from ..member.channel import Connector
    from ..member.local import LocalConnector
    from ..node.environment import Environment
    from ..node.listening import Sockets
    from ..node.node import Node
    from ..settings.table import Options, Settings
    from .admin_requests import AdminRequests
    from .cluster_part import ClusterPart, Observer
    from .lifecycle import EndMode


class EmbeddedNode:
    """It may be started again after its end, on the same data and address.

    ``node``: None while it does not run, and for an observer. ``cluster``: None for a node that is alone.
    """

    def __init__(
        self, settings: Settings, options: Options, environment: Environment, *, is_listening: bool, is_observer: bool
    ) -> None:
        self.options = options
        self.environment = environment
        self.is_listening = is_listening
        self.is_observer = is_observer
        self.interceptor: Interceptor | None = None
        self.node: Node | None = None
        self.cluster: ClusterPart | None = None
        self._settings = settings
        self._observer: Observer | None = None
        self._connector: LocalConnector | None = None

    @property
    def is_running(self) -> bool:
        return self.node is not None or self._observer is not None

    @property
    def settings(self) -> Settings:
        """The current settings."""
        return self._settings if self.node is None else self.node.settings

    def running_node(self) -> Node:
        """Raises RuntimeError for an observer. Call it while it runs."""
        if self.node is None:
            from .cluster_part import OBSERVES

            raise RuntimeError(OBSERVES)
        return self.node

    def requests(self) -> AdminRequests:
        return NodeRequests(self.running_node()) if self.cluster is None else self.cluster.requests

    def connector(self, loop: asyncio.AbstractEventLoop | None) -> Connector:
        """The connector of members in this process. It is the same one after a restart."""
        return self._local_connector(loop) if self.cluster is None else self.cluster.connector

    def _local_connector(self, loop: asyncio.AbstractEventLoop | None) -> LocalConnector:
        if self._connector is None:
            from ..member.local import LocalConnector

            self._connector = LocalConnector(self.node, loop)
        return self._connector

    # Start and end ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises StartError for a problem that an operator can fix. In a cluster, waits until the store is there."""
        if self.options.cluster.url:
            await self._join_cluster()
        else:
            self.node = await self._open_node(self._listen(), self.environment)
            self._connect_members_to(self.node)

    async def stop(self) -> None:
        node, self.node = self.node, None
        observer, self._observer = self._observer, None
        try:
            if node is not None:
                await node.stop()
            if observer is not None:
                await observer.close()
        finally:
            self._connect_members_to(None)  # after stop(): pending requests of members are answered first

    async def kill(self, end: EndMode) -> None:
        """End the node as by ``kill -9`` or, if ``end`` says so, by a power loss."""
        node, self.node = self.running_node(), None
        node.halt()
        self._connect_members_to(None)
        if node.environment.cluster is not None:
            await node.environment.cluster.close()
        self.environment = replace(self.environment, disk=_disk_after_end(self.environment.disk, end))

    async def _open_node(self, sockets: Sockets, environment: Environment) -> Node:
        from ..node.descriptors import ExclusiveDescriptors
        from ..node.node import Node

        descriptors = ExclusiveDescriptors()
        close_in_forked_children(descriptors)
        try:
            return await Node.open(
                self._settings,
                self.options,
                environment,
                sockets,
                interceptor=self.interceptor,
                descriptors=descriptors,
            )
        except BaseException:
            _close(sockets)
            raise

    def _listen(self) -> dict[str, socket]:
        if not self.is_listening:
            return {}
        from ..node.listening import bind

        [listener] = self.options.listeners
        listening_socket = bind(listener, "listen", "advertised")
        serve_on_loop(listening_socket)
        address = listener.listen._replace(port=listening_socket.getsockname()[1])
        self.options = replace(self.options, listeners=(listener._replace(listen=address),))  # for a restart
        return {listener.name: listening_socket}

    def _connect_members_to(self, node: Node | None) -> None:
        """Connect members in this process to ``node``."""
        if self._connector is not None:
            self._connector.node = node
        if self.cluster is not None and node is None:
            self.cluster.detach()

    # In a cluster ----------------------------------------------------------------------------------------------------

    async def _join_cluster(self) -> None:
        from .cluster_part import ClusterPart, Observer, security_of

        if self.cluster is None:
            local = None if self.is_observer else self._local_connector(asyncio.get_running_loop())
            self.cluster = ClusterPart(local, security_of(self.options, is_observer=self.is_observer))
        cluster, options = self.cluster, self.options.cluster
        try:
            if self.is_observer:
                self._observer = Observer(options.url, options.node_name or OBSERVER, cluster)
            else:
                self.node = await self._open_cluster_node(cluster)
                self._connect_members_to(self.node)
            await cluster.wait_until_joined()
        except BaseException:
            await run_to_completion(self.stop())
            raise

    async def _open_cluster_node(self, cluster: ClusterPart) -> Node:
        from .cluster_environment import SCRATCH, make_connection

        sockets = self._listen()
        scratch = self.options.data / SCRATCH if self.environment.disk.is_real else None
        try:
            connection = make_connection(self._settings, self.options, sockets, cluster.refuse, scratch)
        except BaseException:
            _close(sockets)
            raise
        cluster.attach(connection.ownership)
        return await self._open_node(sockets, replace(self.environment, cluster=connection))


def _close(sockets: Sockets) -> None:
    for listening_socket in sockets.values():
        listening_socket.close()


def _disk_after_end(disk: Disk, end: EndMode) -> Disk:
    """The disk as a process that ended this way leaves it."""
    if disk.is_real:
        return disk
    from ..disk.memory import MemoryDisk

    assert isinstance(disk, MemoryDisk)
    return disk.for_next_process(is_power_lost=end == "power lost")
