"""Passes loaded groups and transactions to the actors, and logs the problems of loading."""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...actors.base import ActorRef
from ...actors.coordinator.directory import Directory
from ...actors.messages import AllLoaded, GroupsLoaded, PartitionGained, PartitionLoaded, PartitionLost
from ...actors.transactions.messages import PendingLoaded, TransactionsLoaded
from ..common.logs import get_logger
from ..log.pieces import CommittedEnds, LoadJob, LoadPiece, LoadReport, PackedGroups, TransactionalIds, UnpackedGroups
from ..log.recovery.misplaced import MisplacedError, advice
from .loader import newest_producer_id, open_transactions

if TYPE_CHECKING:
    from ...actors.engine_ports import Clock
    from ..log.store import LogStore
    from ..topics.catalogue import TopicCatalogue

log = get_logger("callboard.runtime")


class LoadSink:
    """Accepts the pieces of all partitions, on the node's loop; then ``finish``.

    ``accept`` raises MisplacedError for a partition with a group or transactional id that belongs to another one.
    """

    def __init__(
        self, directory: Directory, transactions: ActorRef, topics: TopicCatalogue, store: LogStore, clock: Clock
    ) -> None:
        self.is_finished = False
        self.records = 0
        self.seconds = 0.0
        self.failure = ""  # set for a misplaced group: partitions that were not loaded before it are not served
        self.epochs: dict[int, int] = {}  # by partition that is owned
        self._directory = directory
        self._transactions = transactions
        self._topics = topics
        self._store = store
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._newest_producer_id = -1
        self._loading: set[int] = set()  # at the start
        self._waiting_transactions: list[PartitionLoaded] | None = []  # None after ``finish``

    def _owner_of(self, partition: int) -> ActorRef:
        """The actor that serves a partition."""
        return self._directory.coordinator if partition < self._store.counts.offsets else self._transactions

    async def start(self, epochs: Mapping[int, int], with_records: Set[int]) -> None:
        """Tell the actors which partitions are loading. Those without records are loaded at once."""
        self._loading.update(epochs)
        gains = [self._ask_to_gain(partition, epoch) for partition, epoch in epochs.items()]
        for partition in epochs.keys() - with_records:
            self.finish_empty(partition)
        for gain in gains:
            await gain

    async def gain(self, partition: int, epoch: int) -> None:
        """The node owns a partition. Waits until all actors of an earlier period of ownership have stopped."""
        await self._ask_to_gain(partition, epoch)

    def _ask_to_gain(self, partition: int, epoch: int) -> Any:
        self.epochs[partition] = epoch
        return self._owner_of(partition).ask(PartitionGained(partition, epoch), block=False)

    def finish_empty(self, partition: int) -> None:
        """A partition that was gained has no records."""
        self._finish_partition(PartitionLoaded(partition, self.epochs[partition]))

    async def lose(self, partition: int) -> None:
        """The node does not own a partition any more. Waits until its actors have stopped. KeyError: it never did."""
        lost = PartitionLost(partition, self.epochs.pop(partition))
        await self._owner_of(partition).ask(lost, block=False)

    def accept(self, job: LoadJob, piece: LoadPiece) -> None:
        """Pass a piece on at once. The ends of topics come first, before any client can fetch an offset."""
        match piece:
            case CommittedEnds(offsets):
                for (topic, partition), offset in offsets.items():
                    self._topics.raise_end(topic, partition, offset)
            case PackedGroups(groups):
                self._directory.coordinator.tell(GroupsLoaded(job.partition, job.epoch, groups, {}))
            case UnpackedGroups(groups):
                self._transactions.tell(PendingLoaded(open_transactions(groups)))
                self._directory.coordinator.tell(GroupsLoaded(job.partition, job.epoch, {}, groups))
            case TransactionalIds(values):
                self._newest_producer_id = max(self._newest_producer_id, newest_producer_id(values))
                self._transactions.tell(TransactionsLoaded(job.partition, job.epoch, values))
            case LoadReport():
                self._accept_report(job, piece)

    def _accept_report(self, job: LoadJob, report: LoadReport) -> None:
        if report.misplaced:
            root = Path(job.folder).parent
            self.failure = f"{report.misplaced}; {advice(root, self._store.counts)}"
            log.error("the log is not served", reason=self.failure)
            raise MisplacedError(self.failure)
        self.records += report.records
        self._log_problems(job, report)
        for damage in report.damages:
            self._store.add_damage(damage)
        self._finish_partition(PartitionLoaded(job.partition, job.epoch, report.quarantined, report.failure))

    def _finish_partition(self, loaded: PartitionLoaded) -> None:
        """At the start transactional ids wait for all partitions: their markers belong to groups."""
        self._loading.discard(loaded.partition)
        if loaded.partition < self._store.counts.offsets:
            self._directory.coordinator.tell(loaded)
        elif self._waiting_transactions is None:
            self._topics.producer_ids.mark_used_up_to(self._newest_producer_id)
            self._transactions.tell(loaded)
        else:
            self._waiting_transactions.append(loaded)

    def fail(self, partition: int, failure: str) -> None:
        """A partition cannot be loaded."""
        self._finish_partition(PartitionLoaded(partition, self.epochs[partition], {}, failure))

    def fail_rest(self, failure: str) -> None:
        """Refuse all partitions that are still loading at the start."""
        for partition in sorted(self._loading & self.epochs.keys()):
            self.fail(partition, failure)

    def _log_problems(self, job: LoadJob, report: LoadReport) -> None:
        if report.failure:
            log.error("a partition could not be read", folder=job.folder, reason=report.failure, **_REFUSED)
        for problem in report.problems:
            log.error("a record was skipped", reason=problem)
        for group_id, quarantine in report.quarantined.items():
            log.error("a group is quarantined", group=group_id, reason=quarantine.reason, **_QUARANTINED)
        if report.unknown_keys:
            log.warning("records of unknown types were skipped", folder=job.folder, keys=report.unknown_keys)

    async def finish(self) -> None:
        """All pieces were accepted: start the tasks that need all partitions."""
        self._topics.producer_ids.mark_used_up_to(self._newest_producer_id)
        await self._directory.coordinator.ask(AllLoaded(), block=False)
        waiting, self._waiting_transactions = self._waiting_transactions, None
        for loaded in waiting or ():
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
