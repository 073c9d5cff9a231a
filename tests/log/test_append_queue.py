"""AppendQueue: its memory is measured when it is asked for, each append once, and some at a time."""

from __future__ import annotations

import pytest

from callboard.actors import append_queue
from callboard.actors.append_queue import RECORDS_MEASURED, AppendQueue, append_bytes
from callboard.actors.memory import TRANSACTION_PARTITION_BYTES, WAITING_APPEND_BYTES, WAITING_RECORD_BYTES
from callboard.actors.messages import Append
from callboard.actors.ports import Entry
from callboard.actors.records import (
    MarkerRecord,
    OffsetRecord,
    OffsetValue,
    PendingOffsetRecord,
    Record,
    TransactionRecord,
    TransactionValue,
)

SMALL_BYTES = WAITING_APPEND_BYTES + WAITING_RECORD_BYTES


def append(*records: Record, partition: int = 0) -> Append:
    return Append(None, Entry(partition, records), None)


def commit(metadata: str = "", partition: int = 0) -> Append:
    return append(OffsetRecord("g", "t", 0, OffsetValue(1, -1, metadata)), partition=partition)


def queue(*appends: Append) -> AppendQueue:
    made = AppendQueue()
    made.extend(appends)
    return made


def test_size_of_append_is_that_of_its_records_and_their_contents() -> None:
    partitions = frozenset({("t", 0), ("t", 1)})
    appends = {
        commit("x" * 4000): SMALL_BYTES + 4000,
        append(PendingOffsetRecord("g", "t", 0, OffsetValue(1, -1, "xyz"), 1, 0)): SMALL_BYTES + 3,
        append(OffsetRecord("g", "t", 0, None), OffsetRecord("g", "t", 1, None)): SMALL_BYTES + WAITING_RECORD_BYTES,
        append(TransactionRecord("x", TransactionValue(1, 0, 0, 0, partitions))): SMALL_BYTES
        + 2 * TRANSACTION_PARTITION_BYTES,
        append(TransactionRecord("x", None), MarkerRecord(1, 0, True)): SMALL_BYTES + WAITING_RECORD_BYTES,
    }
    assert [append_bytes(each) for each in appends] == list(appends.values())
    assert queue(*appends).measure_bytes() == sum(appends.values())


def test_each_append_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Append] = []

    def measure(each: Append) -> int:
        measured.append(each)
        return 100

    monkeypatch.setattr(append_queue, "append_bytes", measure)
    waiting = queue(*(commit() for _ in range(10)))
    assert waiting.measure_bytes() == waiting.measure_bytes() == 1000
    waiting.append(commit())
    taken = waiting.take(4)
    assert (len(taken), taken.measure_bytes(), len(waiting), waiting.measure_bytes()) == (4, 400, 7, 700)
    assert len(measured) == 11


def test_long_queue_is_measured_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [0]

    def count(each: Append) -> int:
        counts[-1] += 1 + len(each.entry.records)
        return append_bytes(each)

    monkeypatch.setattr(append_queue, "append_bytes", count)
    waiting = queue(*(commit("x" * 1000) for _ in range(2 * RECORDS_MEASURED)))
    sizes: list[int] = []
    while not sizes or len(waiting._sizes) < len(waiting):
        counts.append(0)
        sizes.append(waiting.measure_bytes())
    assert max(counts) <= RECORDS_MEASURED + 1
    assert sizes == sorted(sizes) and sizes[0] >= len(waiting) * WAITING_APPEND_BYTES
    assert sizes[-1] == len(waiting) * (SMALL_BYTES + 1000)


def test_appends_of_a_partition_are_taken_out() -> None:
    waiting = queue(commit(), commit("abc", partition=1), commit())
    assert waiting.measure_bytes() == 3 * SMALL_BYTES + 3
    assert [each.entry.partition for each in waiting.take_partition(1)] == [1]
    assert waiting.measure_bytes() == 2 * SMALL_BYTES


def test_empty_queue_has_no_bytes() -> None:
    waiting = queue(commit())
    waiting.measure_bytes()
    waiting.take(1000)
    assert waiting.measure_bytes() == 0 and not waiting
