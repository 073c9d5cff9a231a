"""Counts live and dead records of a log, to decide whether it needs compaction, and finds the keys that fill it.

A record is live if it is the newest of its key and not a tombstone. Compaction cannot remove live records.
"""

from __future__ import annotations

import time
from collections import Counter
from heapq import nlargest
from typing import NamedTuple

from ....actors.records import OffsetRecord, TransactionRecord, UnknownRecord
from ...disk.disk import Disk, file_size
from ...log.format.batch import CODEC_BITS, CONTROL_BIT, Batch, inflate_buffer
from ...log.format.errors import Damage, DamagedBatch, DamagedRecord, UnsupportedCompression
from ...log.format.records import RECORD_TYPES, decode
from ...log.format.transaction_records import decode_transaction
from ...log.partition import TRANSACTIONS_TOPIC
from ...log.reading.columns import as_list
from ...log.reading.damage_scan import BatchRun, scan_runs_past_damage
from ...log.reading.spans import read_spans
from ...log.recovery.missing import missing_files
from ..tables import Column, Table
from .scan import LogPartition, find_missing_ends

COLUMNS = (
    Column("log", "log"),
    Column("partition", "partition", is_number=True),
    Column("files", "files", is_number=True),
    Column("bytes", "bytes", is_number=True),
    Column("records", "records", is_number=True),
    Column("live", "live", is_number=True),
    Column("tombstones", "tombstones", is_number=True),
    Column("dead_percent", "dead %", is_number=True),
    Column("dirty_percent", "dirty %", is_number=True),
    Column("damaged", "damaged", is_number=True),
    Column("newest_offset", "newest offset", is_number=True),
)

HOTTEST_COLUMNS = (
    Column("records", "records", is_number=True),
    Column("kind", "kind"),
    Column("key", "key"),
)


class PartitionStats(NamedTuple):
    """Sizes in bytes. ``dirty_bytes`` were written since the last compaction; ``seconds`` is how long reading took."""

    partition: LogPartition
    files: int
    size: int
    dirty_bytes: int
    records: int
    live: int
    tombstones: int
    damaged: int
    newest_offset: int | None
    seconds: float
    hottest: list[tuple[bytes, int]]

    @property
    def dead(self) -> int:
        return self.records - self.live - self.tombstones


class _KeyCounts:
    """Counts how often each key was written, and notes whether its newest record is a tombstone."""

    def __init__(self) -> None:
        self.written: Counter[bytes] = Counter()
        self.is_tombstone: dict[bytes, bool] = {}
        self.records = 0
        self.unkeyed_records = 0  # without a key, or in control batches

    def add_run(self, run: BatchRun, path: str) -> None:
        """Count the records of some batches. DamagedBatch or UnsupportedCompression when they cannot be parsed."""
        data, starts = bytes(run.data), [batch.position - run.position for batch in run.batches]
        if any(batch.attributes & CODEC_BITS for batch in run.batches):
            data, starts = inflate_buffer(data, starts, path, run.position)
        spans = read_spans(data, starts, source=path, position=run.position)
        is_control = [bool(int(attributes) & CONTROL_BIT) for attributes in spans.headers.attributes]
        columns = spans.key_at, spans.key_size, spans.value_size, spans.batch
        for key_at, key_size, value_size, batch in zip(*map(as_list, columns), strict=True):
            self.records += 1
            if key_size < 0 or is_control[batch]:
                self.unkeyed_records += 1
                continue
            key = data[key_at : key_at + key_size]
            self.written[key] += 1
            self.is_tombstone[key] = value_size < 0


def partition_stats(partition: LogPartition, disk: Disk, top: int) -> PartitionStats:
    """Read a whole partition. ``top``: how many of the most frequent keys to return."""
    started_s = time.perf_counter()
    (manifest, manifest_files), missing = missing_files(disk, partition.folder)
    files = [file for file in manifest_files if disk.kind(file.path) != "nothing"]
    keys, damaged, newest = _KeyCounts(), 0, None
    sizes = {file.path: file_size(disk, file.path) for file in files}
    for index, file in enumerate(files):
        next_base = files[index + 1].base if index + 1 < len(files) else None
        for item in scan_runs_past_damage(disk, file.path, file.base, next_base):
            if isinstance(item, Damage):
                damaged += 1
            else:
                damaged += _add_run(keys, item, str(file.path))
                newest = item.batches[-1].last_offset
    damaged += len(missing) + len(list(find_missing_ends(partition, disk)))
    tombstones = sum(keys.is_tombstone.values())
    return PartitionStats(
        partition,
        len(files),
        sum(sizes.values()),
        sum(sizes[file.path] for file in files if file.base >= manifest.clean_end),
        keys.records,
        len(keys.is_tombstone) - tombstones,
        tombstones,
        damaged,
        newest,
        time.perf_counter() - started_s,
        nlargest(top, keys.written.items(), key=lambda item: item[1]),
    )


def _add_run(keys: _KeyCounts, run: BatchRun, path: str) -> int:
    """Count the records. Returns the number of unreadable batches."""
    try:
        keys.add_run(run, path)
        return 0
    except (DamagedBatch, UnsupportedCompression):
        return sum(_add_batch(keys, batch, path) for batch in run.batches)


def _add_batch(keys: _KeyCounts, batch: Batch, path: str) -> int:
    try:
        keys.add_run(BatchRun(batch.position, memoryview(batch.data), [batch]), path)
        return 0
    except (DamagedBatch, UnsupportedCompression):
        return 1


def stats_table(stats: list[PartitionStats]) -> Table:
    return Table(COLUMNS, [_row(partition_stats) for partition_stats in stats])


def _row(partition_stats: PartitionStats) -> tuple[str | int | None, ...]:
    log = "transactions" if partition_stats.partition.topic == TRANSACTIONS_TOPIC else "offsets"
    dead, dirty = (
        _percent(partition_stats.dead, partition_stats.records),
        _percent(partition_stats.dirty_bytes, partition_stats.size),
    )
    sizes = (
        partition_stats.files,
        partition_stats.size,
        partition_stats.records,
        partition_stats.live,
        partition_stats.tombstones,
    )
    return (
        log,
        partition_stats.partition.number,
        *sizes,
        dead,
        dirty,
        partition_stats.damaged,
        partition_stats.newest_offset,
    )


def _percent(part: int, total: int) -> int:
    return round(100 * part / total) if total else 0


def hottest_table(stats: list[PartitionStats], top: int) -> Table:
    """The keys that were written most often, over all partitions."""
    all_keys = (
        (count, partition_stats.partition.topic, key)
        for partition_stats in stats
        for key, count in partition_stats.hottest
    )
    return Table(HOTTEST_COLUMNS, [(count, *describe_key(topic, key)) for count, topic, key in nlargest(top, all_keys)])


def describe_key(topic: str, key: bytes) -> tuple[str, str]:
    """The kind and the name of a key."""
    try:
        record = decode_transaction(key, None) if topic == TRANSACTIONS_TOPIC else decode(key, None)
    except DamagedRecord as damage:
        return "unreadable", str(damage)
    if isinstance(record, OffsetRecord):
        return "offset", f"{record.group_id} {record.topic}-{record.partition}"
    if isinstance(record, TransactionRecord):
        return "transaction", record.transactional_id
    if isinstance(record, UnknownRecord):
        return "unknown", key.hex()
    return RECORD_TYPES[record.key_type].name, record.group_id
