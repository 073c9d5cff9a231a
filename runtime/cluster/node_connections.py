"""NodeConnections: connections of this node to the others of its cluster, by Kafka's protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..client.connection import ChannelLost, Connection, LoginRefused, connect_to
from ..client.security import NO_SECURITY, ClientSecurity
from ..common.logs import get_logger
from ..kafka.peer_gate import Purpose, Sender
from ..settings.address import Address
from .cluster_node import ClusterNode
from .credentials import client_id
from .register import NodeEntry, Register

log = get_logger("callboard.cluster")


class OpenConnection(NamedTuple):
    """``register_version``: by which the session was chosen."""

    register_version: int
    connection: Connection


class NodeConnections:
    """One connection to each session. It is replaced when the register has changed.

    ``listener``: the name of the one by which nodes connect to each other. ``security``: of that listener. ``purpose``:
    of all requests by these connections.
    """

    def __init__(
        self,
        node: ClusterNode,
        timeout_s: float,
        listener: str,
        security: ClientSecurity = NO_SECURITY,
        purpose: Purpose = Purpose.TRANSACTIONS,
    ) -> None:
        self._security = security
        self._node = node
        self._listener = listener
        self._purpose = purpose
        self._logged: set[tuple[str, str]] = set()  # sessions, and what fails with them
        self._timeout_s = timeout_s
        self._connections: dict[str, OpenConnection] = {}  # by session
        self._number = 0

    def close(self) -> None:
        for open_connection in self._connections.values():
            open_connection.connection.close()

    def register(self) -> Register:
        """Raises ChannelLost before this node has joined."""
        register = self._node.register
        if register is None:
            raise ChannelLost("this node has not joined the cluster yet")
        return register

    async def ask(self, session: str, api: str, values: Mapping[str, Any]) -> Any:
        """Raises ChannelLost."""
        connection = None
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await self.connect(session)
                return await connection.ask(api, values)
        except TimeoutError as error:
            if connection is not None:
                connection.close()
            raise ChannelLost(f"{session} did not answer within {self._timeout_s:g} s") from error

    async def connect(self, session: str) -> Connection:
        """Raises ChannelLost."""
        register, own = self.register(), self._node.session
        node = register.nodes.get(session)
        if node is None or own is None:
            raise ChannelLost("the partition has no owner")
        known = self._connections.get(session)
        if known is not None and known.register_version == register.version and not known.connection.is_lost:
            return known.connection
        self._number += 1
        sender = Sender(own.name, self._number, register.version)
        name = client_id(self._node.secret, sender, session, self._purpose)
        connection = await self._open(session, node, name)
        newer = self._connections.get(session)
        if newer is not None and newer is not known and not newer.connection.is_lost:
            connection.close()  # another request has connected meanwhile
            return newer.connection
        self._connections = {name: known for name, known in self._connections.items() if name in register.nodes}
        self._connections[session] = OpenConnection(register.version, connection)
        return connection

    async def _open(self, session: str, node: NodeEntry, name: str) -> Connection:
        """Raises ChannelLost. A login that is refused, or has no token, is logged once for each session."""
        try:
            return await connect_to(self._address(session, node), name, self._security)
        except LoginRefused as refused:
            self._warn_once(session, "login", str(refused))
            raise

    def _address(self, session: str, node: NodeEntry) -> Address:
        """Where the node is reached by other nodes. Raises ChannelLost, and logs it once for each session."""
        endpoint = node.endpoints.get(self._listener)
        if endpoint is not None:
            return Address(*endpoint)
        problem = f"node {node.name} advertises no listener {self._listener}, by which nodes connect to each other"
        self._warn_once(session, "listener", problem)
        raise ChannelLost(problem)

    def _warn_once(self, session: str, subject: str, problem: str) -> None:
        if (session, subject) not in self._logged:
            self._logged.add((session, subject))
            log.warning(f"{self._purpose.shown} with another node fail", reason=problem)
