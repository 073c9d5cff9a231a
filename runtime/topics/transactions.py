"""The transactions of one partition in memory: which are open, and which were aborted. Pure.

Who reads committed records only is given nothing from the first open transaction on, and is told which of the records
before it belong to aborted ones; to leave those out is the client's part (KIP-98).
"""

from __future__ import annotations

from typing import NamedTuple


class AbortedTransaction(NamedTuple):
    """A producer's records from ``first_offset`` up to the marker at ``last_offset`` do not count."""

    producer_id: int
    first_offset: int
    last_offset: int


class PartitionTransactions:
    """Filled in the order of the log."""

    __slots__ = ("_aborted", "_open")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # the offset of a producer's first record; the oldest transaction first
        self._aborted: list[AbortedTransaction] = []

    def last_stable_offset(self, end_offset: int) -> int:
        """Up to where everything is decided: Kafka's last stable offset."""
        return next(iter(self._open.values()), end_offset)

    def wrote(self, producer_id: int, base_offset: int) -> None:
        self._open.setdefault(producer_id, base_offset)

    def ended(self, producer_id: int, committed: bool, marker_offset: int) -> None:
        """A marker without records before it ends nothing."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is not None and not committed:
            self._aborted.append(AbortedTransaction(producer_id, first_offset, marker_offset))

    def find_aborted(self, start_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        """Those that have records between two offsets."""
        return tuple(one for one in self._aborted if one.last_offset >= start_offset and one.first_offset < end_offset)

    def forget(self, start_offset: int) -> None:
        """The log begins at this offset now."""
        if self._aborted and self._aborted[0].last_offset < start_offset:
            self._aborted = [one for one in self._aborted if one.last_offset >= start_offset]
