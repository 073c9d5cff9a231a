"""What a group notes of its rebalances, besides its events, for the flight recorder. Pure.

Heartbeats and commits cause none, unless they are refused. Notes of a turn are handled before its events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..records import MemberValue
from .events import Identity

Partition = tuple[bytes, int]
"""A topic id and a number."""


class Rejoined(NamedTuple):
    """A member has sent JoinGroup again."""

    monotonic_ms: int
    member: Identity


class KeptAbsent(NamedTuple):
    """A static member has not rejoined in time, and stays a member."""

    member: Identity


class LeaderSynced(NamedTuple):
    """The leader has sent the assignment. It is not durable yet."""

    monotonic_ms: int


class AllSynced(NamedTuple):
    """All members of the generation have sent SyncGroup."""

    monotonic_ms: int


class Assigned(NamedTuple):
    """The members have an assignment that is durable. ``is_loaded``: it is that of a group that was loaded.

    ``members``: those of the classic protocol, with the bytes of their leader, which may be anything. ``targets``: the
    partitions of the members of the consumer protocol, by member id.
    """

    protocol: str
    leader: str = ""
    members: tuple[MemberValue, ...] = ()
    targets: Mapping[str, tuple[Partition, ...]] | None = None
    is_loaded: bool = False

    @property
    def member_count(self) -> int:
        return len(self.members) if self.targets is None else len(self.targets)


REFUSALS_KEPT = 16
"""How many of the last refusals of each kind are kept."""


class Fenced(NamedTuple):
    """A request was refused because another member has its instance id now."""

    monotonic_ms: int
    group_instance_id: str


class JoinRefused(NamedTuple):
    """A JoinGroup was refused, because no assignor that it offers is offered by all members."""

    monotonic_ms: int
    member: Identity
    offers: tuple[str, ...]


class CommitRefused(NamedTuple):
    """A commit was refused, because its sender is not a member any more, or has an old generation."""

    monotonic_ms: int
    member_id: str


Refusal = Fenced | JoinRefused | CommitRefused

Note = Rejoined | KeptAbsent | LeaderSynced | AllSynced | Assigned | Refusal
