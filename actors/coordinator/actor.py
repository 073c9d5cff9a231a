"""CoordinatorActor: routes requests to groups that have no actor yet. Only this actor changes the directory.

Its parts: ``GroupActors`` starts and stops the actors of groups, ``GroupScans`` visits all groups, and
``PartitionOwnership`` loads and unloads partitions.
"""

from __future__ import annotations

from typing import Any, get_args

from ..base import DEFERRED, ActorRef, ChildFailed, ChildPassivated, ResilientActor
from ..consumer_group.environment import ConsumerGroupPorts
from ..engine_ports import Clock
from ..error_reply import over_limit_reply, too_many_groups_reply
from ..errors import ErrorCode
from ..group.environment import GroupEnvironment
from ..group.kind import ABSENT_NAME
from ..group.offsets import GroupData
from ..group.requests import REQUESTS
from ..messages import (
    ContinueWork,
    DeleteTopicOffsets,
    GroupChanged,
    GroupDeleted,
    GroupRequest,
    ListGroups,
    Shutdown,
)
from ..ports import GroupSettings, Random, TopicsView
from .directory import Directory
from .group_actors import GroupActors
from .listing import GroupListing
from .ownership import OwnershipMessage, PartitionOwnership
from .retention import RetentionScan
from .scans import GroupScans, ScanMessage
from .topic_cleanup import TopicCleanups

DEFAULT_PORTS = ConsumerGroupPorts()


class CoordinatorActor(ResilientActor):
    """Creates, finds and lists groups."""

    may_pause = True
    handlers = {
        ListGroups: "list_groups",
        GroupChanged: "update_listing",
        GroupDeleted: "remove_group",
        ChildPassivated: "handle_group_passivated",
        **dict.fromkeys(get_args(OwnershipMessage), "handle_ownership"),
        **dict.fromkeys(get_args(ScanMessage), "handle_scan"),
        ContinueWork: "continue_work",
        ChildFailed: "ignore",  # the placeholder replies behind the same reference, and the listing stays unchanged
        DeleteTopicOffsets: "ignore",  # it was sent to a group that has been deleted meanwhile, with all its offsets
        Shutdown: "ignore",  # the reply tells the sender that all earlier requests were passed to their groups
    }

    def __init__(
        self,
        directory: Directory,
        clock: Clock,
        random: Random,
        settings: GroupSettings,
        timer: ActorRef,
        writer: ActorRef,
        topics: TopicsView,
        consumer_groups: ConsumerGroupPorts = DEFAULT_PORTS,
    ) -> None:
        super().__init__()
        ref = self._actor_ref
        self._directory = directory
        self._partitions = directory.partitions
        self._cleanups = TopicCleanups()
        self._environment = GroupEnvironment(
            *(settings, clock, random, ref, timer, writer, directory.counters, directory.event_log, topics),
            *(directory.partitions.memory, directory.memory_limit, consumer_groups),
        )
        self._groups = GroupActors(directory, self._environment, self._cleanups, self.spawn)
        retention = RetentionScan(settings, clock, timer, ref, directory.counters)
        self._scans = GroupScans(
            directory, ref, retention, self._cleanups, self._groups.activate, self.tell_self_after_turn
        )
        self._ownership = PartitionOwnership(
            *(directory, writer, ref, self._groups.add, self._scans.continue_cleanups, self.tell_self_after_turn)
        )
        directory.coordinator = ref

    def on_receive(self, message: Any) -> Any:
        return self.handle_request(message) if type(message) in REQUESTS else super().on_receive(message)

    def handle_request(self, request: GroupRequest) -> object:
        """Handle a request to a group that was not active when the request was sent, or during a detour."""
        group_id = request.group_id
        ref = self._directory.groups.get(group_id)
        if ref is None:
            row = REQUESTS[type(request)]
            if row.validate is not None and (invalid := row.validate(request, self._environment)) is not None:
                return invalid
            number = self._partitions.number_of(group_id)
            partition = self._partitions[number]
            if not self._partitions.is_full:
                error = partition.error_reply_for(request)
                if error is not None:
                    return error
            if group_id in partition.passivated:
                ref = self._groups.activate(number, group_id)
            elif (reply := row.absent(request)) is not None:
                return reply
            elif self._directory.is_full:
                return too_many_groups_reply(request)
            elif self._directory.memory_limit.refuses_new():
                return over_limit_reply(request, "memory_limit_bytes")
            else:
                ref = self._groups.start(group_id, number, GroupData(row.creates))
        if self._cleanups:
            self._cleanups.notify(group_id, ref)
        assert self.reply_to is not None, "requests have a reply_to"
        ref.post(request, self.reply_to)
        return DEFERRED

    def list_groups(self, _request: ListGroups) -> GroupListing | ErrorCode:
        """All groups; an error while partitions are still being loaded."""
        error = self._partitions.listing_error
        return GroupListing(self._directory) if error is ErrorCode.NONE else error

    def update_listing(self, message: GroupChanged) -> None:
        if message.state == ABSENT_NAME:
            self._directory.listed.pop(message.group_id, None)
        elif message.group_id in self._directory.groups:  # else its partition was unloaded
            self._directory.listed[message.group_id] = message

    def remove_group(self, message: GroupDeleted) -> None:
        self._groups.remove(message.group_id)

    def handle_group_passivated(self, message: ChildPassivated) -> None:
        self._groups.pack(message.child)

    def handle_ownership(self, message: OwnershipMessage) -> object:
        """A partition was gained, loaded, lost, or has failed."""
        return self._ownership.handle(message, self.reply_to)

    def handle_scan(self, message: ScanMessage) -> None:
        """A scan over all groups begins or continues."""
        self._scans.handle(message)

    def continue_work(self, message: ContinueWork) -> None:
        message.run()

    def ignore(self, _message: Any) -> None:
        """Nothing to do; see ``handlers``."""
