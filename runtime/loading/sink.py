"""Passes loaded groups and transactions to the actors, and logs the problems of loading."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...actors.base import ActorRef
from ...actors.coordinator.directory import Directory
from ...actors.messages import AllLoaded, GroupsLoaded, PartitionGained, PartitionLoaded
from ...actors.transactions.messages import PendingLoaded, TransactionsLoaded
from ..common.logs import get_logger
from ..log.recovery.misplaced import MisplacedError, advice
from .loader import newest_producer_id, open_transactions
from .pieces import CommittedEnds, LoadJob, LoadPiece, LoadReport, PackedGroups, TransactionalIds, UnpackedGroups

if TYPE_CHECKING:
    from ...actors.engine_ports import Clock
    from ..log.offsets_log import OffsetsLog
    from ..topics.catalogue import TopicCatalogue

log = get_logger("callboard.runtime")

EPOCH = 0
"""The epoch of partitions in local files, which no other node can own."""


class LoadSink:
    """Accepts the pieces of all partitions, on the node's loop; then ``finish``.

    ``accept`` raises MisplacedError for a partition with a group or transactional id that belongs to another one.
    """

    def __init__(
        self,
        directory: Directory,
        transactions: ActorRef,
        topics: TopicCatalogue,
        offsets_log: OffsetsLog,
        clock: Clock,
    ) -> None:
        self.is_finished = False
        self.records = 0
        self.seconds = 0.0
        self.failure = ""  # set for a misplaced group: partitions that were not loaded before it are not served
        self._directory = directory
        self._transactions = transactions
        self._topics = topics
        self._log = offsets_log
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._newest_producer_id = -1
        self._loading: set[int] = set()
        self._finished_transactions: list[PartitionLoaded] = []

    async def start(self) -> None:
        """Tell the actors that all partitions are loading. Those without data are loaded at once."""
        log, coordinator = self._log, self._directory.coordinator
        with_data = {*log.offsets_partitions_with_data(), *log.transactions_partitions_with_data()}
        for partition in range(sum(log.counts)):
            owner = coordinator if partition < log.first_transactions_partition else self._transactions
            is_applied = owner.ask(PartitionGained(partition, EPOCH), block=False)
            self._loading.add(partition)
            if partition not in with_data:
                self._finish_partition(partition, PartitionLoaded(partition, EPOCH))
        await is_applied

    def accept(self, job: LoadJob, piece: LoadPiece) -> None:
        """Pass a piece on at once. The ends of topics come first, before any client can fetch an offset."""
        match piece:
            case CommittedEnds(offsets):
                for (topic, partition), offset in offsets.items():
                    self._topics.raise_end(topic, partition, offset)
            case PackedGroups(groups):
                self._directory.coordinator.tell(GroupsLoaded(job.partition, EPOCH, groups, {}))
            case UnpackedGroups(groups):
                self._transactions.tell(PendingLoaded(open_transactions(groups)))
                self._directory.coordinator.tell(GroupsLoaded(job.partition, EPOCH, {}, groups))
            case TransactionalIds(values):
                self._newest_producer_id = max(self._newest_producer_id, newest_producer_id(values))
                self._transactions.tell(TransactionsLoaded(job.partition, EPOCH, values))
            case LoadReport():
                self._accept_report(job, piece)

    def _accept_report(self, job: LoadJob, report: LoadReport) -> None:
        if report.misplaced:
            root = Path(job.folder).parent
            self.failure = f"{report.misplaced}; {advice(root, self._log.counts)}"
            log.error("the log is not served", reason=self.failure)
            raise MisplacedError(self.failure)
        self.records += report.records
        self._log_problems(job, report)
        for damage in report.damages:
            self._log.add_damage(damage)
        loaded = PartitionLoaded(job.partition, EPOCH, report.quarantined, report.failure)
        self._finish_partition(job.partition, loaded)

    def _finish_partition(self, partition: int, loaded: PartitionLoaded) -> None:
        """Transactional ids wait for all partitions: their markers belong to groups."""
        self._loading.discard(partition)
        if partition < self._log.first_transactions_partition:
            self._directory.coordinator.tell(loaded)
        else:
            self._finished_transactions.append(loaded)

    def fail_rest(self, failure: str) -> None:
        """Refuse all partitions that are still loading."""
        for partition in sorted(self._loading):
            self._finish_partition(partition, PartitionLoaded(partition, EPOCH, {}, failure))

    def _log_problems(self, job: LoadJob, report: LoadReport) -> None:
        if report.failure:
            log.error("a partition could not be read", folder=job.folder, reason=report.failure, **_REFUSED)
        for problem in report.problems:
            log.error("a record was skipped", reason=problem)
        for group_id, reason in report.quarantined.items():
            log.error("a group is quarantined", group=group_id, reason=reason, **_QUARANTINED)
        if report.unknown_keys:
            log.warning("records of unknown types were skipped", folder=job.folder, keys=report.unknown_keys)

    async def finish(self) -> None:
        """All pieces were accepted: start the tasks that need all partitions."""
        self._topics.producer_ids.mark_used_up_to(self._newest_producer_id)
        await self._directory.coordinator.ask(AllLoaded(), block=False)
        for loaded in self._finished_transactions:
            self._transactions.tell(loaded)
        await self._transactions.ask(AllLoaded(), block=False)
        self.is_finished = True
        self.seconds = (self._clock.monotonic_ms() - self._began_ms) / 1000
        if self.records:
            log.info("everything is loaded", records=self.records, seconds=round(self.seconds, 2))


_REFUSED = {"consequence": "its groups or transactional ids are refused (NOT_COORDINATOR) until the next start"}
_QUARANTINED = {
    "consequence": "it is refused (COORDINATOR_NOT_AVAILABLE) until the next start; its records stay in the log",
    "advice": "stop the server and look at the record with `callboard log verify`",
}
