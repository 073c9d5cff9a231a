"""Loads a partition of the offsets topic, newest record first, so superseded records are never decoded.

Most records of a log are offsets that were committed again soon after. Backwards, the first record of a key is the one
that counts; of the others only the key is read. The result equals that of ``GroupData.replay`` from the beginning to
the end, which a test checks. Memory: the keys and one chunk, whatever the length of the log.

Transactions: backwards, a marker comes before the offsets that it ends. So each transactional offset is known to be
committed (it counts like any other), aborted (it is ignored) or still open. An open one is superseded if a later commit
for the same partition exists, and dropped if a later tombstone exists. A tombstone that is itself superseded is not
seen, so if such offsets exist, which is rare, the log is read a second time.

Damage is contained: a damaged batch costs its own records. A record with an unreadable value costs its group, which is
reported as quarantined instead of being restored from the rest of its records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from ....actors.group.kinds import KINDS
from ....actors.group.offsets import GroupData, PackedOffset, is_plain, pack, pack_offset
from ....actors.messages import QuarantinedGroup
from ....actors.records import (
    CLASSIC,
    GroupRecord,
    GroupValue,
    MarkerRecord,
    OffsetRecord,
    OffsetValue,
    UnknownRecord,
)
from ...disk.disk import Disk
from ..format.batch import CONTROL_BIT, offsets_of, read_batch, read_size
from ..format.errors import Damage, DamagedBatch, DamagedRecord
from ..format.fields import I16, Reader
from ..format.record_type import DecodedRecord
from ..format.records import RECORD_TYPES, decode, encode_key, encode_value
from ..format.transaction_records import decode_record
from ..manifest import log_files, refuse_replaced
from .backwards import BatchChunk, chunks_newest_first
from .chunk_columns import TRANSACTION_BITS, ChunkColumns, read_columns
from .columns import as_list, has_numpy
from .group_records import GroupRecords, PartitionEnd, is_unserved
from .load_report import LoadReport
from .segment import CHUNK_BYTES

if TYPE_CHECKING:
    from .known_keys import KnownKeys

BULK_MIN_RECORDS = 1000  # from here on one lookup of all keys is faster than one each
SELECT_DIVISOR = 2  # for more than half of the records, a dict of their bounds costs more than lists of all bounds
MAX_ATTEMPTS = 10  # a listed file is gone if it was compacted since, which is rare
COMMITTED_END_MAX = 2**62  # a client may commit any offset; no log can reach a larger one

SingleOffset = tuple[str, str, PackedOffset]
"""A group's name, and its only offset, which is plain: a topic and the rest. Most of a million groups are that."""

_CLASSIC_KIND = KINDS[CLASSIC]
_OFFSET_KEY = b"\0\1"
_GROUP_KEY = b"\0\2"
_OFFSET_KEYS = (b"\0\0", _OFFSET_KEY)
_COMMON_VALUE = Struct(">hqihq")  # an offset value of version 3 without metadata: nearly all of them
_COMMON_VALUE_BYTES = _COMMON_VALUE.size
_COMMON_VALUE_VERSION = 3
_EMPTY_GROUP = Struct(">ihhqi")  # after the protocol type: generation, protocol, leader, time, member count
assert _COMMON_VALUE_BYTES == 24


class LoadedPartition(NamedTuple):
    """The content of a partition. A group is in ``packed_groups`` (no members), ``unpacked_groups`` or ``quarantined``.

    ``quarantined``: groups that cannot be restored, by group id. ``committed_ends``: the largest committed offset of
    each topic and partition, up to ``COMMITTED_END_MAX``. ``records`` and ``log_bytes``: the amount read. ``damages``:
    batches that were skipped. ``problems``: unreadable records whose group is unknown.
    """

    packed_groups: dict[str, bytes]
    unpacked_groups: dict[str, GroupData]
    quarantined: dict[str, QuarantinedGroup]
    committed_ends: dict[tuple[str, int], int]
    records: int
    log_bytes: int
    unknown_keys: int
    damages: list[Damage]
    problems: list[str]


def load_partition(
    folder: Path, disk: Disk | None = None, *, fast: bool | None = None, chunk_bytes: int = CHUNK_BYTES
) -> LoadedPartition:
    """The groups of a partition's folder. ``fast`` as in ``read_spans``.

    Raises OSError, ManifestError or UnsupportedCompression if the partition as a whole cannot be read.
    """
    for _ in range(MAX_ATTEMPTS):
        with suppress(FileNotFoundError):
            return _load(disk or Disk(), folder, fast, chunk_bytes)
    return _load(disk or Disk(), folder, fast, chunk_bytes)


