"""GroupOwners: which node of the cluster owns a group, by the newest register that this process has read."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ...actors.javahash import offsets_partition
from ..client.connection import ChannelLost
from ..client.security import NO_SECURITY, ClientSecurity
from ..cluster.register import NodeEntry, Register
from ..settings.address import Address

TIMEOUT_TTLS = 2
"""After so long without an answer the other node is frozen or cut off, and its partitions move."""


class RegisterSource(Protocol):
    """``ClusterNode``, or ``RegisterFollower`` in a process that owns nothing."""

    on_register_changed: Callable[[], None]

    @property
    def register(self) -> Register | None: ...

    @property
    def own_session(self) -> str: ...

    def has_lease(self) -> bool: ...


class GroupOwner(NamedTuple):
    """A node in one period in which it takes part."""

    session: str
    address: Address


class GroupOwners:
    """``source``: None while this process takes no part in the cluster. ``security``: of connections to the nodes."""

    def __init__(self, source: RegisterSource | None = None, security: ClientSecurity = NO_SECURITY) -> None:
        self.source = source
        self.security = security

    def register(self) -> Register:
        """Raises ChannelLost before there is one."""
        register = None if self.source is None else self.source.register
        if register is None:
            raise ChannelLost("this process has not read the cluster's register yet")
        return register

    def owner(self, group_id: str) -> GroupOwner:
        """Raises ChannelLost if no node owns the group now."""
        register = self.register()
        session = register.owners[offsets_partition(group_id, register.counts.offsets)]
        node = register.nodes.get(session)
        if node is None:
            raise ChannelLost(f"no node of the cluster owns the group {group_id!r} now")
        return GroupOwner(session, self._address_of(node))

    def is_own(self, owner: GroupOwner) -> bool:
        return owner.session == self._own_session

    @property
    def _own_session(self) -> str:
        return "" if self.source is None else self.source.own_session

    def has_lease(self) -> bool:
        """Whether the node of this process may answer for what it owns."""
        return self.source is not None and self.source.has_lease()

    def addresses(self) -> list[Address]:
        """Of all nodes, this one first. A node that has just restarted may have two sessions; the newer comes later."""
        register = self.register()
        by_name = {node.name: self._address_of(node) for node in register.nodes.values()}
        own = register.nodes.get(self._own_session)
        return list(dict.fromkeys([*([self._address_of(own)] if own is not None else []), *by_name.values()]))

    def timeout_s(self) -> float:
        """How long to wait for another node."""
        return TIMEOUT_TTLS * self.register().session_timeout_ms / 1000

    def _address_of(self, node: NodeEntry) -> Address:
        """Where this process reaches a node: by the listener with the name of its protocol, else by the first one."""
        endpoints = node.endpoints
        return Address(*(endpoints.get(self.security.settings.protocol) or next(iter(endpoints.values()))))
