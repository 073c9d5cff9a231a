"""The open and the aborted transactions of one partition. Pure.

A consumer that reads only committed records gets the records before the first open transaction, with the list of
aborted transactions among them; the client leaves out their records (KIP-98).
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import NamedTuple
from weakref import WeakSet

from ...actors.steps import ITEMS_PER_STEP


class AbortedTransaction(NamedTuple):
    """A producer's records from ``first_offset`` to the marker at ``last_offset`` are aborted."""

    producer_id: int
    first_offset: int
    last_offset: int


class TransactionCheck:
    """The coordinator is being asked whether a producer may append. Its answer may be older than a marker."""

    __slots__ = ("__weakref__", "producer_id")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id


class PartitionTransactions:
    """Must be updated in the order of the log."""

    __slots__ = ("_aborted_transactions", "_checks", "_open_first_offsets")

    def __init__(self) -> None:
        self._checks: WeakSet[TransactionCheck] | None = None  # few partitions ever have one
        self._open_first_offsets: dict[int, int] = {}  # by producer id, oldest transaction first
        self._aborted_transactions: list[AbortedTransaction] = []

    def last_stable_offset(self, end_offset: int) -> int:
        """The first offset of the oldest open transaction; ``end_offset`` if none is open."""
        return next(iter(self._open_first_offsets.values()), end_offset)

    def add_batch(self, producer_id: int, base_offset: int) -> None:
        self._open_first_offsets.setdefault(producer_id, base_offset)

    def is_open(self, producer_id: int) -> bool:
        return producer_id in self._open_first_offsets

    def begin_check(self, producer_id: int) -> TransactionCheck:
        """The check ends with the next marker of the producer, or when it is not referred to any more."""
        check = TransactionCheck(producer_id)
        if self._checks is None:
            self._checks = WeakSet()
        self._checks.add(check)
        return check

    def is_current(self, check: TransactionCheck | None) -> bool:
        return self._checks is not None and check in self._checks

    def end(self, producer_id: int, committed: bool, marker_offset: int) -> None:
        """End a producer's transaction. A marker without records before it ends checks only."""
        if self._checks:
            self._checks = WeakSet(check for check in self._checks if check.producer_id != producer_id)
        first_offset = self._open_first_offsets.pop(producer_id, None)
        if first_offset is not None and not committed:
            self._aborted_transactions.append(AbortedTransaction(producer_id, first_offset, marker_offset))

    def find_aborted(self, start_offset: int, end_offset: int) -> Iterator[AbortedTransaction | None]:
        """Yield the aborted transactions with records between two offsets, and None for a pause in a long search."""
        for number, transaction in enumerate(self._aborted_transactions, 1):
            if transaction.last_offset >= start_offset and transaction.first_offset < end_offset:
                yield transaction
            if number % ITEMS_PER_STEP == 0:
                yield None

    def forget(self, marker_offsets: Set[int]) -> None:
        """Forget the aborted transactions with these markers, which are gone with the records of the transactions."""
        if marker_offsets:
            self._aborted_transactions = [
                transaction
                for transaction in self._aborted_transactions
                if transaction.last_offset not in marker_offsets
            ]

    def drop_before(self, start_offset: int) -> None:
        """Drop the aborted transactions before ``start_offset``, where the log begins now."""
        if self._aborted_transactions and self._aborted_transactions[0].last_offset < start_offset:
            self._aborted_transactions = [
                transaction for transaction in self._aborted_transactions if transaction.last_offset >= start_offset
            ]
