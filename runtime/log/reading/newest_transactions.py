"""Loads a partition of the transactions topic, newest record first: the last record of each transactional id counts."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ....actors.records import TransactionRecord, TransactionValue
from ...disk.disk import Disk
from ..format.batch import read_batch
from ..format.errors import Damage, DamagedBatch, DamagedRecord
from ..format.transaction_records import decode_transaction
from ..manifest import log_files, refuse_replaced
from .backwards import BatchChunk, chunks_newest_first
from .newest import MAX_ATTEMPTS


class LoadedTransactions(NamedTuple):
    """The transactional ids of a partition. The other fields are those of ``newest.LoadedPartition``."""

    values: dict[str, TransactionValue]
    records: int
    log_bytes: int
    unknown_keys: int
    damages: list[Damage]
    problems: list[str]


def load_transactions_partition(folder: Path, disk: Disk | None = None) -> LoadedTransactions:
    """Raises the errors of ``newest.load_partition``."""
    for _ in range(MAX_ATTEMPTS):
        with suppress(FileNotFoundError):
            return _load(disk or Disk(), folder)
    return _load(disk or Disk(), folder)


def _load(disk: Disk, folder: Path) -> LoadedTransactions:
    partition = _NewestTransactions()
    manifest, files = log_files(disk, folder)
    for chunk in chunks_newest_first(disk, files, partition.damages.append):
        partition.add_chunk(chunk)
    if partition.damages:
        refuse_replaced(disk, folder, manifest)
    return LoadedTransactions(
        partition.values,
        partition.records,
        partition.log_bytes,
        partition.unknown_keys,
        partition.damages,
        partition.problems,
    )


class _NewestTransactions:
    def __init__(self) -> None:
        self.values: dict[str, TransactionValue] = {}
        self.damages: list[Damage] = []
        self.problems: list[str] = []
        self.records = self.log_bytes = self.unknown_keys = 0
        self._seen: set[bytes | None] = set()

    def add_chunk(self, chunk: BatchChunk) -> None:
        data, starts, path, position = chunk
        self.log_bytes += len(data)
        for start in reversed(starts):
            batch = read_batch(memoryview(data), start, position + start, str(path))
            try:
                records = list(batch.records())
            except DamagedBatch as error:
                lost_offsets = batch.base_offset, batch.last_offset + 1
                self.damages.append(Damage(path, error.position, batch.size, error.reason, *lost_offsets))
                continue
            self.records += len(records)
            for offset, _timestamp_ms, key, value in reversed(records):
                self._add_record(path, offset, key, value)

    def _add_record(self, path: Path, offset: int, key: bytes | None, value: bytes | None) -> None:
        if key in self._seen:
            return
        self._seen.add(key)
        try:
            record = decode_transaction(key, value)
        except DamagedRecord as error:
            self.problems.append(f"{path}: the record at offset {offset}, key {key!r}, cannot be read: {error}")
            return
        if not isinstance(record, TransactionRecord):
            self.unknown_keys += 1
        elif record.value is not None:
            self.values[record.transactional_id] = record.value
