"""One partition of the offsets topic, read the newest first: what is superseded is never decoded.

Most records of a log are offsets that were committed again a moment later. Read backwards, the first record of a key is
the one that counts, and of all others no more is looked at than the bytes of their key. What is left of the partition
is the same as ``GroupData.replay`` makes of it from its beginning to its end; a test holds the two equal. Memory is
what the keys take, and one chunk, however long the log is.

Transactions, backwards: a marker is met before the offsets that it concerns. So it is known of each of them whether it
was committed (then it is one like any other), aborted (then it is nothing) or is still open. Of an open one it counts
whether something later was committed for the same place, which has overtaken it, or deleted it. A tombstone that was
itself superseded would not be seen, so for such places the log is looked through once more. There are hardly any.

What cannot be read harms as little as it can: a damaged batch its own records, a record whose value makes no sense its
own group, which is told apart and not made up from what is left of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from ....actors.group.offsets import GroupData, PackedOffset, pack
from ....actors.records import GroupRecord, GroupValue, MarkerRecord, OffsetRecord, OffsetValue, UnknownRecord
from ...disk.disk import Disk
from ..format.batch import CONTROL_BIT, TRANSACTIONAL_BIT, inflate_buffer, offsets_of, read_batch, read_size
from ..format.errors import Damage, DamagedBatch, DamagedRecord, UnsupportedCompression
from ..format.fields import I16, Reader
from ..format.records import GROUP_KEY_TYPE, OFFSET_KEY_TYPES, decode, encode_key, encode_value
from ..format.transaction_records import decode_record
from ..format.varint import decode_signed
from ..manifest import log_files, refuse_replaced
from .backwards import BatchChunk, chunks_newest_first
from .columns import Column, RecordSpans, as_list, has_numpy
from .segment import CHUNK_BYTES
from .spans import read_spans

if TYPE_CHECKING:
    from .known_keys import KnownKeys

MANY = 1000  # from so many records at once on, asking for all of their keys together pays
TRIES = 10  # a file that is listed and gone was compacted meanwhile, which happens once in a long time

END_MAX = 2**62  # a client may commit any offset; nobody can have reached a larger one

_SPECIAL = TRANSACTIONAL_BIT | CONTROL_BIT
_OFFSET_KEY = b"\0\1"
_GROUP_KEY = b"\0\2"
_OFFSET_KEYS = (b"\0\0", _OFFSET_KEY)
_PLAIN_VALUE = Struct(">hqihq")  # an offset value of version 3 without metadata: nearly all are
_PLAIN_BYTES = _PLAIN_VALUE.size
_PLAIN_VERSION = 3
_EMPTY_GROUP = Struct(">ihhqi")  # what follows the protocol type: generation, protocol, leader, time, no members
assert _PLAIN_BYTES == 24


class LoadedPartition(NamedTuple):
    """The content of a partition. A group is in ``packed_groups`` (no members), ``unpacked_groups`` or ``quarantined``.

    ``quarantined``: the groups that cannot be made from their records, and why. ``ends``: for each topic and partition
    the largest offset that is committed, up to ``END_MAX``. ``records`` and ``log_bytes``: how much was read.
    ``damages`` are batches that were passed over, ``problems`` records of which nobody knows whose they are.
    """

    packed_groups: dict[str, bytes]
    unpacked_groups: dict[str, GroupData]
    quarantined: dict[str, str]
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

    OSError, ManifestError or UnsupportedCompression when the partition cannot be read as a whole.
    """
    for _ in range(TRIES):
        with suppress(FileNotFoundError):
            return _load(disk or Disk(), folder, fast, chunk_bytes)
    return _load(disk or Disk(), folder, fast, chunk_bytes)


def _load(disk: Disk, folder: Path, fast: bool | None, chunk_bytes: int) -> LoadedPartition:
    manifest, files = log_files(disk, folder)
    found = NewestFirst(fast)
    for chunk in chunks_newest_first(disk, files, found.damages.append, chunk_bytes):
        found.take(chunk)
    if found.damages:
        refuse_replaced(disk, folder, manifest)
    if found.has_doubts:
        for chunk in chunks_newest_first(disk, files, lambda _damage: None, chunk_bytes):
            found.settle(chunk)
    return found.finish()


