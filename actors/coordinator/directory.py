"""The directory of all groups. Only CoordinatorActor changes it.

Connections read it and send requests for active groups directly to the mailboxes of these groups; all other requests
go to CoordinatorActor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import ActorRef, Envelope
from ..engine_ports import NOT_HANDLED, ReplyTo
from ..errors import ErrorCode
from ..group.effects import ExpiredCounts, GroupCounters
from ..group.event_log import EventLog
from ..group.rebalance_counts import RebalanceCounts
from ..group.requests import REQUESTS, reject
from ..memory import MemoryLimit
from ..messages import GroupChanged, GroupRequest, ListGroups, SettingsChanged, TopicsDeleted
from ..ports import GroupSettings
from ..strings import fits_kafka_string
from .partitions import GroupPartitions, PassivatedGroups


class Directory:
    """The groups by id and by partition, and the routing of requests to them. ``partition_count``: of the log."""

    def __init__(self, settings: GroupSettings, partition_count: int) -> None:
        self.groups: dict[str, ActorRef] = {}  # active groups
        self.listed: dict[str, GroupChanged] = {}  # entries of active groups for ListGroups
        self.partitions = GroupPartitions(partition_count)
        self.memory_limit = MemoryLimit(lambda: settings.memory_limit_bytes)
        self.counters = GroupCounters()
        self.rebalances = RebalanceCounts()
        self.event_log = EventLog(self.rebalances)
        self.on_offsets_expired: Callable[[ExpiredCounts], None] = _ignore_expired  # called after each retention scan
        self.coordinator: ActorRef
        self.is_detour = False  # whether requests to active groups go through the coordinator, too
        self._settings = settings
        memory = self.partitions.memory
        self.memory_limit.sources["active groups"] = lambda: memory.active_bytes
        self.memory_limit.sources["passivated groups"] = lambda: memory.packed_bytes

    @property
    def passivated(self) -> PassivatedGroups:
        """All groups without an actor: results of ``GroupData.pack``."""
        return self.partitions.passivated

    @property
    def is_full(self) -> bool:
        """Whether there are ``groups_max`` groups."""
        return len(self.groups) + len(self.passivated) >= self._settings.groups_max

    def add_active(self, group_id: str, partition: int, ref: ActorRef) -> None:
        """Add a group that has an actor now."""
        self.groups[group_id] = self.partitions[partition].active[group_id] = ref
        self.partitions.memory.add_active(group_id)

    def remove_active(self, group_id: str) -> ActorRef | None:
        """Remove a group that has an actor. None if it has none: its partition was unloaded meanwhile."""
        if self.partitions.of(group_id).active.pop(group_id, None) is None:
            return None
        return self.forget(group_id)

    def forget(self, group_id: str) -> ActorRef | None:
        """Remove a group from all but its partition."""
        self.listed.pop(group_id, None)
        self.partitions.memory.remove_active(group_id)
        return self.groups.pop(group_id, None)

    def post(self, request: GroupRequest, reply: ReplyTo) -> None:
        """Send a request to its group; the reply goes to ``reply``. Invalid requests get an error reply at once."""
        ref = self.groups.get(request.group_id)
        if self.is_detour or self.coordinator.actor_inbox.queue:
            ref = None  # preserves order: earlier messages to the same group may still be there
        if ref is not None and request.group_id and REQUESTS[type(request)].check is None:
            ref.actor_inbox.put(Envelope(request, reply))  # type: ignore[arg-type]
            return
        error = self.error_reply_for(request)
        if error is not None:
            reply.set(error)
        else:
            (ref or self.coordinator).post(request, reply)

    def answer_at_once(self, request: GroupRequest) -> Any:
        """The reply of an idle group to a request without ``check``; NOT_HANDLED if the request has to be sent.

        See ``Inbox.answer_at_once``.
        """
        ref = self.groups.get(request.group_id)
        if ref is None or not request.group_id or self.is_detour or self.coordinator.actor_inbox.queue:
            return NOT_HANDLED
        return ref.actor_inbox.answer_at_once(request)

    def list_groups(self) -> Any:
        """Ask for all groups. Returns a future of a ``GroupListing``, or of an ErrorCode."""
        return self.coordinator.ask(ListGroups(), block=False)

    def delete_topic_offsets(self, topics: frozenset[str], done: Callable[[], None] | None = None) -> None:
        """Let all groups delete their offsets of topics that were deleted, before any later commit. Then ``done``."""
        self.coordinator.tell(TopicsDeleted(topics, done))

    def notify_of_settings(self) -> None:
        """Tell the actors that the settings have changed."""
        self.coordinator.tell(SettingsChanged())

    def error_reply_for(self, request: GroupRequest) -> Any:
        """The reply to a request that is invalid for any group; None if it is valid.

        Requests of members need a group id. Offsets may be committed with an empty group id, as in Kafka.
        """
        row = REQUESTS[type(request)]
        is_missing = row.needs_group_id and not request.group_id
        if is_missing or not fits_kafka_string(request.group_id):
            return reject(request, ErrorCode.INVALID_GROUP_ID)
        error = ErrorCode.NONE if row.check is None else row.check(request, self._settings)
        return reject(request, error) if error else None


def _ignore_expired(_expired: ExpiredCounts) -> None:
    """The default of ``Directory.on_offsets_expired``."""
