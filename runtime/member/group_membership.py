"""GroupMembership: what the other parts of a member use of its membership, whatever the protocol of its group."""

from __future__ import annotations

from random import Random
from typing import Protocol

from ...actors.errors import ErrorCode
from .lease import Lease
from .member_channels import MemberChannels
from .member_log import MemberLog
from .options import MemberOptions
from .owned_shards import OwnedShards
from .reactions import Reaction
from .resources import ResourceSet

Identity = tuple[str, int]
"""A member id and a generation, or a member epoch; -1 outside of the group."""


class GroupMembership(Protocol):
    """``Membership`` is that of the classic protocol, ``ConsumerMembership`` that of the consumer protocol."""

    group_id: str
    options: MemberOptions
    owned: OwnedShards
    channels: MemberChannels
    lease: Lease
    member_log: MemberLog
    random: Random

    @property
    def identity(self) -> Identity: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def needs_rejoin(self) -> bool:
        """Whether the member should not wait for the offsets of new shards any longer."""

    def start(self, resources: ResourceSet) -> None:
        """Start the tasks that join and send heartbeats."""

    async def leave(self) -> None: ...

    async def set_resources(self, resources: ResourceSet) -> None: ...

    def check_lease(self) -> bool:
        """Whether the lease holds. If not, all shards are lost."""

    def react(self, reaction: Reaction, identity: Identity, error: ErrorCode, request: str) -> None:
        """Carry out a reaction to the answer of a request that had this identity."""
