"""Loading, unloading and failing of single partitions while the coordinator runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from ..base import DEFERRED, ActorRef
from ..engine_ports import ReplyTo
from ..group.offsets import GroupData
from ..messages import (
    ActorStopped,
    ContinueWork,
    GroupsLoaded,
    PartitionClosed,
    PartitionGained,
    PartitionLoaded,
    PartitionLost,
    PartitionOpened,
    QuarantinedGroup,
    Unload,
)
from .directory import Directory
from .partition_states import PartitionEvent

log = logging.getLogger("callboard.actors")

STOPPED_PER_TURN = 500
"""Groups of a lost partition that are told to stop in one turn; takes about a millisecond."""

AddGroup = Callable[[str, GroupData], None]
OwnershipMessage = PartitionGained | GroupsLoaded | PartitionLoaded | PartitionLost | ActorStopped


class StoppedReply:
    """``ReplyTo`` for ``Unload``: tells the coordinator that the actor has stopped, whatever the reply is."""

    __slots__ = ("_coordinator", "_partition")

    def __init__(self, coordinator: ActorRef, partition: int) -> None:
        self._coordinator = coordinator
        self._partition = partition

    def set(self, value: Any = None) -> None:
        self._coordinator.tell(ActorStopped(self._partition))

    def set_exception(self, exc_info: Any = None) -> None:
        self.set()


class PartitionOwnership:
    """Handles the messages about partitions for the coordinator. Late messages, of an earlier epoch, are ignored.

    A partition is loaded again only after all actors of its last period of ownership have stopped. So none of them
    appends a record or sends a message in the next period. ``on_settled`` is called with the number of a partition that
    is no longer loading.
    """

    def __init__(
        self,
        directory: Directory,
        writer: ActorRef,
        coordinator: ActorRef,
        add_group: AddGroup,
        on_settled: Callable[[int], None],
        tell_after_turn: Callable[[Any], None],
    ) -> None:
        self._on_settled = on_settled
        self._tell_after_turn = tell_after_turn
        self._directory = directory
        self._partitions = directory.partitions
        self._writer = writer
        self._coordinator = coordinator
        self._add_group = add_group
        self._methods: dict[type, Callable[[Any, ReplyTo | None], object]] = {
            PartitionGained: self._gain,
            GroupsLoaded: self._add_groups,
            PartitionLoaded: self._finish_loading,
            PartitionLost: self._lose,
            ActorStopped: self._count_stopped,
        }

    def handle(self, message: OwnershipMessage, reply: ReplyTo | None) -> object:
        """Handle a message. Returns the reply, or DEFERRED."""
        return self._methods[type(message)](message, reply)

    def _gain(self, message: PartitionGained, reply: ReplyTo | None) -> object:
        self._partitions[message.partition].when_stopped(partial(self._load, message, reply))
        return DEFERRED

    def _load(self, message: PartitionGained, reply: ReplyTo | None) -> None:
        is_applied = self._partitions.apply(message.partition, PartitionEvent.LOAD, message.epoch)
        if is_applied:
            self._writer.tell(PartitionOpened(message.partition, message.epoch))
        if reply is not None:
            reply.set(is_applied)

    def _add_groups(self, message: GroupsLoaded, _reply: ReplyTo | None) -> None:
        """Passivated groups get requests only after their partition is loaded; active groups get them at once."""
        partition = self._partitions[message.partition]
        if not partition.is_loading or partition.epoch != message.epoch:
            return
        partition.passivated.put_all(message.passivated)
        for group_id, data in message.active.items():
            try:
                self._add_group(group_id, data)
            except Exception as error:  # the other groups of this message must not be lost
                reason = f"the group cannot be restored from its records: {error!r}"
                log.error("group %r is quarantined: %s", group_id, reason)
                partition.quarantined[group_id] = QuarantinedGroup(reason, data.kind.type)

    def _finish_loading(self, message: PartitionLoaded, _reply: ReplyTo | None) -> None:
        number, partition = message.partition, self._partitions[message.partition]
        if message.failure:
            if self._partitions.apply(number, PartitionEvent.FAIL, message.epoch, message.failure):
                self._stop_groups(number)
                self._on_settled(number)
        elif self._partitions.apply(number, PartitionEvent.LOADED, message.epoch):
            partition.quarantined.update(message.quarantined)
            self._partitions.update_is_full()
            self._on_settled(number)

    def _lose(self, message: PartitionLost, reply: ReplyTo | None) -> object:
        """Reply when all actors of the partition have stopped."""
        partition = self._partitions[message.partition]
        if self._partitions.apply(message.partition, PartitionEvent.UNLOAD, message.epoch):
            self._stop_groups(message.partition)
            self._on_settled(message.partition)
        if reply is None:
            return None
        partition.when_stopped(partial(reply.set, None))
        return DEFERRED

    def _stop_groups(self, number: int) -> None:
        """Parked requests get NOT_COORDINATOR. Entries that wait for the log fail when all actors have stopped."""
        partition = self._partitions[number]
        self._stop_some(StoppedReply(self._coordinator, number), iter(partition.take_groups().items()))
        partition.when_stopped(partial(self._writer.tell, PartitionClosed(number)))

    def _stop_some(self, stopped: StoppedReply, groups: Iterator[tuple[str, ActorRef]]) -> None:
        """Stop the next groups. The others go on until it is their turn, as if the partition were lost later."""
        count = 0
        for count, (group_id, ref) in enumerate(islice(groups, STOPPED_PER_TURN), 1):  # noqa: B007
            self._directory.forget(group_id)
            ref.post(Unload(), stopped)
        if count == STOPPED_PER_TURN:
            self._tell_after_turn(ContinueWork(partial(self._stop_some, stopped, groups)))

    def _count_stopped(self, message: ActorStopped, _reply: ReplyTo | None) -> None:
        self._partitions[message.partition].count_stopped()
