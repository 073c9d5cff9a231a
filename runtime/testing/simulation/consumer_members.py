"""``ConsumerMemberChecker``: what a coordinator may answer to members of the consumer protocol (KIP-848).

* The epochs that a member is told never fall, also after restarts: what was answered is in the log.
* A heartbeat or commit is accepted with no epoch that the member was not told, and a heartbeat with no older one than
  the last but one.
* A commit with an older epoch is not accepted for a partition that the member has given back (KIP-1251).
* An instance id is taken from a member only after it has left for a while or was removed (KIP-345).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from ....actors.consumer_group.messages import JOIN_EPOCH, LEAVE_EPOCH, ConsumerHeartbeat, ConsumerHeartbeatReply
from ....actors.consumer_group.records import Partition
from ....actors.errors import ErrorCode
from ....actors.group.events import GroupEvent, Kind, Reason
from ....actors.messages import Committed, DeleteGroup, OffsetCommit
from .history import Exchange, Listener

MemberName = tuple[str, str]
"""Group id and member id."""

Instance = tuple[str, str]
"""Group id and instance id."""


class ToldMember:
    """What a member was told. Times are counted in events, see ``Exchange``.

    ``epochs``: in their order, each with the time of its first answer. ``assigned``: also what it has to give back.
    ``lost``: what it has given back, and when.
    """

    __slots__ = ("assigned", "epochs", "lost")

    def __init__(self) -> None:
        self.epochs: dict[int, float] = {}
        self.assigned: set[Partition] = set()
        self.lost: dict[Partition, float] = {}

    @property
    def epoch(self) -> int:
        return max(self.epochs, default=JOIN_EPOCH)

    def tell(self, reply: ConsumerHeartbeatReply, at: float) -> None:
        """It gives back partitions in its epoch; with the next one it has given them back."""
        is_next = reply.member_epoch > self.epoch
        self.epochs.setdefault(reply.member_epoch, at)
        if reply.assigned is not None:
            self.assigned.update(reply.assigned)
        if is_next and reply.assigned is not None:
            for partition in self.assigned.difference(reply.assigned):
                self.lost[partition] = at
            self.assigned = set(reply.assigned)
        for partition in self.assigned & self.lost.keys():
            del self.lost[partition]

    def had_lost(self, partition: Partition, at: float) -> bool:
        return self.lost.get(partition, at) < at

    def newest_at(self, at: float) -> int:
        """The newest epoch that it was told before."""
        return max((epoch for epoch, since in self.epochs.items() if since < at), default=JOIN_EPOCH)


class ConsumerMemberChecker(Listener):
    """``fail`` is called with a text for each violation. ``topic_id``: of a topic of the running coordinator."""

    def __init__(self, fail: Callable[[str], None], topic_id: Callable[[str], bytes | None]) -> None:
        self._fail = fail
        self._topic_id = topic_id
        self._told: defaultdict[MemberName, ToldMember] = defaultdict(ToldMember)
        self._owners: dict[Instance, str] = {}  # member ids
        self._released: set[MemberName] = set()  # members that have left, or perhaps have

    # Members that leave, members that are loaded ---------------------------------------------------------------------

    def coordinator_starts(self) -> None:
        self._owners.clear()

    def group_changed(self, group_id: str, event: GroupEvent) -> None:
        if event.group_instance_id is None:
            return
        instance = group_id, event.group_instance_id
        if event.kind is Kind.MEMBER_ADDED and event.reason is Reason.LOADED:
            self._owners[instance] = event.member_id
        elif event.kind is Kind.MEMBER_REMOVED and event.reason is not Reason.STATIC_MEMBER_REPLACED:
            self._forget_owner(instance, event.member_id)

    def _forget_owner(self, instance: Instance, member_id: str) -> None:
        if self._owners.get(instance) == member_id:
            del self._owners[instance]

    def arrived(self, exchange: Exchange) -> None:
        message = exchange.message
        if isinstance(message, ConsumerHeartbeat) and message.member_epoch <= LEAVE_EPOCH:
            self._released.add((message.group_id, message.member_id))

    # Answers ---------------------------------------------------------------------------------------------------------

    def answered(self, exchange: Exchange) -> None:
        message: Any = exchange.message
        if isinstance(message, ConsumerHeartbeat):
            self._beat(exchange, message, exchange.answer)
        elif isinstance(message, OffsetCommit) and (message.group_id, message.member_id) in self._told:
            self._committed(exchange, message, exchange.answer)
        elif isinstance(message, DeleteGroup) and exchange.answer is ErrorCode.NONE:
            for name in [name for name in self._told if name[0] == message.group_id]:
                del self._told[name]

    def _beat(self, exchange: Exchange, message: ConsumerHeartbeat, reply: ConsumerHeartbeatReply) -> None:
        told = self._told[message.group_id, reply.member_id or message.member_id]
        if reply.error is ErrorCode.FENCED_MEMBER_EPOCH:
            self._check_fenced(exchange, message, reply, told)
        if reply.error is not ErrorCode.NONE or message.member_epoch <= LEAVE_EPOCH:
            return
        if message.member_epoch == JOIN_EPOCH:
            self._joined(exchange, message, reply)
        elif message.member_epoch not in list(told.epochs)[-2:]:
            epochs = ", ".join(map(str, told.epochs)) or "none"
            self._fail(f"{exchange} was accepted, but the member was told these epochs: {epochs}")
        if reply.member_epoch < told.epoch:
            self._fail(f"{exchange} was answered epoch {reply.member_epoch} after {told.epoch}")
        told.tell(reply, exchange.answered_at)

    def _check_fenced(
        self, exchange: Exchange, message: ConsumerHeartbeat, reply: ConsumerHeartbeatReply, told: ToldMember
    ) -> None:
        has_left = (message.group_id, message.member_id) in self._released
        if not has_left and message.member_epoch in told.epochs and "greater member epoch" in (reply.message or ""):
            self._fail(f"{exchange} has an epoch that the coordinator has answered, and does not know: {reply.message}")

    def _joined(self, exchange: Exchange, message: ConsumerHeartbeat, reply: ConsumerHeartbeatReply) -> None:
        member_id = reply.member_id or message.member_id
        if message.instance_id is None:
            return
        instance = message.group_id, message.instance_id
        owner = self._owners.get(instance, member_id)
        if owner != member_id and (message.group_id, owner) not in self._released:
            self._fail(f"{exchange} has joined, but its instance id belongs to {owner}, which has not left")
        self._owners[instance] = member_id
        self._released.discard((message.group_id, member_id))

    def _committed(self, exchange: Exchange, message: OffsetCommit, answer: Any) -> None:
        errors = answer.errors if isinstance(answer, Committed) else ()
        told, epoch = self._told[message.group_id, message.member_id], message.generation_id
        accepted = [each for each, error in zip(message.commits, errors, strict=False) if error is ErrorCode.NONE]
        if accepted and epoch not in told.epochs:
            self._fail(f"{exchange} was accepted, but the member was not told epoch {epoch}")
        if epoch >= told.newest_at(exchange.arrived_at):
            return
        for commit in accepted:
            topic_id = self._topic_id(commit.topic)
            if topic_id is not None and told.had_lost((topic_id, commit.partition), exchange.arrived_at):
                self._fail(f"{exchange} was accepted, but the member has given back {commit.topic}-{commit.partition}")
