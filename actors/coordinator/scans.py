"""GroupScans: what visits all groups, the retention scan and the cleanup after topics were deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ..base import ActorRef
from ..errors import ErrorCode
from ..messages import AllLoaded, ContinueScan, ExpireOffsets, GroupScanned, SettingsChanged, TopicsDeleted
from ..timer.messages import Expired
from . import group_scan
from .directory import Directory
from .group_scan import GroupScan
from .retention import RetentionScan
from .topic_cleanup import TopicCleanup, TopicCleanups

ScanMessage = Expired | AllLoaded | SettingsChanged | TopicsDeleted | GroupScanned | ContinueScan


class GroupScans:
    """Handles the messages about scans for the coordinator (``owner``).

    ``activate`` starts the actor of a passivated group; ``tell_after_turn`` sends a message to the coordinator after
    all other actors and sockets had their turn.
    """

    def __init__(
        self,
        directory: Directory,
        owner: ActorRef,
        retention: RetentionScan,
        cleanups: TopicCleanups,
        activate: Callable[[int, str], ActorRef],
        tell_after_turn: Callable[[Any], None],
    ) -> None:
        self._directory = directory
        self._partitions = directory.partitions
        self._owner = owner
        self._retention = retention
        self._cleanups = cleanups
        self._activate = activate
        self._tell_after_turn = tell_after_turn
        self._methods: dict[type, Callable[[Any], None]] = {
            Expired: self._start_retention_scan,
            AllLoaded: self._schedule,
            SettingsChanged: self._reschedule,
            TopicsDeleted: self._start_cleanup,
            GroupScanned: self._count_reply,
            ContinueScan: self._continue,
        }

    def handle(self, message: ScanMessage) -> None:
        self._methods[type(message)](message)

    def _schedule(self, _message: AllLoaded) -> None:
        self._retention.schedule()

    def _reschedule(self, _message: SettingsChanged) -> None:
        if self._partitions.listing_error is ErrorCode.NONE:  # else no scan is scheduled yet
            self._retention.schedule()

    def _start_retention_scan(self, _message: Expired) -> None:
        self._retention.schedule()
        if not self._retention.is_running:
            scan = GroupScan(
                ExpireOffsets(), self._groups(), self._find_for_retention, self._owner, group_scan.GROUPS_PER_TURN
            )
            self._retention.start(scan)
            self._run(scan)

    def _groups(self) -> Iterator[tuple[int, str]]:
        """All groups, with their partition. The groups of a partition are determined when it is their turn."""
        for number, partition in enumerate(self._partitions):
            if partition.is_active:
                yield from ((number, group_id) for group_id in (*partition.active, *partition.passivated))

    def _find_for_retention(self, number: int, group_id: str) -> ActorRef | None:
        partition = self._partitions[number]
        packed = partition.passivated.get(group_id)
        if packed is not None and self._retention.may_have_expired(packed):
            return self._activate(number, group_id)
        return partition.active.get(group_id)

    def _start_cleanup(self, message: TopicsDeleted) -> None:
        """Until the cleanup is complete, requests go through the coordinator, which first tells their group."""
        cleanup = TopicCleanup(message.topics, message.done)
        self._cleanups.add(cleanup)
        self._directory.is_detour = True
        self._clean(cleanup, range(len(self._partitions)))

    def continue_cleanups(self, number: int) -> None:
        """A partition is no longer loading: visit its groups, if it has any, for the topics deleted meanwhile."""
        for cleanup in self._cleanups.take_waiting_for(number):
            self._clean(cleanup, (number,))

    def _clean(self, cleanup: TopicCleanup, numbers: Iterable[int]) -> None:
        find = partial(self._find_for_cleanup, cleanup)
        groups_per_turn = max(group_scan.GROUPS_PER_TURN // max(len(cleanup.message.topics), 1), 1)
        groups = self._groups_to_clean(cleanup, numbers)
        scan = GroupScan(cleanup.message, groups, find, self._owner, groups_per_turn)
        cleanup.scans.append(scan)
        self._run(scan)

    def _groups_to_clean(self, cleanup: TopicCleanup, numbers: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Those of partitions that have failed, too: their active groups get requests later."""
        for number in numbers:
            partition = self._partitions[number]
            if partition.is_loading:
                cleanup.loading.add(number)
            else:
                yield from ((number, group_id) for group_id in (*partition.active, *partition.passivated))

    def _find_for_cleanup(self, cleanup: TopicCleanup, number: int, group_id: str) -> ActorRef | None:
        partition = self._partitions[number]
        packed = partition.passivated.get(group_id)
        if packed is None:
            ref = partition.active.get(group_id)
            return ref if ref is not None and cleanup.add_notified(group_id) else None
        return self._activate(number, group_id) if cleanup.may_concern(group_id, packed) else None

    def _count_reply(self, message: GroupScanned) -> None:
        if message.scan.count_reply():
            self._run(message.scan)

    def _continue(self, message: ContinueScan) -> None:
        self._run(message.scan)

    def _run(self, scan: GroupScan) -> None:
        if scan.run_part():
            self._tell_after_turn(ContinueScan(scan))
        elif scan is self._retention.scan:
            self._retention.report(self._directory.on_offsets_expired)
        else:
            self._cleanups.remove_complete()
            self._directory.is_detour = len(self._cleanups) > 0