def _known_keys() -> KnownKeys:
    from .known_keys import KnownKeys  # which needs numpy

    return KnownKeys()


class _Place:
    """A partition of a topic, and the largest offset that is committed for it."""

    __slots__ = ("end", "partition", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.end = -1


class _Found:
    """What is kept of one group: for each of its offsets a topic and a row, one after the other."""

    __slots__ = ("name", "rows", "value")

    def __init__(self, name: str) -> None:
        self.name = name
        self.value: GroupValue | None = None
        self.rows: list[tuple[str, PackedOffset]] = []

    def topics(self) -> list[tuple[str, list[PackedOffset]]]:
        if len(self.rows) == 1:
            [(topic, row)] = self.rows
            return [(topic, [row])]
        topics: dict[str, list[PackedOffset]] = {}
        for topic, row in reversed(self.rows):
            topics.setdefault(topic, []).append(row)
        return list(topics.items())


class _Columns(NamedTuple):
    """A chunk as this module needs it: where keys lie, as lists, and where records end."""

    chunk: BatchChunk
    spans: RecordSpans
    key_starts: list[int]
    key_ends: list[int]
    ends: Column

    def key(self, index: int) -> bytes:
        return self.chunk.data[self.key_starts[index] : self.key_ends[index]]


class _Doubt(NamedTuple):
    """An offset of an open transaction that something came behind: overtaken, or deleted?"""

    producers: dict[int, OffsetValue | None]
    producer_id: int
    offset: int


class NewestFirst:
    """Takes a log's chunks, newest first; if it then ``has_doubts``, ``settle`` takes them again; then ``finish``."""

    def __init__(self, fast: bool | None = None) -> None:
        self._fast = fast
        self._seen: set[bytes] = set()
        self._known = _known_keys() if (has_numpy() if fast is None else fast) else None
        self._groups: dict[bytes, _Found] = {}  # by the beginning of their keys
        self._protocol_types: dict[bytes, str] = {}  # by the beginning of a group's value
        self._places: dict[bytes, _Place] = {}  # by the rest of an offset's key
        self._ended: dict[int, bool] = {}  # for each producer whether the transaction before here was committed
        self._pending: dict[str, dict[tuple[str, int], dict[int, OffsetValue | None]]] = {}
        self._doubts: dict[bytes, list[_Doubt]] = {}
        self._overruled: set[bytes] = set()  # a newer record has the same key in other bytes
        self._quarantined: dict[str, str] = {}
        self.damages: list[Damage] = []
        self._troubles: list[str] = []
        self._records = self._log_bytes = self._unknown_keys = 0
        self._at: _Columns
        self._fresh: list[int] = []  # records of this run whose keys were not seen before, the newest first

    def take(self, chunk: BatchChunk) -> None:
        """One chunk; all those that are newer were taken before."""
        self._log_bytes += len(chunk.data)
        for part in self._read(chunk):
            self._records += len(part.spans)
            self._at = part
            self._take(part.spans)

    @property
    def has_doubts(self) -> bool:
        return bool(self._doubts)

    # Chunks ----------------------------------------------------------------------------------------------------------

    def _read(self, chunk: BatchChunk) -> Iterable[_Columns]:
        """The chunk's columns; batch by batch if not all of it can be read."""
        try:
            return [self._columns(chunk)]
        except DamagedBatch:
            return self._read_each(chunk)

    def _read_each(self, chunk: BatchChunk) -> Iterator[_Columns]:
        for start in reversed(chunk.starts):
            try:
                yield self._columns(BatchChunk(chunk.data, [start], chunk.path, chunk.position))
            except DamagedBatch as bad:
                base, last, size = _extent(chunk, start)
                self.damages.append(Damage(chunk.path, bad.position, size, bad.reason, base, last + 1))

    def _columns(self, chunk: BatchChunk) -> _Columns:
        data, starts, path, position = chunk
        try:
            spans = read_spans(data, starts, fast=self._fast, source=str(path), position=position)
        except UnsupportedCompression:
            data, starts = inflate_buffer(data, starts, str(path), position)
            spans = read_spans(data, starts, fast=self._fast, source=str(path), position=position)
        if any(bits & _SPECIAL for bits in as_list(spans.headers.attributes)):
            _ = spans.rest  # whether values fit is asked here, where a batch can still be told apart
        places = as_list(spans.key_at), as_list(spans.key_end)
        return _Columns(BatchChunk(data, starts, path, position), spans, *places, spans.end)

    def _take(self, spans: RecordSpans) -> None:
        """Batches of transactions one by one, and what lies between them at once."""
        attributes, counts = as_list(spans.headers.attributes), as_list(spans.headers.record_count)
        special = [index for index, bits in enumerate(attributes) if bits & _SPECIAL]
        if not special:
            self._take_plain(0, len(spans))
            return
        first = [0, *accumulate(counts)]
        stop = len(spans)
        for index in reversed(special):
            self._take_plain(first[index + 1], stop)
            stop = first[index]
            if attributes[index] & CONTROL_BIT:
                self._take_markers(index)
            else:
                self._take_transactional(int(spans.headers.producer_id[index]), stop, first[index + 1])
        self._take_plain(0, stop)

    def _take_plain(self, start: int, stop: int) -> None:
        """Records of which the newest of each key counts."""
        if start == stop:
            return
        if self._known is None or stop - start < MANY or isinstance(self._at.spans.key_at, list):
            self._fresh = self._not_seen(range(stop - 1, start - 1, -1))
        else:
            run, spans = slice(start, stop), self._at.spans
            unknown = self._known.find_unknown(self._at.chunk.data, spans.key_at[run], spans.key_size[run])
            self._fresh = self._not_seen((unknown[::-1] + start).tolist())
            self._known.add([index - start for index in self._fresh])
        self._keep(self._fresh)

    def _not_seen(self, indexes: Sequence[int]) -> list[int]:
        """Those whose keys are new, which are noted; indexes go backwards, so of several of a key the first counts."""
        data, starts, ends, seen, add = *self._at.chunk[:1], *self._at[2:4], self._seen, self._seen.add
        return [at for at in indexes if (key := data[starts[at] : ends[at]]) not in seen and not add(key)]

    def _take_markers(self, index: int) -> None:
        data, starts, path, position = self._at.chunk
        batch = read_batch(memoryview(data), starts[index], position + starts[index], str(path))
        for offset, _timestamp_ms, key, value in reversed(list(batch.records())):
            try:
                marker = decode_record(batch, key, value)
            except DamagedRecord as damage:
                self._troubles.append(f"{path}: the end of a transaction at offset {offset} cannot be read: {damage}")
                continue
            if isinstance(marker, MarkerRecord):
                self._ended[marker.producer_id] = marker.committed

    def _take_transactional(self, producer_id: int, start: int, stop: int) -> None:
        """A tombstone is one at once, and what is no offset does not wait for the end either, as in ``replay``."""
        committed = self._ended.get(producer_id)
        for index in range(stop - 1, start - 1, -1):
            key = self._at.key(index)
            if committed or key[:2] not in _OFFSET_KEYS or self._value(index) is None:
                self._take_plain(index, index + 1)
            elif committed is None:
                self._keep_pending(index, producer_id)

    # Records ---------------------------------------------------------------------------------------------------------

    def _keep(self, indexes: Sequence[int]) -> None:
        """Records whose keys were not seen before, the newest first.

        What is written as the coordinator writes it is decoded here, all else in ``_keep_any``.
        """
        (data, *_), _, key_starts, key_ends, ends = self._at
        groups, places, overruled = self._groups, self._places, self._overruled
        unpack = _PLAIN_VALUE.unpack_from
        for index in indexes:
            at = key_ends[index]
            key = data[key_starts[index] : at]
            if key[:2] != _OFFSET_KEY or at >= len(data) or key in overruled:
                if key[:2] != _GROUP_KEY or at >= len(data) or not self._keep_empty_group(key, at):
                    self._keep_any(index)
                continue
            split = 4 + int.from_bytes(key[2:4])
            place = places.get(key[split:])
            size = data[at]
            if place is None or size != _PLAIN_BYTES * 2 or at + _PLAIN_BYTES >= ends[index]:
                self._keep_any(index)
                continue
            version, offset, leader_epoch, metadata_bytes, commit_timestamp_ms = unpack(data, at + 1)
            found = groups.get(key[2:split]) or self._new_group(key[2:split])
            if version != _PLAIN_VERSION or metadata_bytes or found is None:
                self._keep_any(index)
                continue
            if place.end < offset <= END_MAX:
                place.end = offset
            found.rows.append((place.topic, (place.partition, offset, leader_epoch, "", commit_timestamp_ms, -1)))

    def _keep_empty_group(self, key: bytes, at: int) -> bool:
        """Whether it is a group without members as the coordinator writes it, with a protocol type that was met before.

        Of such groups there may be a million, and ``decode`` takes five times as long.
        """
        data = self._at.chunk.data
        end = at + 1 + (data[at] >> 1)
        protocol_type = self._protocol_types.get(data[at + 1 : end - _EMPTY_GROUP.size])
        if protocol_type is None or data[at] & 0x81 or len(key) != 4 + int.from_bytes(key[2:4]):
            return False
        generation, protocol, leader, timestamp_ms, members = _EMPTY_GROUP.unpack_from(data, end - _EMPTY_GROUP.size)
        if protocol != -1 or leader != -1 or members or key in self._overruled:
            return False
        found = self._groups.get(key[2:]) or self._new_group(key[2:])
        if found is None:
            return False
        found.value = GroupValue(protocol_type, generation, None, None, timestamp_ms, ())
        return True

    def _new_group(self, group_key: bytes) -> _Found | None:
        if group_key[0] > 0x7F:  # a length that is negative
            return None
        try:
            found = self._groups[group_key] = _Found(group_key[2:].decode())
        except UnicodeDecodeError:
            return None
        return found

    def _keep_any(self, index: int) -> None:
        """The same with care: whatever versions there are, keys in other bytes than ours, damage."""
        key = self._at.key(index)
        if key in self._overruled:
            return
        try:
            keyed = decode(key, None)
        except DamagedRecord as damage:
            self._damaged(index, _group_of(key), damage)
            return
        if isinstance(keyed, UnknownRecord):
            self._unknown_keys += 1
            return
        usual = encode_key(keyed)
        if usual != key and not self._overrules(usual, index):
            return
        try:
            self._put(decode(key, self._value(index)), usual)
        except (DamagedRecord, ValueError) as damage:
            self._damaged(index, keyed.group_id, damage)

    def _overrules(self, usual: bytes, index: int) -> bool:
        """Whether a record with an unusual key is the newest of what it means."""
        if usual in self._seen:
            known = next((at for at in self._fresh if self._at.key(at) == usual), len(self._at.spans))
            if known > index or usual in self._overruled:
                return False
        self._overruled.add(usual)
        self._seen.add(usual)
        return True

    def _put(self, record: OffsetRecord | GroupRecord | UnknownRecord, key: bytes) -> None:
        if isinstance(record, UnknownRecord) or record.value is None:
            return
        split = 4 + int.from_bytes(key[2:4])
        found = self._groups.get(key[2:split])
        if found is None:
            found = self._groups[key[2:split]] = _Found(record.group_id)
        if isinstance(record, GroupRecord):
            found.value = record.value
            usual = encode_value(record._replace(value=record.value._replace(protocol=None, leader=None, members=())))
            self._protocol_types[(usual or b"")[: -_EMPTY_GROUP.size]] = record.value.protocol_type
            return
        place = self._places.get(key[split:])
        if place is None:
            place = self._places[key[split:]] = _Place(record.topic, record.partition)
        if place.end < record.value.offset <= END_MAX:
            place.end = record.value.offset
        found.rows.append((place.topic, (place.partition, *record.value)))

    def _keep_pending(self, index: int, producer_id: int) -> None:
        """An offset of a transaction that is open at the end of the log."""
        key = self._at.key(index)
        try:
            record = decode(key, None)
            assert isinstance(record, OffsetRecord)
            usual = encode_key(record)
            producers = self._pending.setdefault(record.group_id, {}).setdefault((record.topic, record.partition), {})
            if producer_id in producers:
                return
            if usual in self._seen:
                doubt = _Doubt(producers, producer_id, int(self._at.spans.offset[index]))
                self._doubts.setdefault(usual, []).append(doubt)
                producers[producer_id] = None
            else:
                producers[producer_id] = decode(key, self._value(index)).value  # type: ignore[assignment]
        except DamagedRecord as damage:
            self._damaged(index, _group_of(key), damage)

    def _value(self, index: int) -> bytes | None:
        """A record's value; ValueError when it does not fit."""
        data = self._at.chunk.data
        size, at = decode_signed(data, self._at.key_ends[index])
        if size == -1:
            return None
        if size < -1 or at + size > self._at.ends[index]:
            raise ValueError(f"a value of {size} bytes, {self._at.ends[index] - at} left")
        return data[at : at + size]

    def _damaged(self, index: int, group_id: str | None, damage: ValueError) -> None:
        """The record that counts for its key makes no sense."""
        offset, path = int(self._at.spans.offset[index]), self._at.chunk.path
        words = f"{path}: the record at offset {offset}, key {self._at.key(index)!r}, cannot be read: {damage}"
        if group_id is None:
            self._troubles.append(f"{words}; whose it is cannot be told")
        else:
            self._quarantined.setdefault(group_id, words)

    # The end ---------------------------------------------------------------------------------------------------------

    def settle(self, chunk: BatchChunk) -> None:
        """Look through a chunk for tombstones of what is in doubt."""
        for part in self._read_each(chunk):
            spans = part.spans
            if as_list(spans.headers.attributes)[0] & CONTROL_BIT:
                continue
            for index, size in enumerate(as_list(spans.value_size)):
                if size == -1:
                    self._tombstone(part.key(index), int(spans.offset[index]))

    def _tombstone(self, key: bytes, offset: int) -> None:
        with suppress(DamagedRecord):
            for doubt in self._doubts.get(encode_key(decode(key, None)), ()):
                if offset > doubt.offset:
                    doubt.producers.pop(doubt.producer_id, None)

    def finish(self) -> LoadedPartition:
        """What the partition holds. Uses up what was gathered."""
        packed_groups: dict[str, bytes] = {}
        unpacked_groups: dict[str, GroupData] = {}
        self._seen.clear()
        pending = {
            group_id: {place: producers for place, producers in reversed(places.items()) if producers}
            for group_id, places in self._pending.items()
        }
        while self._groups:
            _, found = self._groups.popitem()
            self._finish_group(found, pending.pop(found.name, {}), packed_groups, unpacked_groups)
        for group_id, places in pending.items():
            self._finish_group(_Found(group_id), places, packed_groups, unpacked_groups)
        ends = {(place.topic, place.partition): place.end for place in self._places.values() if place.end >= 0}
        counts = self._records, self._log_bytes, self._unknown_keys
        return LoadedPartition(
            packed_groups, unpacked_groups, self._quarantined, ends, *counts, self.damages, self._troubles
        )

    def _finish_group(
        self,
        found: _Found,
        pending: dict[tuple[str, int], dict[int, OffsetValue | None]],
        packed_groups: dict[str, bytes],
        unpacked_groups: dict[str, GroupData],
    ) -> None:
        if found.name in self._quarantined:
            return
        if not pending and (found.value is None or not found.value.members):
            if found.value is not None or found.rows:
                packed_groups[found.name] = pack(found.value, found.topics())
            return
        data = unpacked_groups[found.name] = GroupData()
        data.value = found.value
        for topic, rows in found.topics():
            data.offsets.restore(topic, {row[0]: OffsetValue(*row[1:]) for row in rows})
        data.pending.places = {place: dict(reversed(producers.items())) for place, producers in pending.items()}


def _extent(chunk: BatchChunk, start: int) -> tuple[int, int, int]:
    """The first and last offset of a batch, and its size in bytes."""
    base, last = offsets_of(memoryview(chunk.data)[start:])
    return base, last, read_size(chunk.data, start) or 0


def _group_of(key: bytes) -> str | None:
    """Whose record it is, of a key of which at least so much makes sense."""
    reader = Reader("key", key)
    try:
        return reader.string() if reader.number(I16) in (*OFFSET_KEY_TYPES, GROUP_KEY_TYPE) else None
    except DamagedRecord:
        return None
