"""Loading and unloading of single partitions of ``__transaction_state`` while TransactionsActor runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..coordinator.partition_states import PartitionEvent
from ..messages import AllLoaded, PartitionClosed, PartitionGained, PartitionLoaded, PartitionLost, PartitionOpened
from ..steps import Steps as Work
from ..steps import pieces
from .environment import TransactionEnvironment
from .messages import PendingLoaded, TransactionsLoaded
from .steps import Steps
from .table import TransactionTable

OwnershipMessage = PartitionGained | TransactionsLoaded | PendingLoaded | PartitionLoaded | PartitionLost | AllLoaded


class TransactionOwnership:
    """Handles the messages about partitions for TransactionsActor. Late messages, of an earlier epoch, are ignored.

    Steps in flight of an unloaded partition are answered with NOT_COORDINATOR, and nothing follows from them.
    """

    def __init__(self, environment: TransactionEnvironment, table: TransactionTable, steps: Steps) -> None:
        self._environment = environment
        self._table = table
        self._steps = steps
        self._methods: dict[type, Callable[[Any], object]] = {
            PartitionGained: self._load,
            TransactionsLoaded: self._add_values,
            PendingLoaded: self._add_pending,
            PartitionLoaded: self._finish_loading,
            PartitionLost: self._lose,
            AllLoaded: self._start_scan,
        }

    def handle(self, message: OwnershipMessage) -> object:
        """Handle a message. Returns the reply, or the work that returns it."""
        return self._methods[type(message)](message)

    def _load(self, message: PartitionGained) -> bool:
        is_applied = self._table.apply(self._number(message), PartitionEvent.LOAD, message.epoch)
        if is_applied:
            self._environment.writer.tell(PartitionOpened(message.partition, message.epoch))
        return is_applied

    def _add_values(self, message: TransactionsLoaded) -> None:
        partition = self._table.partitions[self._number(message)]
        if partition.is_loading and partition.epoch == message.epoch:
            partition.loaded.update(message.values)

    def _add_pending(self, message: PendingLoaded) -> None:
        groups_by_producer = self._steps.commits.groups
        for producer_id, groups in message.groups.items():
            groups_by_producer.setdefault(producer_id, set()).update(groups)

    def _finish_loading(self, message: PartitionLoaded) -> Work[None]:
        number = self._number(message)
        if message.failure:
            if self._table.apply(number, PartitionEvent.FAIL, message.epoch, message.failure):
                yield from self._clear(message.partition, number)
            return
        transactions = yield from self._table.loaded_transactions(number)
        if self._table.apply(number, PartitionEvent.LOADED, message.epoch):
            yield from self._table.activate(number, transactions)
            for piece in pieces(transactions.values()):
                for transaction in piece:
                    self._steps.resume(transaction)
                yield

    def _lose(self, message: PartitionLost) -> Work[None]:
        number = self._number(message)
        if self._table.apply(number, PartitionEvent.UNLOAD, message.epoch):
            yield from self._clear(message.partition, number)

    def _start_scan(self, _message: AllLoaded) -> None:
        """The scan for expired transactional ids may begin."""
        self._steps.timeouts.schedule_scan()

    def _clear(self, partition: int, number: int) -> Work[None]:
        removed, counting = self._table.clear_partition(number)
        self._environment.writer.tell(PartitionClosed(partition))
        yield from counting
        for names in pieces(removed):
            self._steps.timeouts.cancel(names)
            yield

    def _number(self, message: PartitionGained | TransactionsLoaded | PartitionLoaded | PartitionLost) -> int:
        """The number of a partition in its topic."""
        return message.partition - self._environment.offsets_partitions