def _load(disk: Disk, folder: Path, fast: bool | None, chunk_bytes: int) -> LoadedPartition:
    manifest, files = log_files(disk, folder)
    loader = NewestFirstLoader(fast)
    for chunk in chunks_newest_first(disk, files, loader.report.damages.append, chunk_bytes):
        loader.add_chunk(chunk)
    if loader.report.damages:
        refuse_replaced(disk, folder, manifest)
    if loader.needs_second_pass:
        for chunk in chunks_newest_first(disk, files, lambda _damage: None, chunk_bytes):
            loader.resolve_pending(chunk)
    return loader.finish()


def _new_known_keys() -> KnownKeys:
    from .known_keys import KnownKeys  # imports numpy

    return KnownKeys()


class _UnresolvedOffset(NamedTuple):
    """An offset of an open transaction whose key has a later record: either superseded or deleted by it."""

    producers: dict[int, OffsetValue | None]
    producer_id: int
    offset: int


class NewestFirstLoader:
    """Call ``add_chunk`` for each chunk, newest first; ``resolve_pending`` if ``needs_second_pass``; and ``finish``."""

    def __init__(self, fast: bool | None = None) -> None:
        self.report = LoadReport()
        self._fast = fast
        self._seen: set[bytes] = set()
        self._known_keys = _new_known_keys() if (has_numpy() if fast is None else fast) else None
        self._groups: dict[bytes, GroupRecords] = {}  # by the group's part of the record key
        self._single_offsets: dict[bytes, SingleOffset] = {}  # those of groups that have no other record so far
        self._protocol_types: dict[bytes, str] = {}  # by the first bytes of a group's value
        self._partition_ends: dict[bytes, PartitionEnd] = {}  # by the rest of an offset's key
        self._outcomes: dict[int, bool] = {}  # by producer id: whether the transaction before here was committed
        self._pending: dict[str, dict[tuple[str, int], dict[int, OffsetValue | None]]] = {}
        self._unresolved: dict[bytes, list[_UnresolvedOffset]] = {}
        self._rewritten_keys: set[bytes] = set()  # their newest record has the key in another encoding
        self._new_records: list[int] = []  # of the current run: those with new keys, newest first

    def add_chunk(self, chunk: BatchChunk) -> None:
        """Add a chunk. All newer chunks must have been added before."""
        self.report.log_bytes += len(chunk.data)
        for columns in self._read_columns(chunk):
            self.report.records += len(columns.spans)
            self._add_records(columns)

    @property
    def needs_second_pass(self) -> bool:
        return bool(self._unresolved)

    # Chunks ----------------------------------------------------------------------------------------------------------

    def _read_columns(self, chunk: BatchChunk) -> Iterable[ChunkColumns]:
        """The chunk's columns, batch by batch if part of it cannot be read."""
        try:
            return [read_columns(chunk, self._fast)]
        except DamagedBatch:
            return self._read_columns_by_batch(chunk)

    def _read_columns_by_batch(self, chunk: BatchChunk) -> Iterator[ChunkColumns]:
        for start in reversed(chunk.starts):
            try:
                yield read_columns(BatchChunk(chunk.data, [start], chunk.path, chunk.position), self._fast)
            except DamagedBatch as error:
                base, last, size = _offsets_and_size(chunk, start)
                self.report.damages.append(Damage(chunk.path, error.position, size, error.reason, base, last + 1))

    def _add_records(self, columns: ChunkColumns) -> None:
        """Add transactional batches one by one, and the batches between them together."""
        spans = columns.spans
        attributes, counts = as_list(spans.headers.attributes), as_list(spans.headers.record_count)
        special = [index for index, bits in enumerate(attributes) if bits & TRANSACTION_BITS]
        if not special:
            self._add_plain(columns, 0, len(spans))
            return
        first = [0, *accumulate(counts)]
        stop = len(spans)
        for index in reversed(special):
            self._add_plain(columns, first[index + 1], stop)
            stop = first[index]
            if attributes[index] & CONTROL_BIT:
                self._add_markers(columns, index)
            else:
                self._add_transactional(columns, int(spans.headers.producer_id[index]), stop, first[index + 1])
        self._add_plain(columns, 0, stop)

    def _add_plain(self, columns: ChunkColumns, start: int, stop: int) -> None:
        """Add records of which the newest of each key counts."""
        if start == stop:
            return
        run, spans = slice(start, stop), columns.spans
        if self._known_keys is None or stop - start < BULK_MIN_RECORDS or isinstance(spans.key_at, list):
            self._new_records = self._filter_new(columns, range(stop - 1, start - 1, -1))
        else:
            unknown = self._known_keys.find_unknown(columns.chunk.data, spans.key_at[run], spans.key_size[run])
            newest_first = unknown[::-1] + start
            if len(unknown) * SELECT_DIVISOR < stop - start:
                columns = columns.select(newest_first)
            self._new_records = self._filter_new(columns, newest_first.tolist())
            self._known_keys.add([index - start for index in self._new_records])
        self._store_records(columns, self._new_records)

    def _filter_new(self, columns: ChunkColumns, indexes: Sequence[int]) -> list[int]:
        """The indexes of records with unseen keys, which become seen. ``indexes`` descend: the newest record counts."""
        seen, add = self._seen, self._seen.add
        data, starts, ends = columns.chunk.data, columns.key_starts, columns.key_ends
        return [at for at in indexes if (key := data[starts[at] : ends[at]]) not in seen and not add(key)]

    def _add_markers(self, columns: ChunkColumns, index: int) -> None:
        data, starts, path, position = columns.chunk
        batch = read_batch(memoryview(data), starts[index], position + starts[index], str(path))
        for offset, _timestamp_ms, key, value in reversed(list(batch.records())):
            try:
                marker = decode_record(batch, key, value)
            except DamagedRecord as error:
                self.report.problems.append(
                    f"{path}: the end of a transaction at offset {offset} cannot be read: {error}"
                )
                continue
            if isinstance(marker, MarkerRecord):
                self._outcomes[marker.producer_id] = marker.committed

    def _add_transactional(self, columns: ChunkColumns, producer_id: int, start: int, stop: int) -> None:
        """As in ``replay``, tombstones and records other than offsets take effect before the transaction ends."""
        committed = self._outcomes.get(producer_id)
        for index in range(stop - 1, start - 1, -1):
            key = columns.key(index)
            if committed or key[:2] not in _OFFSET_KEYS or columns.value(index) is None:
                self._add_plain(columns, index, index + 1)
            elif committed is None:
                self._store_pending(columns, index, producer_id)

    # Records ---------------------------------------------------------------------------------------------------------

    def _store_records(self, columns: ChunkColumns, indexes: Sequence[int]) -> None:
        """Store records with new keys, newest first.

        Records in the form that the coordinator usually writes are decoded here, the others in ``_store_any``.
        """
        data, key_starts, key_ends, ends = columns.chunk.data, columns.key_starts, columns.key_ends, columns.ends
        groups, partition_ends, rewritten_keys = self._groups, self._partition_ends, self._rewritten_keys
        single_offsets = self._single_offsets
        unpack_value = _COMMON_VALUE.unpack_from
        for index in indexes:
            at = key_ends[index]
            key = data[key_starts[index] : at]
            if key[:2] != _OFFSET_KEY or at >= len(data) or key in rewritten_keys:
                if key[:2] != _GROUP_KEY or at >= len(data) or not self._store_empty_group(data, key, at):
                    self._store_any(columns, index)
                continue
            topic_at = 4 + (key[2] << 8 | key[3]) if len(key) > 3 else 2
            partition_end = partition_ends.get(key[topic_at:])
            size = data[at]
            if partition_end is None or size != _COMMON_VALUE_BYTES * 2 or at + _COMMON_VALUE_BYTES >= ends[index]:
                self._store_any(columns, index)
                continue
            version, offset, leader_epoch, metadata_bytes, commit_timestamp_ms = unpack_value(data, at + 1)
            if version != _COMMON_VALUE_VERSION or metadata_bytes:
                self._store_any(columns, index)
                continue
            group_key = key[2:topic_at]
            group = groups.get(group_key) or (self._group(group_key) if group_key in single_offsets else None)
            row = partition_end.partition, offset, leader_epoch, "", commit_timestamp_ms, -1
            if group is not None:
                group.rows.append((partition_end.topic, row))
            elif (name := _group_name(group_key)) is not None:
                single_offsets[group_key] = name, partition_end.topic, row
            else:
                self._store_any(columns, index)
                continue
            if partition_end.end < offset <= COMMITTED_END_MAX:
                partition_end.end = offset

    def _store_empty_group(self, data: bytes, key: bytes, at: int) -> bool:
        """Store a group without members in the coordinator's own form, if its protocol type is known; else False.

        There may be a million such groups, and ``decode`` takes five times as long.
        """
        end = at + 1 + (data[at] >> 1)
        protocol_type = self._protocol_types.get(data[at + 1 : end - _EMPTY_GROUP.size])
        if protocol_type is None or data[at] & 0x81 or len(key) != 4 + int.from_bytes(key[2:4]):
            return False
        generation, protocol, leader, timestamp_ms, members = _EMPTY_GROUP.unpack_from(data, end - _EMPTY_GROUP.size)
        if protocol != -1 or leader != -1 or members or key in self._rewritten_keys:
            return False
        group = self._group(key[2:]) or self._new_group(key[2:])
        if group is None:
            return False
        if group.states:
            return False
        group.value = GroupValue(protocol_type, generation, None, None, timestamp_ms, ())
        return True

    def _new_group(self, group_key: bytes) -> GroupRecords | None:
        name = _group_name(group_key)
        if name is None:
            return None
        group = self._groups[group_key] = GroupRecords(name)
        return group

    def _group(self, group_key: bytes) -> GroupRecords | None:
        """The records of a group that has any so far."""
        single = self._single_offsets.pop(group_key, None)
        if single is None:
            return self._groups.get(group_key)
        name, topic, row = single
        group = self._groups[group_key] = GroupRecords(name, [(topic, row)])
        return group

    def _store_any(self, columns: ChunkColumns, index: int) -> None:
        """Store a record of any version, with a key in any encoding, or report that it is damaged."""
        key = columns.key(index)
        if key in self._rewritten_keys:
            return
        try:
            key_record = decode(key, None)
        except DamagedRecord as error:
            self.report.add_damaged_record(columns, index, _group_id_of(key), error)
            return
        if isinstance(key_record, UnknownRecord) or is_unserved(key_record):
            self.report.unknown_keys += 1
            return
        canonical_key = encode_key(key_record)
        if canonical_key != key and not self._is_newest(columns, index, canonical_key):
            return
        try:
            self._store_record(decode(key, columns.value(index)), canonical_key)
        except (DamagedRecord, ValueError) as error:
            self.report.add_damaged_record(columns, index, key_record.group_id, error)

    def _is_newest(self, columns: ChunkColumns, index: int, canonical_key: bytes) -> bool:
        """Whether no newer record has this key, in whatever encoding."""
        if canonical_key in self._seen:
            matches = (at for at in self._new_records if columns.key(at) == canonical_key)
            if next(matches, len(columns.spans)) > index or canonical_key in self._rewritten_keys:
                return False
        self._rewritten_keys.add(canonical_key)
        self._seen.add(canonical_key)
        return True

    def _store_record(self, record: DecodedRecord, key: bytes) -> None:
        if isinstance(record, UnknownRecord) or record.value is None:
            return
        topic_at = 4 + int.from_bytes(key[2:4])
        group = self._group(key[2:topic_at])
        if group is None:
            group = self._groups[key[2:topic_at]] = GroupRecords(record.group_id)
        if not isinstance(record, OffsetRecord):
            group.add_state(record)
        if isinstance(record, GroupRecord):
            empty = encode_value(record._replace(value=record.value._replace(protocol=None, leader=None, members=())))
            self._protocol_types[(empty or b"")[: -_EMPTY_GROUP.size]] = record.value.protocol_type
        if not isinstance(record, OffsetRecord):
            return
        partition_end = self._partition_ends.get(key[topic_at:])
        if partition_end is None:
            partition_end = self._partition_ends[key[topic_at:]] = PartitionEnd(record.topic, record.partition)
        if partition_end.end < record.value.offset <= COMMITTED_END_MAX:
            partition_end.end = record.value.offset
        group.rows.append((partition_end.topic, (partition_end.partition, *record.value)))

    def _store_pending(self, columns: ChunkColumns, index: int, producer_id: int) -> None:
        """Store an offset of a transaction that is open at the end of the log."""
        key = columns.key(index)
        try:
            record = decode(key, None)
            assert isinstance(record, OffsetRecord)
            canonical_key = encode_key(record)
            producers = self._pending.setdefault(record.group_id, {}).setdefault((record.topic, record.partition), {})
            if producer_id in producers:
                return
            if canonical_key in self._seen:
                unresolved = _UnresolvedOffset(producers, producer_id, columns.offset(index))
                self._unresolved.setdefault(canonical_key, []).append(unresolved)
                producers[producer_id] = None
            else:
                producers[producer_id] = decode(key, columns.value(index)).value  # type: ignore[assignment]
        except DamagedRecord as error:
            self.report.add_damaged_record(columns, index, _group_id_of(key), error)

    # Result ----------------------------------------------------------------------------------------------------------

    def resolve_pending(self, chunk: BatchChunk) -> None:
        """Search a chunk, in the second pass, for tombstones of unresolved offsets."""
        for columns in self._read_columns_by_batch(chunk):
            spans = columns.spans
            if as_list(spans.headers.attributes)[0] & CONTROL_BIT:
                continue
            for index, size in enumerate(as_list(spans.value_size)):
                if size == -1:
                    self._apply_tombstone(columns.key(index), int(spans.offset[index]))

    def _apply_tombstone(self, key: bytes, offset: int) -> None:
        with suppress(DamagedRecord):
            for unresolved in self._unresolved.get(encode_key(decode(key, None)), ()):
                if offset > unresolved.offset:
                    unresolved.producers.pop(unresolved.producer_id, None)

    def finish(self) -> LoadedPartition:
        """The content of the partition. Consumes the loader's state."""
        packed_groups: dict[str, bytes] = {}
        unpacked_groups: dict[str, GroupData] = {}
        self._seen.clear()
        pending = {
            group_id: {key: producers for key, producers in reversed(offsets.items()) if producers}
            for group_id, offsets in self._pending.items()
        }
        while self._single_offsets:
            group_key, (name, topic, row) = self._single_offsets.popitem()
            if name in pending or name in self.report.quarantined:
                self._groups[group_key] = GroupRecords(name, [(topic, row)])
            else:
                packed_groups[name] = pack_offset(topic, row)
        while self._groups:
            _, group = self._groups.popitem()
            offsets = pending.pop(group.name, None) if pending else None
            self._finish_group(group, offsets or {}, packed_groups, unpacked_groups)
        for group_id, offsets in pending.items():
            self._finish_group(GroupRecords(group_id), offsets, packed_groups, unpacked_groups)
        ends = {(row.topic, row.partition): row.end for row in self._partition_ends.values() if row.end >= 0}
        report = self.report
        counts = report.records, report.log_bytes, report.unknown_keys
        content = packed_groups, unpacked_groups, report.quarantined, ends
        return LoadedPartition(*content, *counts, report.damages, report.problems)

    def _finish_group(
        self,
        group: GroupRecords,
        pending: dict[tuple[str, int], dict[int, OffsetValue | None]],
        packed_groups: dict[str, bytes],
        unpacked_groups: dict[str, GroupData],
    ) -> None:
        quarantine = self.report.quarantined.get(group.name) if self.report.quarantined else None
        if quarantine is not None:
            self.report.quarantined[group.name] = quarantine._replace(group_type=group.type or quarantine.group_type)
            return
        if not group.states and not pending and (group.value is None or not group.value.members):
            if group.value is None and len(group.rows) == 1 and is_plain(group.rows[0][1]):
                packed_groups[group.name] = pack_offset(*group.rows[0])
            elif group.value is not None or group.rows:
                packed_groups[group.name] = pack(_CLASSIC_KIND, group.value, group.topics())
            return
        data = group.data()
        for topic, rows in group.topics():
            data.offsets.restore(topic, {row[0]: OffsetValue(*row[1:]) for row in rows})
        data.pending.by_partition = {key: dict(reversed(producers.items())) for key, producers in pending.items()}
        if data.is_packable():
            packed_groups[group.name] = data.pack()
        else:
            unpacked_groups[group.name] = data


def _offsets_and_size(chunk: BatchChunk, start: int) -> tuple[int, int, int]:
    """The first and last offset of a batch, and its size in bytes."""
    base, last = offsets_of(memoryview(chunk.data)[start:])
    return base, last, read_size(chunk.data, start) or 0


def _group_name(group_key: bytes) -> str | None:
    """The name in a group's part of a key; None if it is not valid."""
    if group_key[0] > 0x7F:  # negative length
        return None
    try:
        return group_key[2:].decode()
    except UnicodeDecodeError:
        return None


def _group_id_of(key: bytes) -> str | None:
    """The group id in a key, if that much of it is readable."""
    reader = Reader("key", key)
    try:
        return reader.string() if reader.number(I16) in RECORD_TYPES else None
    except DamagedRecord:
        return None
