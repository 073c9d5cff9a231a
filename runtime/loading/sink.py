"""Passes loaded groups and transactions to the actors, and logs the problems of loading."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...actors.base import ActorRef
from ...actors.coordinator.actor import Directory
from ...actors.messages import AllLoaded, GroupsLoaded, PartitionLoaded
from ...actors.records import TransactionValue
from ...actors.transactions.messages import TransactionsLoaded
from ..common.logs import get_logger
from ..log.recovery.misplaced import MisplacedError, advice
from .loader import newest_producer_id, open_transactions
from .pieces import CommittedEnds, LoadJob, LoadPiece, LoadReport, PackedGroups, TransactionalIds, UnpackedGroups

if TYPE_CHECKING:
    from ...actors.engine_ports import Clock
    from ..log.offsets_log import OffsetsLog
    from ..topics.catalogue import TopicCatalogue

log = get_logger("callboard.runtime")


class LoadSink:
    """Accepts the pieces of all partitions, on the node's loop; then ``finish``.

    ``accept`` raises MisplacedError for a partition with a group or transactional id that belongs to another one.
    """

    def __init__(self, directory: Directory, topics: TopicCatalogue, offsets_log: OffsetsLog, clock: Clock) -> None:
        self.is_finished = False
        self.records = 0
        self.seconds = 0.0
        self.failure = ""  # set for a misplaced group: partitions that were not loaded before it are not served
        self._directory = directory
        self._topics = topics
        self._log = offsets_log
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._transactions: dict[str, TransactionValue] = {}
        self._pending: dict[int, set[str]] = {}
        self._lost_transactions = False

    def accept(self, job: LoadJob, piece: LoadPiece) -> None:
        """Pass a piece on at once. The ends of topics come first, before any client can fetch an offset."""
        match piece:
            case CommittedEnds(offsets):
                for (topic, partition), offset in offsets.items():
                    self._topics.raise_end(topic, partition, offset)
            case PackedGroups(groups):
                self._directory.coordinator.tell(GroupsLoaded(groups, {}))
            case UnpackedGroups(groups):
                for producer_id, group_ids in open_transactions(groups).items():
                    self._pending.setdefault(producer_id, set()).update(group_ids)
                self._directory.coordinator.tell(GroupsLoaded({}, groups))
            case TransactionalIds(values):
                self._transactions.update(values)
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
        if job.is_transactions:
            self._lost_transactions = self._lost_transactions or bool(report.failure)
        else:
            loaded = PartitionLoaded(job.partition, report.quarantined, report.failure)
            self._directory.coordinator.tell(loaded)

    def _log_problems(self, job: LoadJob, report: LoadReport) -> None:
        if report.failure:
            log.error("a partition could not be read", folder=job.folder, reason=report.failure, **_REFUSED)
        for problem in report.problems:
            log.error("a record was skipped", reason=problem)
        for group_id, reason in report.quarantined.items():
            log.error("a group is quarantined", group=group_id, reason=reason, **_QUARANTINED)
        if report.unknown_keys:
            log.warning("records of unknown types were skipped", folder=job.folder, keys=report.unknown_keys)

    async def finish(self, transactions: ActorRef) -> None:
        """All pieces were accepted: start the tasks that need all partitions."""
        self._topics.producer_ids.mark_used_up_to(newest_producer_id(self._transactions))
        await self._directory.coordinator.ask(AllLoaded(), block=False)
        if self._lost_transactions:
            log.error("transactional ids are not served", reason="some could not be read; repair them and start again")
        else:
            await transactions.ask(TransactionsLoaded(self._transactions, self._pending), block=False)
        self._transactions, self._pending = {}, {}
        self.is_finished = True
        self.seconds = (self._clock.monotonic_ms() - self._began_ms) / 1000
        if self.records:
            log.info("everything is loaded", records=self.records, seconds=round(self.seconds, 2))


_REFUSED = {"consequence": "its groups are refused (NOT_COORDINATOR) until the next start"}
_QUARANTINED = {
    "consequence": "it is refused (COORDINATOR_NOT_AVAILABLE) until the next start; its records stay in the log",
    "advice": "stop the server and look at the record with `callboard log verify`",
}
