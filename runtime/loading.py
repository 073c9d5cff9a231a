"""From the log to the groups: every record in the order of the log, through the same ``replay`` that runs later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import structlog

from ..actors.offsets import GroupData
from ..actors.records import (
    MarkerRecord,
    PendingOffsetRecord,
    Record,
    TransactionRecord,
    TransactionValue,
    UnknownRecord,
)

if TYPE_CHECKING:
    from .log.offsets_log import OffsetsLog

log = structlog.get_logger()


def load_groups(
    offsets_log: OffsetsLog, asleep: dict[str, bytes], seen: Callable[[GroupData], None]
) -> dict[str, GroupData]:
    """The groups with members or open transactions, by id. The others go to ``asleep``, packed. ``seen`` hears of all.

    A group is packed as soon as its partition is read, so a million of them never lie in memory unpacked.
    """
    awake: dict[str, GroupData] = {}
    for partition in offsets_log.partitions_with_data():
        for group_id, data in _load_partition(offsets_log, partition, asleep).items():
            if data.is_gone():
                continue
            seen(data)
            if data.may_sleep():
                asleep[group_id] = data.pack()
            else:
                awake[group_id] = data
    return awake


class Loading:
    """One partition's groups, while its records are read."""

    def __init__(self, asleep: dict[str, bytes]) -> None:
        self.groups: dict[str, GroupData] = {}
        self.skipped = 0
        self._asleep = asleep
        self._open: dict[int, set[str]] = {}  # for each producer the groups in which its transaction is open

    def replay(self, record: Record) -> None:
        if isinstance(record, MarkerRecord):
            for group_id in self._open.pop(record.producer_id, ()):
                self.groups[group_id].replay(record)
        elif isinstance(record, UnknownRecord | TransactionRecord):
            self.skipped += 1
        else:
            self._data(record.group_id).replay(record)
            if isinstance(record, PendingOffsetRecord):
                self._open.setdefault(record.producer_id, set()).add(record.group_id)

    def _data(self, group_id: str) -> GroupData:
        data = self.groups.get(group_id)
        if data is None:
            packed = self._asleep.pop(group_id, None)  # of a log that had another number of partitions once
            data = self.groups[group_id] = GroupData() if packed is None else GroupData.unpack(packed)
        return data


def _load_partition(offsets_log: OffsetsLog, partition: int, asleep: dict[str, bytes]) -> dict[str, GroupData]:
    loading = Loading(asleep)
    for _offset, _timestamp_ms, record in offsets_log.read(partition):
        loading.replay(record)
    if loading.skipped:
        log.warning("records of unknown types were skipped", partition=partition, records=loading.skipped)
    return loading.groups


def load_transactions(offsets_log: OffsetsLog) -> dict[str, TransactionValue]:
    """The transactional ids, each as its last record has it."""
    found: dict[str, TransactionValue] = {}
    for partition in offsets_log.transactions_with_data():
        for _offset, _timestamp_ms, record in offsets_log.read(partition):
            if not isinstance(record, TransactionRecord):
                log.warning("a record of an unknown type was skipped", partition=partition, record=repr(record)[:200])
            elif record.value is None:
                found.pop(record.transactional_id, None)
            else:
                found[record.transactional_id] = record.value
    return found


def open_transactions(groups: Mapping[str, GroupData]) -> dict[int, set[str]]:
    """For each producer the groups that wait for the end of its transaction."""
    found: dict[int, set[str]] = {}
    for group_id, data in groups.items():
        for producer_id in data.pending.producers():
            found.setdefault(producer_id, set()).add(group_id)
    return found


def newest_producer_id(transactions: Mapping[str, TransactionValue]) -> int:
    """The highest that was given to a transactional id, or is about to be; -1 when there is none."""
    return max((max(value.producer_id, value.next_producer_id) for value in transactions.values()), default=-1)
