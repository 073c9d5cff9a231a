"""CoordinatorActor: creates, lists and removes groups.

Only this actor changes the directory. Connections read it and send requests for existing groups directly to the
mailboxes of these groups; all other requests go to this actor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

from ..base import DEFERRED, ActorRef, ChildFailed, ChildPassivated, Envelope, ResilientActor
from ..engine_ports import Clock, ReplyTo
from ..errors import ErrorCode
from ..group.actor import GroupActor
from ..group.effects import ExpiredCounts, GroupCounters
from ..group.environment import GroupEnvironment
from ..group.event_log import EventLog
from ..group.in_flight import GroupSnapshot
from ..group.kind import ABSENT_NAME, CLASSIC, PASSIVATED_NAME
from ..group.offsets import GroupData, packed_protocol_type
from ..group.requests import REQUESTS
from ..javahash import offsets_partition
from ..messages import (
    AllLoaded,
    ContinueScan,
    DeleteTopicOffsets,
    ExpireOffsets,
    GroupChanged,
    GroupDeleted,
    GroupRequest,
    GroupScanned,
    GroupsLoaded,
    ListedGroup,
    ListGroups,
    PartitionLoaded,
    SettingsChanged,
    Shutdown,
    TopicsDeleted,
)
from ..ports import GroupSettings, Random
from ..strings import fits_kafka_string
from ..timer.messages import Expired
from .availability import Availability
from .group_scan import GroupScan
from .retention import RetentionScan
from .topic_cleanup import TopicCleanup

log = logging.getLogger("callboard.actors")


class Directory:
    """The groups by id, and the routing of requests to them."""

    def __init__(self, settings: GroupSettings) -> None:
        self.groups: dict[str, ActorRef] = {}  # active groups
        self.passivated: dict[str, bytes] = {}  # all other groups: results of ``GroupData.pack``
        self.listed: dict[str, GroupChanged] = {}  # entries of active groups for ListGroups
        self.availability = Availability()
        self.counters = GroupCounters()
        self.event_log = EventLog()
        self.on_offsets_expired: Callable[[ExpiredCounts], None] = _ignore_expired  # called after each retention scan
        self.coordinator: ActorRef
        self._settings = settings

    def post(self, request: GroupRequest, reply: ReplyTo) -> None:
        """Send a request to its group; the reply goes to ``reply``. Invalid requests get an error reply at once."""
        ref = self.groups.get(request.group_id)
        if self.coordinator.actor_inbox.queue:
            ref = None  # preserves order: earlier requests to the same group may still be in that mailbox
        if ref is not None and request.group_id and REQUESTS[type(request)].check is None:
            ref.actor_inbox.put(Envelope(request, reply))  # type: ignore[arg-type]
            return
        error = self.error_reply_for(request)
        if error is not None:
            reply.set(error)
        else:
            (ref or self.coordinator).post(request, reply)

    def list_groups(self, message: ListGroups) -> Any:
        """Ask for all groups. Returns a future of a tuple of ``ListedGroup``, or of an ErrorCode."""
        return self.coordinator.ask(message, block=False)

    def delete_topic_offsets(self, topics: frozenset[str]) -> None:
        """Let all groups delete their offsets of topics that were deleted, before any later commit."""
        self.coordinator.tell(TopicsDeleted(topics))

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
            return row.error_reply(request, ErrorCode.INVALID_GROUP_ID)
        error = ErrorCode.NONE if row.check is None else row.check(request, self._settings)
        return row.error_reply(request, error) if error else None


def _ignore_expired(_expired: ExpiredCounts) -> None:
    """The default of ``Directory.on_offsets_expired``."""


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
        GroupsLoaded: "add_loaded_groups",
        PartitionLoaded: "handle_partition_loaded",
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
        partitions: int,
        groups: Mapping[str, GroupData],
    ) -> None:
        super().__init__()
        self._directory = directory
        self._partitions = partitions
        self._loaded = groups
        self._environment = GroupEnvironment(
            settings, clock, random, self._actor_ref, timer, writer, directory.counters, directory.event_log
        )
        self._retention_scan = RetentionScan(settings, clock, timer, self._actor_ref, directory.counters)
        self._cleanups: list[TopicCleanup] = []
        directory.coordinator = self._actor_ref

    def on_start(self) -> None:
        """Activate groups with members; all other groups stay passivated until the first request."""
        for group_id, data in self._loaded.items():
            if not data.is_empty():
                self._add_group(group_id, data)
        self._loaded = {}
        if not self._directory.availability.loading:
            self._retention_scan.schedule()

    def _add_group(self, group_id: str, data: GroupData) -> None:
        """Add a group that has no actor. An empty group exists until the next retention scan, as in Kafka."""
        if data.is_packable():
            self._directory.passivated[group_id] = data.pack()
        else:
            self._spawn_group(group_id, data)

    def on_receive(self, message: Any) -> Any:
        return self.handle_request(message) if type(message) in REQUESTS else super().on_receive(message)

    def handle_request(self, request: GroupRequest) -> object:
        """Handle a request to a group that was not active when the request was sent."""
        ref, availability = self._directory.groups.get(request.group_id), self._directory.availability
        if ref is None:
            if not availability.is_full:
                error = availability.error_reply_for(request, self._partitions)
                if error is not None:
                    return error
            if request.group_id in self._directory.passivated:
                ref = self._activate(request.group_id)
            elif (reply := REQUESTS[type(request)].absent(request)) is not None:
                return reply
            else:
                ref = self._spawn_group(request.group_id, GroupData())
        assert self.reply_to is not None, "requests have a reply_to"
        ref.post(request, self.reply_to)
        return DEFERRED

    def list_groups(self, request: ListGroups) -> tuple[ListedGroup, ...] | ErrorCode:
        """The groups that match; an error while partitions are still being loaded."""
        availability = self._directory.availability
        if availability.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if request.types and CLASSIC not in request.types:
            return ()
        served = (
            ListedGroup(group.group_id, group.protocol_type, group.state, CLASSIC)
            for group in chain(self._directory.listed.values(), self._list_passivated())
        )
        return tuple(
            group
            for group in chain(served, availability.listed())
            if not request.states or group.state.lower() in request.states
        )

    def _list_passivated(self) -> Iterator[GroupChanged]:
        for group_id, packed in self._directory.passivated.items():
            yield GroupChanged(group_id, PASSIVATED_NAME, packed_protocol_type(packed))

    def update_listing(self, message: GroupChanged) -> None:
        if message.state == ABSENT_NAME:
            self._directory.listed.pop(message.group_id, None)
        else:
            self._directory.listed[message.group_id] = message

    def remove_group(self, message: GroupDeleted) -> None:
        self._directory.listed.pop(message.group_id, None)
        self._directory.groups.pop(message.group_id).stop(block=False)

    def handle_group_passivated(self, message: ChildPassivated) -> None:
        """Keep only the packed data of the group, unless a request has activated it again meanwhile."""
        snapshot: GroupSnapshot | None = message.child.retire()
        if snapshot is not None:
            self._directory.listed.pop(snapshot.group_id, None)
            self._directory.groups.pop(snapshot.group_id, None)
            if snapshot.bug is None or not snapshot.data.is_empty():  # else it was deleted while it failed
                self._add_group(snapshot.group_id, snapshot.data)

    def handle_group_failed(self, _message: ChildFailed) -> None:
        """Nothing to do: the placeholder replies behind the same reference, and the listing stays unchanged."""

    def shut_down(self, _message: Shutdown) -> None:
        """Nothing to do: the reply tells the sender that all earlier requests were passed to their groups."""

    # Loading ---------------------------------------------------------------------------------------------------------

    def add_loaded_groups(self, message: GroupsLoaded) -> None:
        """Passivated groups get requests only after their partition is loaded; active groups get them at once."""
        self._directory.passivated.update(message.passivated)
        for group_id, data in message.active.items():
            try:
                self._add_group(group_id, data)
            except Exception as error:  # the other groups of this message must not be lost
                reason = f"the group cannot be restored from its records: {error!r}"
                log.error("group %r is quarantined: %s", group_id, reason)
                self._directory.availability.quarantined[group_id] = reason

    def handle_partition_loaded(self, message: PartitionLoaded) -> None:
        availability = self._directory.availability
        availability.quarantined.update(message.quarantined)
        if message.failure:
            availability.failed[message.partition] = message.failure
        availability.loading.discard(message.partition)

    def handle_all_loaded(self, _message: AllLoaded) -> None:
        """Scans over all groups may begin."""
        self._retention_scan.schedule()

    # Scans over all groups -------------------------------------------------------------------------------------------

    def start_retention_scan(self, _message: Expired) -> None:
        self._retention_scan.schedule()
        if not self._retention_scan.is_running:
            group_ids = [*self._directory.groups, *self._directory.passivated]
            scan = GroupScan(ExpireOffsets(), group_ids, self._find_for_retention, self._actor_ref)
            self._retention_scan.start(scan)
            self._run_scan(scan)

    def _find_for_retention(self, group_id: str) -> ActorRef | None:
        ref = self._directory.groups.get(group_id)
        packed = self._directory.passivated.get(group_id)
        return self._activate(group_id) if packed is not None and self._retention_scan.may_have_expired(packed) else ref

    def delete_topic_offsets(self, message: TopicsDeleted) -> None:
        """Active groups get the message at once, before any later request; passivated groups get it from a scan."""
        cleanup = TopicCleanup(message.topics)
        for group_id, ref in self._directory.groups.items():
            cleanup.notify(group_id, ref)
        find = partial(self._find_for_cleanup, cleanup)
        cleanup.scan = GroupScan(cleanup.message, list(self._directory.passivated), find, self._actor_ref)
        self._cleanups = [*(earlier for earlier in self._cleanups if not earlier.scan.is_complete), cleanup]
        self._run_scan(cleanup.scan)

    def ignore_topic_deletion(self, _message: DeleteTopicOffsets) -> None:
        """The message was sent to a group that has been deleted meanwhile, with all its offsets."""

    def _find_for_cleanup(self, cleanup: TopicCleanup, group_id: str) -> ActorRef | None:
        packed = self._directory.passivated.get(group_id)
        return self._activate(group_id) if packed is not None and cleanup.may_concern(group_id, packed) else None

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
        if not self._directory.availability.loading:
            self._retention_scan.schedule()

    # Actors ----------------------------------------------------------------------------------------------------------

    def _activate(self, group_id: str) -> ActorRef:
        ref = self._spawn_group(group_id, GroupData.unpack(self._directory.passivated.pop(group_id)))
        for cleanup in self._cleanups:
            if not cleanup.scan.is_complete:
                cleanup.notify(group_id, ref)
        return ref

    def _spawn_group(self, group_id: str, data: GroupData) -> ActorRef:
        partition = offsets_partition(group_id, self._partitions)
        ref: ActorRef = self.spawn(GroupActor, group_id, partition, data, self._environment)
        self._directory.groups[group_id] = ref
        return ref
