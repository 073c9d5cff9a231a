"""CoordinatorActor: creates, lists and removes groups. Only this actor changes the directory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any, get_args

from ..base import DEFERRED, ActorRef, ChildFailed, ChildPassivated, ResilientActor
from ..engine_ports import Clock
from ..error_reply import error_reply
from ..errors import ErrorCode
from ..group.actor import GroupActor
from ..group.environment import GroupEnvironment
from ..group.in_flight import GroupSnapshot
from ..group.kind import ABSENT_NAME, PASSIVATED_NAME
from ..group.offsets import GroupData, packed_types
from ..group.requests import REQUESTS
from ..messages import (
    AllLoaded,
    ContinueScan,
    DeleteTopicOffsets,
    ExpireOffsets,
    GroupChanged,
    GroupDeleted,
    GroupRequest,
    GroupScanned,
    ListedGroup,
    ListGroups,
    SettingsChanged,
    Shutdown,
    TopicsDeleted,
)
from ..ports import GroupSettings, Random, TopicsView
from ..timer.messages import Expired
from .directory import Directory
from .group_scan import GroupScan
from .ownership import OwnershipMessage, PartitionOwnership
from .retention import RetentionScan
from .topic_cleanup import TopicCleanup


class CoordinatorActor(ResilientActor):
    """Creates, finds and lists groups."""

    handlers = {
        DeleteTopicOffsets: "ignore_topic_deletion",
        ListGroups: "list_groups",
        GroupChanged: "update_listing",
        GroupDeleted: "remove_group",
        ChildPassivated: "handle_group_passivated",
        ChildFailed: "handle_group_failed",
        Expired: "start_retention_scan",
        **dict.fromkeys(get_args(OwnershipMessage), "handle_ownership"),
        AllLoaded: "handle_all_loaded",
        TopicsDeleted: "delete_topic_offsets",
        GroupScanned: "handle_group_scanned",
        ContinueScan: "continue_scan",
        SettingsChanged: "handle_settings_changed",
        Shutdown: "shut_down",
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
    ) -> None:
        super().__init__()
        self._directory = directory
        self._partitions = directory.partitions
        self._ownership = PartitionOwnership(directory, writer, self._actor_ref, self._add_group)
        self._environment = GroupEnvironment(
            *(settings, clock, random, self._actor_ref, timer, writer, directory.counters, directory.event_log, topics),
            *(directory.partitions.memory, directory.memory_limit),
        )
        self._retention_scan = RetentionScan(settings, clock, timer, self._actor_ref, directory.counters)
        self._cleanups: list[TopicCleanup] = []
        directory.coordinator = self._actor_ref

    def _add_group(self, group_id: str, data: GroupData) -> None:
        """Add a group that has no actor. An empty group exists until the next retention scan, as in Kafka."""
        number = self._partitions.number_of(group_id)
        if data.is_packable():
            self._partitions[number].passivated.put(group_id, data.pack())
        else:
            self._spawn_group(group_id, number, data)

    def on_receive(self, message: Any) -> Any:
        return self.handle_request(message) if type(message) in REQUESTS else super().on_receive(message)

    def handle_request(self, request: GroupRequest) -> object:
        """Handle a request to a group that was not active when the request was sent."""
        ref = self._directory.groups.get(request.group_id)
        if ref is None:
            number = self._partitions.number_of(request.group_id)
            partition = self._partitions[number]
            if not self._partitions.is_full:
                error = partition.error_reply_for(request)
                if error is not None:
                    return error
            if request.group_id in partition.passivated:
                ref = self._activate(number, request.group_id)
            elif (reply := REQUESTS[type(request)].absent(request)) is not None:
                return reply
            elif self._directory.memory_limit.refuses_new():
                return error_reply(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            else:
                row = REQUESTS[type(request)]
                ref = self._spawn_group(request.group_id, number, GroupData(row.creates))
        assert self.reply_to is not None, "requests have a reply_to"
        ref.post(request, self.reply_to)
        return DEFERRED

    def list_groups(self, request: ListGroups) -> tuple[ListedGroup, ...] | ErrorCode:
        """The groups that match; an error while partitions are still being loaded."""
        error = self._partitions.listing_error
        if error is not ErrorCode.NONE:
            return error
        served = (
            ListedGroup(group.group_id, group.protocol_type, group.state, group.group_type)
            for group in chain(self._directory.listed.values(), self._list_passivated())
        )
        return tuple(
            group
            for group in chain(served, self._partitions.list_quarantined())
            if (not request.states or group.state.lower() in request.states)
            and (not request.types or group.group_type in request.types)
        )

    def _list_passivated(self) -> Iterator[GroupChanged]:
        for group_id, packed in self._directory.passivated.items():
            group_type, protocol_type = packed_types(packed)
            yield GroupChanged(group_id, PASSIVATED_NAME, protocol_type, group_type)

    def update_listing(self, message: GroupChanged) -> None:
        if message.state == ABSENT_NAME:
            self._directory.listed.pop(message.group_id, None)
        elif message.group_id in self._directory.groups:  # else its partition was unloaded
            self._directory.listed[message.group_id] = message

    def remove_group(self, message: GroupDeleted) -> None:
        ref = self._directory.remove_active(message.group_id)
        if ref is not None:
            ref.stop(block=False)

    def handle_group_passivated(self, message: ChildPassivated) -> None:
        """Keep only the packed data of the group, unless a request has activated it again meanwhile."""
        snapshot: GroupSnapshot | None = message.child.retire()
        if snapshot is None or self._directory.remove_active(snapshot.group_id) is None:
            return
        if snapshot.bug is None or not snapshot.data.is_empty():  # else it was deleted while it failed
            self._add_group(snapshot.group_id, snapshot.data)

    def handle_group_failed(self, _message: ChildFailed) -> None:
        """Nothing to do: the placeholder replies behind the same reference, and the listing stays unchanged."""

    def shut_down(self, _message: Shutdown) -> None:
        """Nothing to do: the reply tells the sender that all earlier requests were passed to their groups."""

    # Partitions ------------------------------------------------------------------------------------------------------

    def handle_ownership(self, message: OwnershipMessage) -> object:
        """A partition was gained, loaded, lost, or has failed."""
        return self._ownership.handle(message, self.reply_to)

    def handle_all_loaded(self, _message: AllLoaded) -> None:
        """Scans over all groups may begin."""
        self._retention_scan.schedule()

    # Scans over all groups -------------------------------------------------------------------------------------------

    def start_retention_scan(self, _message: Expired) -> None:
        self._retention_scan.schedule()
        if not self._retention_scan.is_running:
            scan = GroupScan(
                ExpireOffsets(), self._groups_of_active_partitions(), self._find_for_retention, self._actor_ref
            )
            self._retention_scan.start(scan)
            self._run_scan(scan)

    def _groups_of_active_partitions(self) -> Iterator[tuple[int, str]]:
        """All groups, with their partition. The groups of a partition are determined when it is their turn."""
        for number, partition in enumerate(self._partitions):
            if partition.is_active:
                yield from ((number, group_id) for group_id in (*partition.active, *partition.passivated))

    def _find_for_retention(self, number: int, group_id: str) -> ActorRef | None:
        partition = self._partitions[number]
        packed = partition.passivated.get(group_id)
        if packed is not None and self._retention_scan.may_have_expired(packed):
            return self._activate(number, group_id)
        return partition.active.get(group_id)

    def delete_topic_offsets(self, message: TopicsDeleted) -> None:
        """Active groups get the message at once, before any later request; passivated groups get it from a scan."""
        cleanup = TopicCleanup(message.topics)
        for group_id, ref in self._directory.groups.items():
            cleanup.notify(group_id, ref)
        find = partial(self._find_for_cleanup, cleanup)
        passivated = [
            (number, group_id) for number, partition in enumerate(self._partitions) for group_id in partition.passivated
        ]
        cleanup.scan = GroupScan(cleanup.message, passivated, find, self._actor_ref)
        self._cleanups = [*(earlier for earlier in self._cleanups if not earlier.scan.is_complete), cleanup]
        self._run_scan(cleanup.scan)

    def ignore_topic_deletion(self, _message: DeleteTopicOffsets) -> None:
        """The message was sent to a group that has been deleted meanwhile, with all its offsets."""

    def _find_for_cleanup(self, cleanup: TopicCleanup, number: int, group_id: str) -> ActorRef | None:
        packed = self._partitions[number].passivated.get(group_id)
        return (
            self._activate(number, group_id) if packed is not None and cleanup.may_concern(group_id, packed) else None
        )

    def handle_group_scanned(self, message: GroupScanned) -> None:
        if message.scan.count_reply():
            self._run_scan(message.scan)

    def continue_scan(self, message: ContinueScan) -> None:
        self._run_scan(message.scan)

    def _run_scan(self, scan: GroupScan) -> None:
        if scan.run_part():
            self.tell_self_after_turn(ContinueScan(scan))
        elif scan is self._retention_scan.scan:
            self._retention_scan.report(self._directory.on_offsets_expired)

    def handle_settings_changed(self, _message: SettingsChanged) -> None:
        if self._partitions.listing_error is ErrorCode.NONE:
            self._retention_scan.schedule()

    # Actors ----------------------------------------------------------------------------------------------------------

    def _activate(self, number: int, group_id: str) -> ActorRef:
        data = GroupData.unpack(self._partitions[number].passivated.take(group_id))
        ref = self._spawn_group(group_id, number, data)
        for cleanup in self._cleanups:
            if not cleanup.scan.is_complete:
                cleanup.notify(group_id, ref)
        return ref

    def _spawn_group(self, group_id: str, number: int, data: GroupData) -> ActorRef:
        ref: ActorRef = self.spawn(GroupActor, group_id, number, data, self._environment)
        self._directory.add_active(group_id, number, ref)
        return ref
