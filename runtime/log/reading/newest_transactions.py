"""One partition of the transactions topic, read the newest first: each transactional id as its last record has it."""

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
from .newest import TRIES


class LoadedTransactions(NamedTuple):
    """The transactional ids of a partition; the other fields as those of ``newest.LoadedPartition``."""

    values: dict[str, TransactionValue]
    records: int
    log_bytes: int
    unknown_keys: int
    damages: list[Damage]
    problems: list[str]


def load_transactions_partition(folder: Path, disk: Disk | None = None) -> LoadedTransactions:
    """Errors as ``newest.load_partition`` has them."""
    for _ in range(TRIES):
        with suppress(FileNotFoundError):
            return _load(disk or Disk(), folder)
    return _load(disk or Disk(), folder)


def _load(disk: Disk, folder: Path) -> LoadedTransactions:
    found = _NewestTransactions()
    manifest, files = log_files(disk, folder)
    for chunk in chunks_newest_first(disk, files, found.damages.append):
        found.take(chunk)
    if found.damages:
        refuse_replaced(disk, folder, manifest)
    return LoadedTransactions(
        found.values, found.records, found.log_bytes, found.unknown_keys, found.damages, found.problems
    )


class _NewestTransactions:
    def __init__(self) -> None:
        self.values: dict[str, TransactionValue] = {}
        self.damages: list[Damage] = []
        self.problems: list[str] = []
        self.records = self.log_bytes = self.unknown_keys = 0
        self._seen: set[bytes | None] = set()

    def take(self, chunk: BatchChunk) -> None:
        data, starts, path, position = chunk
        self.log_bytes += len(data)
        for start in reversed(starts):
            batch = read_batch(memoryview(data), start, position + start, str(path))
            try:
                records = list(batch.records())
            except DamagedBatch as bad:
                lost = batch.base_offset, batch.last_offset + 1
                self.damages.append(Damage(path, bad.position, batch.size, bad.reason, *lost))
                continue
            self.records += len(records)
            for offset, _timestamp_ms, key, value in reversed(records):
                self._record(path, offset, key, value)

    def _record(self, path: Path, offset: int, key: bytes | None, value: bytes | None) -> None:
        if key in self._seen:
            return
        self._seen.add(key)
        try:
            record = decode_transaction(key, value)
        except DamagedRecord as damage:
            self.problems.append(f"{path}: the record at offset {offset}, key {key!r}, cannot be read: {damage}")
            return
        if not isinstance(record, TransactionRecord):
            self.unknown_keys += 1
        elif record.value is not None:
            self.values[record.transactional_id] = record.value
