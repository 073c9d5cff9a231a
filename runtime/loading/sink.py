"""What loading finds, on its way to the actors; and what is said about it."""

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
from .pieces import Asleep, Awake, Ends, Ids, Job, Piece, Report

if TYPE_CHECKING:
    from ...actors.engine_ports import Clock
    from ..log.offsets_log import OffsetsLog
    from ..topics.catalogue import TopicCatalogue

log = get_logger("callboard.runtime")


class Arrival:
    """Takes the pieces of all partitions, on the loop of the node; then ``finish``.

    MisplacedError for a partition with a group or transactional id that belongs to another one.
    """

    def __init__(self, directory: Directory, topics: TopicCatalogue, offsets_log: OffsetsLog, clock: Clock) -> None:
        self.is_over = False
        self.records = 0
        self.seconds = 0.0
        self.failure = ""  # a group lies where it does not belong: what was not loaded before is not served
        self._directory = directory
        self._topics = topics
        self._log = offsets_log
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._transactions: dict[str, TransactionValue] = {}
        self._pending: dict[int, set[str]] = {}
        self._lost_transactions = False

    def take(self, job: Job, piece: Piece) -> None:
        """What comes first is known first: where topics end before anybody may ask for an offset."""
        match piece:
            case Ends(offsets):
                for (topic, partition), offset in offsets.items():
                    self._topics.raise_end(topic, partition, offset)
            case Asleep(groups):
                self._directory.coordinator.tell(GroupsLoaded(groups, {}))
            case Awake(awake):
                for producer_id, group_ids in open_transactions(awake).items():
                    self._pending.setdefault(producer_id, set()).update(group_ids)
                self._directory.coordinator.tell(GroupsLoaded({}, awake))
            case Ids(values):
                self._transactions.update(values)
            case Report():
                self._take_report(job, piece)

    def _take_report(self, job: Job, report: Report) -> None:
        if report.misplaced:
            root = Path(job.folder).parent
            self.failure = f"{report.misplaced}; {advice(root, self._log.counts)}"
            log.error("the log is not served", reason=self.failure)
            raise MisplacedError(self.failure)
        self.records += report.records
        self._tell(job, report)
        for damage in report.damages:
            self._log.note_damage(damage)
        if job.is_transactions:
            self._lost_transactions = self._lost_transactions or bool(report.failure)
        else:
            done = PartitionLoaded(job.partition, report.quarantined, report.failure)
            self._directory.coordinator.tell(done)

    def _tell(self, job: Job, report: Report) -> None:
        if report.failure:
            log.error("a partition could not be read", folder=job.folder, reason=report.failure, **_REFUSED)
        for trouble in report.troubles:
            log.error("a record was passed over", reason=trouble)
        for group_id, reason in report.quarantined.items():
            log.error("a group is set aside", group=group_id, reason=reason, **_SET_ASIDE)
        if report.unknown_keys:
            log.warning("records of unknown types were skipped", folder=job.folder, keys=report.unknown_keys)

    async def finish(self, transactions: ActorRef) -> None:
        """Everything was taken: what has waited for the last partition begins."""
        self._topics.producer_ids.mark_used_up_to(newest_producer_id(self._transactions))
        await self._directory.coordinator.ask(AllLoaded(), block=False)
        if self._lost_transactions:
            log.error("transactional ids are not served", reason="some could not be read; mend that and start again")
        else:
            await transactions.ask(TransactionsLoaded(self._transactions, self._pending), block=False)
        self._transactions, self._pending = {}, {}
        self.is_over = True
        self.seconds = (self._clock.monotonic_ms() - self._began_ms) / 1000
        if self.records:
            log.info("everything is loaded", records=self.records, seconds=round(self.seconds, 2))


_REFUSED = {"consequence": "its groups are refused (NOT_COORDINATOR) until the next start"}
_SET_ASIDE = {
    "consequence": "it is refused (COORDINATOR_NOT_AVAILABLE) until the next start; its records stay in the log",
    "advice": "stop the server and look at the record with `callboard log verify`",
}
