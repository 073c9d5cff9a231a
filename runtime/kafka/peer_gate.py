"""PeerGate: tells requests of other nodes of the cluster from those of clients."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol


class Purpose(StrEnum):
    """What a node uses a connection for: the beginning of its client id, whose last part proves who it is.

    See ``cluster.credentials``.
    """

    TRANSACTIONS = "callboard-node"
    QUESTIONS = "callboard-node-asks"

    @property
    def shown(self) -> str:
        return self.name.lower()


class Sender(NamedTuple):
    """A node of the cluster. ``connection_number``: rises with each of its connections to this node.

    ``register_version``: of the register by which it has chosen this node.
    """

    session: str
    connection_number: int
    register_version: int


class PeerGate(Protocol):
    def admit(self, client_id: str, connection: object, purpose: Purpose = Purpose.TRANSACTIONS) -> Sender | None:
        """The sender of a request by its client id. None if it is not a node, or has connected again since.

        ``connection``: by which the request came. A client id serves only the first one that has used it, and one
        purpose.
        """

    def accepts(self, sender: Sender, topic: str, partition: int) -> bool:
        """Whether this node has had the partition since before the sender chose it."""
