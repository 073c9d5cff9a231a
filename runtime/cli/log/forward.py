"""Reads a log partition from its beginning, record by record, and keeps what a running group would have.

All records are checked. Nearly all of them are offsets in exactly the form that this version writes, and most of those
are superseded. Of a run of them only the newest of each key is applied, which gives the same result: an offset replaces
the one before it, whatever else is between them. Tombstones, transactions and all other records are applied one by one.

This shares no code with the bulk readings of loading and compaction, except the checks of batches and the decoding of
single records.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ....actors.group.offsets import GroupData
from ....actors.records import MarkerRecord, OffsetRecord, PendingOffsetRecord, Record, TransactionRecord, group_id_of
from ...log.format.batch import CODEC_BITS, CONTROL_BIT, TRANSACTIONAL_BIT, Batch
from ...log.format.records import decode, encode_key
from ...log.manifest import LogFile
from ...log.partition import TRANSACTIONS_TOPIC
from ...log.reading.group_records import is_unserved
from .newest import comparable_state
from .scan import LoggedRecord, LogPartition, Unreadable, read_records, record_decoder

_UNUSUAL_BITS = CODEC_BITS | TRANSACTIONAL_BIT | CONTROL_BIT
_HEAD_BYTES_MAX = 11  # of a usual record before its key's size; a longer one has a varint that may be too long
_FIXED_VALUE_BYTES = 24  # of an offset's value, version 3, without the metadata
_METADATA_AT = 16
_PADDING = bytes(8)  # after a batch: more than ``_read_usual`` may read after the end of a damaged record


class LogReplay:
    """Builds groups and transactional ids from records in log order."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupData] = {}
        self._transactions: dict[str, object] = {}
        self._open: dict[int, set[str]] = {}  # producer id -> groups with an open transaction

    def apply(self, record: Record | None) -> None:
        if isinstance(record, MarkerRecord):
            for group_id in self._open.pop(record.producer_id, ()):
                self._groups[group_id].replay(record)
        elif isinstance(record, TransactionRecord):
            self._transactions[record.transactional_id] = record.value
        elif record is not None and not is_unserved(record) and (owner := group_id_of(record)) is not None:
            self._groups.setdefault(owner, GroupData()).replay(record)
            if isinstance(record, PendingOffsetRecord):
                self._open.setdefault(record.producer_id, set()).add(owner)

    def state(self) -> dict[str, object]:
        groups = {group_id: comparable_state(data) for group_id, data in self._groups.items() if not data.is_empty()}
        return groups | {name: value for name, value in self._transactions.items() if value is not None}


class ForwardReading:
    """Adds the batches of a partition in log order. ``records``: how many could be read."""

    def __init__(self, partition: LogPartition) -> None:
        self.records = 0
        self._partition = partition
        self._decode = record_decoder(partition)
        self._replay = LogReplay()
        self._known_keys: set[bytes] = set()  # of offsets, in the form that this version writes
        self._newest: dict[bytes, bytes] = {}  # by known key: the newest value, if it has not been applied yet

    def add(self, file: LogFile, batch: Batch) -> Iterator[Unreadable]:
        """Apply the records of a batch; yields those that cannot be read."""
        is_read = None
        if batch.attributes & _UNUSUAL_BITS or self._partition.topic == TRANSACTIONS_TOPIC:
            self._apply_newest()
        else:
            is_read = partial(self._read_usual, b"".join((batch.data, _PADDING)))
        for item in read_records(self._partition, file, batch, self._decode, is_read):
            if isinstance(item, LoggedRecord):
                self.records += 1
                self._apply(item.record)
            else:
                yield item

    def state(self) -> dict[str, object]:
        self._apply_newest()
        return self._replay.state()

    def _apply(self, record: Record | None) -> None:
        """Apply a record after the newest offset of the same key."""
        if type(record) is OffsetRecord:
            key = encode_key(record)
            if (value := self._newest.pop(key, None)) is not None:
                self._replay.apply(decode(key, value))
            self._known_keys.add(key)
        self._replay.apply(record)

    def _apply_newest(self) -> None:
        newest, self._newest = self._newest, {}
        for key, value in newest.items():
            self._replay.apply(decode(key, value))

    def _read_usual(self, data: bytes, start: int, stop: int) -> bool:
        """Store the value of an offset with a known key; returns False for a record that may be anything else.

        The bytes before the key's size are the attributes, a timestamp and an offset, which nothing depends on here.
        """
        at = start + 1
        while data[at] > 0x7F:
            at += 1
        at += 1
        while data[at] > 0x7F:
            at += 1
        at += 1
        key_size = data[at]
        if key_size > 0x7F:
            at += 1
            key_size += (data[at] << 7) - 0x80
        key_at = at + 1
        at = key_end = key_at + (key_size >> 1)
        if at >= stop or key_at > start + _HEAD_BYTES_MAX:
            return False
        value_size = data[at]
        if value_size > 0x7F:
            at += 1
            value_size += (data[at] << 7) - 0x80
        value = data[at + 1 : stop - 1]
        size = len(value)
        is_usual = value_size == size * 2 and not key_size & 1 and size >= _FIXED_VALUE_BYTES and value[:2] == b"\0\3"
        if not is_usual or size != _FIXED_VALUE_BYTES + (value[14] << 8) + value[15]:
            return False
        if size > _FIXED_VALUE_BYTES and not value[_METADATA_AT:-8].isascii():
            return False
        key = data[key_at:key_end]
        if key not in self._known_keys:
            return False
        self._newest[key] = value
        self.records += 1
        return True
