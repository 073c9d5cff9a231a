"""What lives in a log and what is dead: for deciding whether it needs compaction, and who fills it.

A record lives if it is the newest of its key and no tombstone; so a log that is full of life cannot be made smaller.
"""

from __future__ import annotations

import time
from collections import Counter
from heapq import nlargest
from typing import NamedTuple

from ....actors.records import GroupRecord, OffsetRecord, TransactionRecord
from ...disk.disk import Disk, file_size
from ...log.format.batch import CODEC_BITS, CONTROL_BIT, Batch, inflate_buffer
from ...log.format.errors import Damage, DamagedBatch, DamagedRecord, UnsupportedCompression
from ...log.format.records import decode
from ...log.format.transaction_records import decode_transaction
from ...log.partition import TRANSACTIONS_TOPIC
from ...log.reading.columns import as_list
from ...log.reading.damage_scan import BatchRun, scan_runs_past_damage
from ...log.reading.spans import read_spans
from ...log.recovery.missing import missing_files
from ..groups.show import Column, Table
from .walk import LogPartition, lost_ends

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


class _Keys:
    """How often each key was written, and whether its newest record is a tombstone."""

    def __init__(self) -> None:
        self.written: Counter[bytes] = Counter()
        self.is_tombstone: dict[bytes, bool] = {}
        self.records = 0
        self.others = 0  # without a key, or in control batches: nobody's newest

    def take(self, run: BatchRun, path: str) -> None:
        """DamagedBatch or UnsupportedCompression when the records of a batch cannot be told apart."""
        data, starts = bytes(run.data), [batch.position - run.position for batch in run.batches]
        if any(batch.attributes & CODEC_BITS for batch in run.batches):
            data, starts = inflate_buffer(data, starts, path, run.position)
        spans = read_spans(data, starts, source=path, position=run.position)
        is_control = [bool(int(attributes) & CONTROL_BIT) for attributes in spans.headers.attributes]
        columns = spans.key_at, spans.key_size, spans.value_size, spans.batch
        for key_at, key_size, value_size, batch in zip(*map(as_list, columns), strict=True):
            self.records += 1
            if key_size < 0 or is_control[batch]:
                self.others += 1
                continue
            key = data[key_at : key_at + key_size]
            self.written[key] += 1
            self.is_tombstone[key] = value_size < 0


def partition_stats(partition: LogPartition, disk: Disk, top: int) -> PartitionStats:
    """Read all of a partition; ``top``: how many of its hottest keys to tell."""
    begun_s = time.perf_counter()
    (manifest, listed), missing = missing_files(disk, partition.folder)
    files = [file for file in listed if disk.kind(file.path) == "file"]
    keys, damaged, newest = _Keys(), 0, None
    sizes = {file.path: file_size(disk, file.path) for file in files}
    for index, file in enumerate(files):
        next_base = files[index + 1].base if index + 1 < len(files) else None
        for piece in scan_runs_past_damage(disk, file.path, file.base, next_base):
            if isinstance(piece, Damage):
                damaged += 1
            else:
                damaged += _take(keys, piece, str(file.path))
                newest = piece.batches[-1].last_offset
    damaged += len(missing) + len(list(lost_ends(partition, disk)))
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
        time.perf_counter() - begun_s,
        nlargest(top, keys.written.items(), key=lambda item: item[1]),
    )


def _take(keys: _Keys, run: BatchRun, path: str) -> int:
    """The number of batches that could not be read."""
    try:
        keys.take(run, path)
        return 0
    except (DamagedBatch, UnsupportedCompression):
        return sum(_take_alone(keys, batch, path) for batch in run.batches)


def _take_alone(keys: _Keys, batch: Batch, path: str) -> int:
    try:
        keys.take(BatchRun(batch.position, memoryview(batch.data), [batch]), path)
        return 0
    except (DamagedBatch, UnsupportedCompression):
        return 1


def stats_table(found: list[PartitionStats]) -> Table:
    return Table(COLUMNS, [_row(one) for one in found])


def _row(one: PartitionStats) -> tuple[str | int | None, ...]:
    log = "transactions" if one.partition.topic == TRANSACTIONS_TOPIC else "offsets"
    dead, dirty = _percent(one.dead, one.records), _percent(one.dirty_bytes, one.size)
    sizes = one.files, one.size, one.records, one.live, one.tombstones
    return (log, one.partition.number, *sizes, dead, dirty, one.damaged, one.newest_offset)


def _percent(part: int, whole: int) -> int:
    return round(100 * part / whole) if whole else 0


def hottest_table(found: list[PartitionStats], top: int) -> Table:
    """The keys that were written most, over all partitions."""
    all_keys = ((count, one.partition.topic, key) for one in found for key, count in one.hottest)
    return Table(HOTTEST_COLUMNS, [(count, *key_words(topic, key)) for count, topic, key in nlargest(top, all_keys)])


def key_words(topic: str, key: bytes) -> tuple[str, str]:
    """Kind and name of what a key is for."""
    try:
        record = decode_transaction(key, None) if topic == TRANSACTIONS_TOPIC else decode(key, None)
    except DamagedRecord as damage:
        return "unreadable", str(damage)
    if isinstance(record, OffsetRecord):
        return "offset", f"{record.group_id} {record.topic}-{record.partition}"
    if isinstance(record, GroupRecord):
        return "group", record.group_id
    if isinstance(record, TransactionRecord):
        return "transaction", record.transactional_id
    return "unknown", key.hex()
