"""A world with transactions: the transactions' actor beside the groups, topics that note what they are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from callboard.actors.base import ActorRef
from callboard.actors.errors import ErrorCode
from callboard.actors.messages import Commit, FetchedOffset, TxnOffsetCommit
from callboard.actors.records import MarkerRecord, TransactionRecord, TransactionValue
from callboard.actors.transactions.actor import TransactionEnvironment, TransactionsActor
from callboard.actors.transactions.messages import AddOffsets, AddPartitions, EndTransaction, InitProducerId
from callboard.actors.transactions.rules import Transaction
from callboard.runtime.loading.loader import open_transactions

from .ports import HandLog, Place
from .requests import GROUP, fetch
from .world import World

TX = "tx"
TIMEOUT_MS = 60_000
PARTITIONS = 3
Producer = tuple[int, int]


class HandTopics:
    """``TransactionTopics`` whose ids count from 1000 on."""

    def __init__(self) -> None:
        self.next_id = 1000
        self.ended: list[tuple[str, int, MarkerRecord]] = []

    def new_producer_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def end_transaction(self, topic: str, partition: int, marker: MarkerRecord, timestamp_ms: int) -> None:
        self.ended.append((topic, partition, marker))


class TransactionRules:
    """``TransactionSettings`` with Kafka's defaults."""

    def __init__(self) -> None:
        self.transaction_max_timeout_ms = 900_000
        self.transactional_id_expiration_ms = 604_800_000
        self.transaction_remove_expired_transaction_cleanup_interval_ms = 3_600_000


def transactions_in(log: HandLog) -> dict[str, TransactionValue]:
    """What a loader finds."""
    found: dict[str, TransactionValue] = {}
    for _partition, record in log.durable:
        if isinstance(record, TransactionRecord):
            found.pop(record.transactional_id, None)
            if record.value is not None:
                found[record.transactional_id] = record.value
    return found


class TransactionWorld(World):
    """With a ``log`` of another world it goes on where that one ended."""

    def __init__(self, *, log: HandLog | None = None, holds_back: bool = False, seed: int | None = None) -> None:
        log = log or HandLog()
        groups = log.groups()
        super().__init__(groups, log=log, seed=seed)
        self.holds_back = holds_back
        self.topics = HandTopics()
        self.transaction_rules = TransactionRules()
        self.table = {name: Transaction(name, value) for name, value in transactions_in(log).items()}
        self.topics.next_id = max((t.value.producer_id + 1 for t in self.table.values()), default=1000)
        offsets_partitions = self.rules.offsets_topic_num_partitions
        environment = TransactionEnvironment(
            self.transaction_rules,
            self.clock,
            self.timer,
            self.writer,
            self.directory,
            self.topics,
            offsets_partitions,
            PARTITIONS,
        )
        pending = open_transactions(groups)
        self.transactions: ActorRef = self.system.spawn(TransactionsActor, environment, self.table, pending)
        self.run()

    def ask_about(self, message: Any) -> Place:
        """A request to the transactions; runs until all is quiet."""
        place = Place()
        self.places.append(place)
        self.transactions.post(message, place)
        self.run()
        return place

    # Short ways ------------------------------------------------------------------------------------------------------

    def init(self, name: str = TX, producer: Producer = (-1, -1), timeout_ms: int = TIMEOUT_MS) -> Producer:
        given = self.ask_about(InitProducerId(name, timeout_ms, *producer)).value
        assert not given.error, given.error.name
        return given.producer_id, given.producer_epoch

    def add_offsets(self, producer: Producer, group_id: str = GROUP, name: str = TX) -> Place:
        return self.ask_about(AddOffsets(name, *producer, group_id))

    def add_partitions(self, producer: Producer, *partitions: tuple[str, int], name: str = TX) -> Place:
        return self.ask_about(AddPartitions(name, *producer, frozenset(partitions)))

    def commit(self, producer: Producer, offset: int, **options: Any) -> Place:
        return self.ask_about(txn_commit(producer, offset, **options))

    def end(self, producer: Producer, committed: bool = True, name: str = TX, raises_epoch: bool = False) -> Place:
        return self.ask_about(EndTransaction(name, *producer, committed, raises_epoch))

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


def fetched(world: TransactionWorld, group_id: str = GROUP, stable: bool = True) -> FetchedOffset:
    [(_topic, [found])] = world.post(fetch(group_id=group_id, require_stable=stable)).value.topics
    assert isinstance(found, FetchedOffset)
    return found


def offset(world: TransactionWorld, group_id: str = GROUP) -> int:
    return fetched(world, group_id).offset


def opened(world: TransactionWorld, value: int = 5, **options: str) -> tuple[int, int]:
    """A producer with an open transaction that has committed an offset."""
    producer = world.init()
    assert world.add_offsets(producer, **options).error is ErrorCode.NONE
    assert world.commit(producer, value, **options).value.errors == (ErrorCode.NONE,)
    return producer
