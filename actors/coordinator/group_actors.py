"""GroupActors: the actors of groups are started and stopped, and groups without one are kept packed."""

from __future__ import annotations

from collections.abc import Callable

from ..base import ActorRef
from ..group.actor import GroupActor
from ..group.environment import GroupEnvironment
from ..group.in_flight import GroupSnapshot
from ..group.offsets import GroupData
from ..messages import Unpack
from .directory import Directory
from .topic_cleanup import TopicCleanups


class GroupActors:
    """Starts the actors of groups for the coordinator. ``spawn`` is the method of its actor."""

    def __init__(
        self,
        directory: Directory,
        environment: GroupEnvironment,
        cleanups: TopicCleanups,
        spawn: Callable[..., ActorRef],
    ) -> None:
        self._directory = directory
        self._environment = environment
        self._cleanups = cleanups
        self._spawn = spawn

    def add(self, group_id: str, data: GroupData) -> None:
        """Add a group that has no actor. An empty group exists until the next retention scan, as in Kafka."""
        number = self._directory.partitions.number_of(group_id)
        if data.may_be_passivated():
            self._directory.partitions[number].passivated.put(group_id, data.pack())
        else:
            self.start(group_id, number, data)

    def start(self, group_id: str, number: int, data: GroupData) -> ActorRef:
        """Start the actor of a group of partition ``number``."""
        ref = self._spawn(GroupActor, group_id, number, data, self._environment)
        if data.packed_chunks:
            ref.tell(Unpack())  # its first message
        self._directory.add_active(group_id, number, ref)
        return ref

    def activate(self, number: int, group_id: str) -> ActorRef:
        """Start the actor of a passivated group."""
        data = GroupData.unpack_head(self._directory.partitions[number].passivated.take(group_id))
        ref = self.start(group_id, number, data)
        self._cleanups.notify(group_id, ref)
        return ref

    def remove(self, group_id: str) -> None:
        """Stop the actor of a group that was deleted."""
        ref = self._directory.remove_active(group_id)
        if ref is not None:
            ref.stop(block=False)

    def pack(self, ref: ActorRef) -> None:
        """Keep only the packed data of a passivated group, unless a request has activated it again meanwhile."""
        snapshot: GroupSnapshot | None = ref.retire()
        if snapshot is None or self._directory.remove_active(snapshot.group_id) is None:
            return
        if snapshot.bug is None or not snapshot.data.is_empty():  # else it was deleted while it failed
            self.add(snapshot.group_id, snapshot.data)
