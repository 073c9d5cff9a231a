"""NodeGate: which requests come from other nodes of the cluster, and which of them are too old to be answered."""

from __future__ import annotations

import weakref
from typing import NamedTuple

from ..kafka.peer_gate import Purpose, Sender
from ..log.partition import TOPIC
from .cluster_node import ClusterNode
from .credentials import parse_client_id


class NewestConnection(NamedTuple):
    """Of a sender."""

    number: int
    connection: weakref.ref[object]


class NodeGate:
    """``PeerGate``. Requests of a connection that its sender has replaced are refused: they are too late.

    The sender has asked again since, and what it has asked for may be over. Requests with the number of another
    connection are those of somebody who has read it from the network.
    """

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self._session = ""  # to which the numbers belong
        self._newest: dict[tuple[Purpose, str], NewestConnection] = {}  # by session of the sender

    def admit(self, client_id: str, connection: object, purpose: Purpose = Purpose.TRANSACTIONS) -> Sender | None:
        session, register = self._node.session, self._node.register
        if session is None or register is None:
            return None
        sender = parse_client_id(self._node.secret, client_id, session.name, purpose)
        if sender is None:
            return None
        if sender.session not in register.nodes and sender.register_version <= register.version:
            return None  # it has left, or was declared dead
        if session.name != self._session:
            self._session, self._newest = session.name, {}
        newest = self._newest.get((purpose, sender.session))
        if newest is None or sender.connection_number > newest.number:
            self._newest[purpose, sender.session] = NewestConnection(sender.connection_number, weakref.ref(connection))
        elif sender.connection_number < newest.number or newest.connection() is not connection:
            return None
        return sender

    def accepts(self, sender: Sender, topic: str, partition: int) -> bool:
        return topic != TOPIC or sender.register_version >= self._node.gained_versions.get(partition, 0)
