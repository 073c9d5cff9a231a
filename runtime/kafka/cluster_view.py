"""What clients learn about the cluster: its brokers, and who leads the partitions of the coordinator's topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from ..settings.address import Address

NO_NODE = -1


class Broker(NamedTuple):
    """A broker and the address that clients connect to."""

    node_id: int
    host: str
    port: int


class Leader(NamedTuple):
    """The leader of a partition, and the epoch of its leadership. Without a leader ``node_id`` is NO_NODE."""

    node_id: int
    epoch: int


class ClusterView(Protocol):
    """The cluster as this node knows it. ``listener``: the one that a client came by, which gets its addresses."""

    @property
    def cluster_id(self) -> str: ...

    @property
    def node_id(self) -> int:
        """The id of this node; -1 before it has one."""

    @property
    def addresses(self) -> Mapping[str, Address]:
        """The advertised addresses of this node, by listener."""

    def brokers(self, listener: str) -> Sequence[Broker]:
        """All brokers that advertise an address of this listener, this one included."""

    def controller_id(self, listener: str) -> int: ...

    def find_coordinator(self, key: str, listener: str, *, is_transactional_id: bool) -> Broker | None:
        """The broker that coordinates a group or transactional id; None if none does now, or it has no address."""

    def leader(self, topic: str, partition: int) -> Leader: ...

    def has_lease(self) -> bool:
        """Whether this node may answer for what it leads now, because no other node can lead it."""


class SingleNode:
    """``ClusterView`` of a node that is alone: it coordinates and leads everything."""

    def __init__(self, cluster_id: str, node_id: int, addresses: Mapping[str, Address]) -> None:
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.addresses = addresses
        self._brokers = {listener: Broker(node_id, *address) for listener, address in addresses.items()}
        self._leader = Leader(node_id, 0)

    def brokers(self, listener: str) -> Sequence[Broker]:
        broker = self._brokers.get(listener)
        return () if broker is None else (broker,)

    def controller_id(self, listener: str) -> int:
        return self.node_id

    def find_coordinator(self, key: str, listener: str, *, is_transactional_id: bool) -> Broker | None:
        return self._brokers.get(listener)

    def leader(self, topic: str, partition: int) -> Leader:
        return self._leader

    def has_lease(self) -> bool:
        return True
