"""A simulation with TransactionsActor and topics that record their markers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from callboard.actors.base import ActorRef
from callboard.actors.errors import ErrorCode
from callboard.actors.messages import (
    AllLoaded,
    Commit,
    FetchedOffset,
    PartitionGained,
    PartitionLoaded,
    TxnOffsetCommit,
)
from callboard.actors.records import MarkerRecord, TransactionRecord, TransactionValue
from callboard.actors.transactions.actor import TransactionsActor
from callboard.actors.transactions.environment import TransactionEnvironment
from callboard.actors.transactions.messages import (
    AddOffsets,
    AddPartitions,
    EndTransaction,
    InitProducerId,
    PendingLoaded,
    TransactionsLoaded,
)
from callboard.actors.transactions.peers import Peers
from callboard.actors.transactions.table import TransactionTable
from callboard.runtime.loading.loader import open_transactions

from .ports import ManualLog, RecordedReply
from .requests import GROUP, fetch
from .simulation import EPOCH, CoordinatorSimulation

TX = "tx"
TIMEOUT_MS = 60_000
PARTITIONS = 3
Producer = tuple[int, int]


class FakeTopics:
    """``TransactionTopics`` whose producer ids count from 1000."""

    def __init__(self) -> None:
        self.next_id = 1000
        self.ended: list[tuple[str, int, MarkerRecord]] = []

    def new_producer_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def end_transaction(self, topic: str, partition: int, marker: MarkerRecord, timestamp_ms: int) -> None:
        self.ended.append((topic, partition, marker))


class FakeTransactionSettings:
    """``TransactionSettings`` with Kafka's defaults."""

    def __init__(self) -> None:
        self.max_transactional_ids = 1_000_000
        self.transaction_max_timeout_ms = 900_000
        self.transactional_id_expiration_ms = 604_800_000
        self.transaction_remove_expired_transaction_cleanup_interval_ms = 3_600_000


def transactions_in(log: ManualLog) -> dict[str, TransactionValue]:
    """The transactional ids as a loader would find them."""
    values: dict[str, TransactionValue] = {}
    for _partition, record in log.durable:
        if isinstance(record, TransactionRecord):
            values.pop(record.transactional_id, None)
            if record.value is not None:
                values[record.transactional_id] = record.value
    return values


class TransactionSimulation(CoordinatorSimulation):
    """With the ``log`` of another simulation it continues from the durable records of that simulation."""

    def __init__(
        self,
        *,
        log: ManualLog | None = None,
        holds_appends: bool = False,
        seed: int | None = None,
        peers: Peers | None = None,
    ) -> None:
        log = log or ManualLog()
        groups = log.groups()
        super().__init__(groups, log=log, seed=seed)
        self.holds_appends = holds_appends
        self.topics = FakeTopics()
        self.transaction_settings = FakeTransactionSettings()
        values = transactions_in(log)
        self.table = TransactionTable(PARTITIONS)
        self.topics.next_id = max((value.producer_id + 1 for value in values.values()), default=1000)
        environment = TransactionEnvironment(
            self.transaction_settings, self.clock, self.timer, self.writer, self.directory, self.topics, peers
        )
        self.transactions: ActorRef = self.system.spawn(TransactionsActor, environment, self.table)
        self.transactions.tell(PendingLoaded(open_transactions(groups)))
        first = environment.offsets_partitions
        for partition in range(PARTITIONS):
            of_partition = {name: value for name, value in values.items() if self.table.number_of(name) == partition}
            self.transactions.tell(PartitionGained(first + partition, EPOCH))
            self.transactions.tell(TransactionsLoaded(first + partition, EPOCH, of_partition))
            self.transactions.tell(PartitionLoaded(first + partition, EPOCH))
        self.transactions.tell(AllLoaded())
        self.run()

    def ask_transactions(self, message: Any) -> RecordedReply:
        """Send a request to TransactionsActor and run until no actor has messages."""
        reply = RecordedReply()
        self.replies.append(reply)
        self.transactions.post(message, reply)
        self.run()
        return reply

    # Shortcuts -------------------------------------------------------------------------------------------------------

    def init(self, name: str = TX, producer: Producer = (-1, -1), timeout_ms: int = TIMEOUT_MS) -> Producer:
        response = self.ask_transactions(InitProducerId(name, timeout_ms, *producer)).value
        assert not response.error, response.error.name
        return response.producer_id, response.producer_epoch

    def add_offsets(self, producer: Producer, group_id: str = GROUP, name: str = TX) -> RecordedReply:
        return self.ask_transactions(AddOffsets(name, *producer, group_id))

    def add_partitions(self, producer: Producer, *partitions: tuple[str, int], name: str = TX) -> RecordedReply:
        return self.ask_transactions(AddPartitions(name, *producer, frozenset(partitions)))

    def commit(self, producer: Producer, offset: int, **options: Any) -> RecordedReply:
        return self.ask_transactions(txn_commit(producer, offset, **options))

    def end(
        self, producer: Producer, committed: bool = True, name: str = TX, raises_epoch: bool = False
    ) -> RecordedReply:
        return self.ask_transactions(EndTransaction(name, *producer, committed, raises_epoch))

    def markers(self) -> list[MarkerRecord]:
        return [record for _, record in self.log.durable if isinstance(record, MarkerRecord)]


def txn_commit(
    producer: Producer,
    offset: int,
    *,
    group_id: str = GROUP,
    name: str = TX,
    partitions: Sequence[int] = (0,),
    member_id: str = "",
    instance: str | None = None,
    generation_id: int = -1,
    metadata: str = "",
    version: int = 3,
) -> TxnOffsetCommit:
    commits = tuple(Commit("t", partition, offset, -1, metadata) for partition in partitions)
    return TxnOffsetCommit(
        group_id,
        name,
        *producer,
        member_id,
        instance,
        generation_id,
        commits,
        adds_partition_to_transaction=version >= 5,
        supports_transaction_abortable=version >= 4,
    )


def fetched(simulation: TransactionSimulation, group_id: str = GROUP, stable: bool = True) -> FetchedOffset:
    [(_topic, [fetched_offset])] = simulation.post(fetch(group_id=group_id, require_stable=stable)).value.topics
    assert isinstance(fetched_offset, FetchedOffset)
    return fetched_offset


def offset(simulation: TransactionSimulation, group_id: str = GROUP) -> int:
    return fetched(simulation, group_id).offset


def open_transaction(simulation: TransactionSimulation, value: int = 5, **options: str) -> tuple[int, int]:
    """Open a transaction with one offset. Returns the producer."""
    producer = simulation.init()
    assert simulation.add_offsets(producer, **options).error is ErrorCode.NONE
    assert simulation.commit(producer, value, **options).value.errors == (ErrorCode.NONE,)
    return producer
