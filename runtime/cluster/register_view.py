"""RegisterView: what clients learn about the cluster, by the newest register that this node has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..kafka.cluster_view import NO_NODE, Broker, Leader
from ..log.partition import TOPIC, TRANSACTIONS_TOPIC
from ..log.reading.partition_reader import partition_of
from ..settings.address import Address
from .cluster_node import ClusterNode
from .register import NodeEntry, Register
from .topic_leadership import led_with

NO_LEADER = Leader(NO_NODE, -1)


class RegisterView:
    """``ClusterView``. ``addresses``: those of this node."""

    def __init__(self, node: ClusterNode, addresses: Mapping[str, Address]) -> None:
        self.addresses = addresses
        self._node = node

    @property
    def cluster_id(self) -> str:
        register = self._node.register
        return "" if register is None else register.cluster_id

    @property
    def node_id(self) -> int:
        register = self._node.register
        return NO_NODE if register is None else register.node_ids.get(self._node.name, NO_NODE)

    def brokers(self, listener: str) -> Sequence[Broker]:
        """A node that has just restarted may have two sessions; the newer one comes later."""
        register = self._node.register
        if register is None:
            own = self.addresses.get(listener)
            return () if own is None else (Broker(NO_NODE, *own),)
        by_name = {node.name: self._broker(node, listener) for node in register.nodes.values()}
        return tuple(broker for broker in by_name.values() if broker is not None)

    def controller_id(self, listener: str) -> int:
        return min((broker.node_id for broker in self.brokers(listener)), default=NO_NODE)

    def find_coordinator(self, key: str, listener: str, *, is_transactional_id: bool) -> Broker | None:
        """None also if the owner shows no sign of life. Clients of a frozen node would wait until their time limit."""
        register = self._node.register
        if register is None:
            return None
        offsets, transactions = register.counts
        partition = offsets + partition_of(key, transactions) if is_transactional_id else partition_of(key, offsets)
        node = self._owner(register, partition)
        if node is None or self._node.is_silent(register.owners[partition]):
            return None
        return self._broker(node, listener)

    def leader(self, topic: str, partition: int) -> Leader:
        """All partitions of a client's topic are led by the owner of one offsets partition, see ``led_with``."""
        register = self._node.register
        if register is None:
            return NO_LEADER
        number = led_with(topic, register.counts.offsets)
        if topic == TOPIC:
            number = partition
        elif topic == TRANSACTIONS_TOPIC:
            number = register.counts.offsets + partition
        node = self._owner(register, number)
        return NO_LEADER if node is None else Leader(node.node_id, register.epochs[number])

    def has_lease(self) -> bool:
        return self._node.has_lease()

    def _owner(self, register: Register, partition: int) -> NodeEntry | None:
        return register.nodes.get(register.owners[partition])

    def _broker(self, node: NodeEntry, listener: str) -> Broker | None:
        """None for a node that advertises no address of this listener."""
        endpoint = node.endpoints.get(listener)
        return None if endpoint is None else Broker(node.node_id, *endpoint)
