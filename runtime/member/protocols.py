"""The group protocols that a member may use: one row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from ...actors.text import did_you_mean
from .channel import Connector
from .consumer_membership import ConsumerMembership
from .group_membership import GroupMembership
from .membership import Membership
from .options import MemberOptions
from .shards import ShardOwner

MakeMembership = Callable[
    [Connector, str, MemberOptions, ShardOwner, Random, Callable[[], float]],
    GroupMembership,
]
"""From a connector, a group id, options, the owner of the shards, a source of randomness, and a clock in seconds.

Raises ValueError for options that the protocol does not have.
"""

PROTOCOLS: Mapping[str, MakeMembership] = {"classic": Membership, "consumer": ConsumerMembership}


def find_protocol(name: object) -> MakeMembership:
    """Raises ValueError for an unknown name."""
    protocol = PROTOCOLS.get(name) if isinstance(name, str) else None
    if protocol is None:
        hint = did_you_mean(str(name), PROTOCOLS)
        raise ValueError(f"protocol={name!r};{hint} expected one of {', '.join(PROTOCOLS)}")
    return protocol
