"""AppendQueue: the appends that the writer has not finished, and about the memory of the requests behind them."""

from __future__ import annotations

from typing import Self

from .memory import TRANSACTION_PARTITION_BYTES, WAITING_APPEND_BYTES, WAITING_RECORD_BYTES
from .messages import Append
from .records import OffsetRecord, PendingOffsetRecord, Record, TransactionRecord

RECORDS_MEASURED = 5_000
"""So many records are measured at once, in about a millisecond. The next call measures more."""


class AppendQueue(list[Append]):
    """Appends in the order in which they arrived.

    Their memory is measured when it is asked for, each append once: adding one costs no more than with a plain list.
    """

    __slots__ = ("_measured_bytes", "_sizes")

    def __init__(self) -> None:
        super().__init__()
        self._sizes: list[int] = []  # of the first appends
        self._measured_bytes = 0

    def measure_bytes(self) -> int:
        """About the bytes of all appends. Those that are not measured yet count as appends without records."""
        sizes, measured_records = self._sizes, 0
        while measured_records < RECORDS_MEASURED and len(sizes) < len(self):
            append = self[len(sizes)]
            size_bytes = append_bytes(append)
            sizes.append(size_bytes)
            self._measured_bytes += size_bytes
            measured_records += 1 + len(append.entry.records)
        return self._measured_bytes + (len(self) - len(sizes)) * WAITING_APPEND_BYTES

    def take(self, count: int) -> Self:
        """Remove the first ``count`` appends and return them."""
        taken = type(self)()
        taken.extend(self[:count])
        taken._sizes = self._sizes[:count]
        taken._measured_bytes = sum(taken._sizes)
        del self[:count], self._sizes[:count]
        self._measured_bytes -= taken._measured_bytes
        return taken

    def take_partition(self, partition: int) -> list[Append]:
        """Remove the appends to one partition and return them."""
        taken = [append for append in self if append.entry.partition == partition]
        self[:] = [append for append in self if append.entry.partition != partition]
        self._sizes, self._measured_bytes = [], 0
        return taken


def append_bytes(append: Append) -> int:
    """About the bytes of an append, its records, and the request that waits for it."""
    records = append.entry.records
    return WAITING_APPEND_BYTES + len(records) * WAITING_RECORD_BYTES + sum(map(_content_bytes, records))


def _content_bytes(record: Record) -> int:
    """What a record has in addition. The metadata of members is shared with the group."""
    if isinstance(record, OffsetRecord | PendingOffsetRecord):
        return 0 if record.value is None else len(record.value.metadata)
    if isinstance(record, TransactionRecord) and record.value is not None:
        return len(record.value.partitions) * TRANSACTION_PARTITION_BYTES
    return 0
