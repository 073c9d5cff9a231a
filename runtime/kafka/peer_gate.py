"""PeerGate: tells requests of other nodes of the cluster from those of clients."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

NODE_PREFIX: Final = "callboard-node"
"""The beginning of the client id of a node. Its last part proves who it is, see ``cluster.credentials``."""


class Sender(NamedTuple):
    """A node of the cluster. ``connection_number``: rises with each of its connections to this node.

    ``register_version``: of the register by which it has chosen this node.
    """

    session: str
    connection_number: int
    register_version: int


class PeerGate(Protocol):
    def admit(self, client_id: str, connection: object) -> Sender | None:
        """The sender of a request by its client id. None if it is not a node, or has connected again since.

        ``connection``: by which the request came. A client id serves only the first one that has used it.
        """

    def accepts(self, sender: Sender, topic: str, partition: int) -> bool:
        """Whether this node has had the partition since before the sender chose it."""
