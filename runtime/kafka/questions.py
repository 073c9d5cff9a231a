"""Questions: what the nodes of a cluster ask each other about their groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class OtherNode(NamedTuple):
    """A node of the cluster in one session. ``is_own``: it is this one."""

    session: str
    node_id: int
    is_own: bool


class Questions(Protocol):
    """Asks other nodes of the cluster, see ``node_subjects``."""

    def owner(self, group_id: str) -> OtherNode | None:
        """The node that owns a group, as far as this one knows; None if none does now."""

    def leader(self, topic: str) -> OtherNode | None:
        """The same for the node that leads a topic."""

    def partitions(self) -> Mapping[OtherNode, Sequence[int]]:
        """The partitions of the groups by owner, without those that no node owns now."""

    def has_lease(self) -> bool:
        """Whether this node may answer for its groups."""

    async def ask(self, node: OtherNode, subject: str, group_id: str, content: bytes, asked_by: bytes) -> bytes:
        """The content of the answer. Raises CoordinatorError if it is refused, and NotReached."""


class NotReached(Exception):
    """Another node cannot be reached. ``was_sent``: it may have got the request."""

    def __init__(self, text: str, *, was_sent: bool) -> None:
        super().__init__(text)
        self.was_sent = was_sent
