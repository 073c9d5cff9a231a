"""ClusterLog: the log of a node in a cluster. Rounds go to the WAL of its session, content comes from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ...actors.errors import ErrorCode
from ...actors.ports import NO_EPOCHS, Appended, Entry
from ...actors.steps import Steps
from ..common.logs import get_logger
from ..log.format.errors import Damage
from ..log.partition import TOPIC, TRANSACTIONS_TOPIC, folder_name
from ..log.partition_counts import PartitionCounts
from ..log.pieces import LoadJob, PieceHandler
from ..log.rounds import Round, RoundEncoder, failed_outcomes
from ..log.stats import LogStats
from .cluster_node import ClusterNode
from .content import Superseded
from .content_loader import ContentLoader
from .session import Session
from .store import StoreRefused
from .wal import Fenced

Done = Callable[[Sequence[Appended]], None]
BeginLoad = Callable[[int, int], Awaitable[None]]
DURABILITY = "replicated"
REFUSED = Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

log = get_logger("callboard.cluster")


class ClusterLog:
    """``LogStore``. A partition accepts entries from its load until the coordinator has unloaded it.

    ``begin_load`` is awaited, with the epoch, before a partition is loaded.
    """

    has_local_files = False

    def __init__(
        self, node: ClusterNode, counts: PartitionCounts, max_message_bytes: int, loader: ContentLoader
    ) -> None:
        self.counts = counts
        self.begin_load: BeginLoad = _nothing
        self._node = node
        self._loader = loader
        self._end_offsets = [0] * sum(counts)
        self._encoder = RoundEncoder(self._end_offsets, max_message_bytes, DURABILITY)
        self._accepting: dict[int, int] = {}  # epochs by partition
        self._round: asyncio.Task[None] | None = None
        self._released: list[tuple[Session, int]] = []  # after the round in flight
        self._damages: list[Damage] = []
        self._counters = {"records": 0, "rounds": 0, "refused": 0}

    def open(self) -> None:
        """Nothing to recover: the store has everything."""

    def append(
        self, entries: Sequence[Entry], timestamp_ms: int, done: Done, epochs: Mapping[int, int] = NO_EPOCHS
    ) -> None:
        accepted, done = self._accepted(entries, done, epochs)
        self._write(self._encoder.encode(accepted, timestamp_ms, done))

    def append_in_steps(
        self, entries: Sequence[Entry], timestamp_ms: int, done: Done, epochs: Mapping[int, int] = NO_EPOCHS
    ) -> Steps[None]:
        accepted, done = self._accepted(entries, done, epochs)
        self._write((yield from self._encoder.encode_in_steps(accepted, timestamp_ms, done)))

    def _accepted(
        self, entries: Sequence[Entry], done: Done, epochs: Mapping[int, int]
    ) -> tuple[Sequence[Entry], Done]:
        """The entries of partitions that this session holds. ``done`` gets the outcomes of all, in their order."""
        accepting = self._accepting
        accepts = [accepting.get(entry.partition, -1) == epochs.get(entry.partition) for entry in entries]
        if all(accepts):
            return entries, done

        def done_with_refused(outcomes: Sequence[Appended]) -> None:
            following = iter(outcomes)
            done([next(following) if is_accepted else REFUSED for is_accepted in accepts])

        return [entry for entry, is_accepted in zip(entries, accepts, strict=True) if is_accepted], done_with_refused

    def _write(self, round_: Round) -> None:
        """The writer has one round in flight at most."""
        session = self._node.session
        if not round_.batches or session is None:
            outcomes = failed_outcomes(round_.outcomes, REFUSED.error) if round_.batches else round_.outcomes
            asyncio.get_running_loop().call_soon(round_.done, outcomes)
        else:
            self._round = asyncio.get_running_loop().create_task(self._write_round(session, round_))

    async def _write_round(self, session: Session, round_: Round) -> None:
        outcomes: Sequence[Appended] = round_.outcomes
        try:
            await session.log.append(round_.frame, round_.batches)
            self._counters["rounds"] += 1
            self._counters["records"] += len(outcomes)
        except Exception as error:
            outcomes = failed_outcomes(outcomes, REFUSED.error)
            self._counters["refused"] += 1
            _end_session(session, error)
        self._round = None
        for owner, partition in self._released:
            owner.release(partition)
        self._released.clear()
        round_.done(outcomes)

    # Partitions ------------------------------------------------------------------------------------------------------

    def jobs(self, epochs: Mapping[int, int]) -> list[LoadJob]:
        return [self._job(partition, epoch) for partition, epoch in epochs.items()]

    def _job(self, partition: int, epoch: int) -> LoadJob:
        is_transactions = partition >= self.counts.offsets
        topic = TRANSACTIONS_TOPIC if is_transactions else TOPIC
        number = partition - self.counts.offsets if is_transactions else partition
        topic_partitions = self.counts.transactions if is_transactions else self.counts.offsets
        name = folder_name(number, topic)
        return LoadJob(
            partition, name, is_transactions, 0, topic_partitions=topic_partitions, epoch=epoch, sampled=True
        )

    def loads_in_background(self, jobs: Sequence[LoadJob]) -> bool:
        """Clients may connect before any partition is loaded."""
        return True

    async def load(self, jobs: Sequence[LoadJob], take: PieceHandler) -> None:
        """Raises what ``SessionLog.load`` raises, but no Fenced: the session ends then."""
        await asyncio.gather(*(self._load(job, take) for job in jobs))

    async def _load(self, job: LoadJob, take: PieceHandler) -> None:
        session = self._node.session
        if session is None:
            return
        try:
            await self.begin_load(job.partition, job.epoch)
            manifest = await session.log.load(job.partition, job.epoch)
            self._end_offsets[job.partition] = manifest.end
            self._accepting[job.partition] = job.epoch
            await self._loader.load(job, manifest, take)
        except Fenced as error:
            session.fence(str(error))
        except Superseded as error:
            log.info("a load was given up", partition=job.partition, reason=str(error))  # it will be reported as lost

    def unload(self, partition: int) -> None:
        self._accepting.pop(partition, None)
        session = self._node.session
        if session is None:
            return
        if self._round is None:
            session.release(partition)
        else:
            self._released.append((session, partition))

    # Others ----------------------------------------------------------------------------------------------------------

    def stats(self) -> LogStats:
        counters = self._counters
        return LogStats(records=counters["records"], rounds=counters["rounds"], refused_rounds=counters["refused"])

    def may_write_folder(self) -> bool:
        """The data folder has only settings and topics."""
        return True

    def add_damage(self, damage: Damage) -> None:
        self._damages.append(damage)

    def damages(self) -> list[Damage]:
        return list(self._damages)

    def close(self) -> None:
        """The rounds are durable when the writer has drained."""

    def halt(self) -> None:
        if self._round is not None:
            self._round.cancel()


def _end_session(session: Session, error: Exception) -> None:
    """Because a round could not be written."""
    if isinstance(error, StoreRefused):
        session.refuse(error)
        return
    if not isinstance(error, Fenced):
        log.exception("a round could not be written")
    session.fence(str(error))


async def _nothing(_partition: int, _epoch: int) -> None:
    """The default of ``begin_load``."""
