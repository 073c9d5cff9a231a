"""The transactional ids by name and by partition of ``__transaction_state``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..coordinator.partition_states import PartitionEvent, PartitionLife
from ..errors import ErrorCode
from ..javahash import offsets_partition
from ..memory import TRANSACTION_PARTITION_BYTES, TRANSACTIONAL_ID_BYTES
from ..records import TransactionValue
from ..steps import Steps, pieces
from .rules import Transaction


class TransactionPartition(PartitionLife):
    """One partition. ``loaded``: values that were read; they become transactions when the partition is active."""

    __slots__ = ("loaded", "transactions")

    def __init__(self) -> None:
        super().__init__()
        self.loaded: dict[str, TransactionValue] = {}
        self.transactions: dict[str, Transaction] = {}


class TransactionTable(dict[str, Transaction]):
    """All transactions of active partitions, by transactional id. Only TransactionsActor changes it.

    ``is_full``: all partitions are active; the fast path of requests. ``memory_bytes``: about the memory of all.
    """

    def __init__(self, partition_count: int) -> None:
        super().__init__()
        self.partitions = tuple(TransactionPartition() for _ in range(partition_count))
        self.is_full = False
        self.memory_bytes = 0

    def number_of(self, transactional_id: str) -> int:
        """The number of the partition that a transactional id belongs to."""
        return offsets_partition(transactional_id, len(self.partitions))

    def error_for(self, transactional_id: str) -> ErrorCode:
        """Why a transactional id is not served; NONE if it is."""
        if self.is_full:
            return ErrorCode.NONE
        return self.partitions[self.number_of(transactional_id)].answers.request

    def find(self, transactional_id: str) -> Transaction | ErrorCode:
        """The transaction that a request names, or the error of the request."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        return self.error_for(transactional_id) or self.get(transactional_id, ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    @property
    def listing_error(self) -> ErrorCode:
        """The error of ListTransactions as a whole; NONE if the ids of the active partitions are listed."""
        return max((partition.answers.listing for partition in self.partitions), default=ErrorCode.NONE)

    def pieces(self, size: int) -> Iterator[list[Transaction]]:
        """The transactions of active partitions in pieces of ``size``. Those removed meanwhile are left out."""
        for partition in self.partitions:
            transactions = tuple(partition.transactions.values())
            for begin in range(0, len(transactions), size):
                yield [transaction for transaction in transactions[begin : begin + size] if self.has(transaction)]

    def has(self, transaction: Transaction) -> bool:
        """Whether a transaction is served. False after its partition was lost, even if it was loaded again."""
        return self.get(transaction.transactional_id) is transaction

    def add(self, transactional_id: str, value: TransactionValue) -> Transaction:
        """Add a new or loaded transactional id."""
        transaction = self[transactional_id] = Transaction(transactional_id, value)
        self.memory_bytes += _memory_bytes(transaction)
        self.partitions[self.number_of(transactional_id)].transactions[transactional_id] = transaction
        return transaction

    def remove(self, transaction: Transaction) -> None:
        """Remove an expired transactional id."""
        del self[transaction.transactional_id]
        del self.partitions[self.number_of(transaction.transactional_id)].transactions[transaction.transactional_id]
        self.memory_bytes -= _memory_bytes(transaction)

    def apply_step(self, transaction: Transaction) -> None:
        """Apply the step of a transaction, whose record is durable."""
        self.memory_bytes -= _memory_bytes(transaction)
        transaction.apply_step()
        self.memory_bytes += _memory_bytes(transaction)

    def apply(self, number: int, event: PartitionEvent, epoch: int, failure: str = "") -> bool:
        """See ``PartitionLife.apply``."""
        is_applied = self.partitions[number].apply(event, epoch, failure)
        self.is_full = all(partition.is_active for partition in self.partitions)
        return is_applied

    def loaded_transactions(self, number: int) -> Steps[dict[str, Transaction]]:
        """The loaded values of a partition as transactions, for ``activate``."""
        transactions: dict[str, Transaction] = {}
        for piece in pieces(self.partitions[number].loaded.items()):
            transactions.update((name, Transaction(name, value)) for name, value in piece)
            yield
        return transactions

    def activate(self, number: int, transactions: dict[str, Transaction]) -> Steps[None]:
        """Add all transactions of a partition at once. Their memory is counted in steps."""
        partition = self.partitions[number]
        partition.loaded, partition.transactions = {}, transactions
        self.update(transactions)
        return self._count(transactions, 1)

    def clear_partition(self, number: int) -> tuple[Mapping[str, Transaction], Steps[None]]:
        """Remove everything of a partition at once. Returns its transactions, and the count of their memory."""
        partition = self.partitions[number]
        removed, partition.transactions, partition.loaded = partition.transactions, {}, {}
        for name in removed:
            del self[name]
        return removed, self._count(removed, -1)

    def _count(self, transactions: Mapping[str, Transaction], sign: int) -> Steps[None]:
        """Add the memory of transactions, or subtract it."""
        for piece in pieces(transactions.values()):
            self.memory_bytes += sign * sum(map(_memory_bytes, piece))
            yield


def _memory_bytes(transaction: Transaction) -> int:
    partitions = len(transaction.value.partitions)
    return TRANSACTIONAL_ID_BYTES + len(transaction.transactional_id) + partitions * TRANSACTION_PARTITION_BYTES
