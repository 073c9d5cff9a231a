"""A minimal replay of one partition, key by key, as the reference for others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from callboard.actors.consumer_group.records import ConsumerRecord
from callboard.actors.records import (
    GroupRecord,
    MarkerRecord,
    OffsetRecord,
    PendingOffsetRecord,
    Record,
    TransactionRecord,
)

Key = tuple[object, ...]
State = dict[Key, tuple[int, object]]


def live(records: Iterable[tuple[int, Record]]) -> State:
    """The newest value of each key with its log offset, and the pending values of open transactions."""
    newest: State = {}
    pending: dict[int, State] = {}
    for offset, record in records:
        if isinstance(record, MarkerRecord):
            ended = pending.pop(record.producer_id, {})
            _commit(newest, ended if record.committed else {})
        elif isinstance(record, PendingOffsetRecord):
            pending.setdefault(record.producer_id, {})[_key(record)] = offset, record.value
        else:
            newest[_key(record)] = offset, getattr(record, "value", None)
    pending_values = {
        ("pending", producer, *key): value
        for producer, values in pending.items()
        for key, value in values.items()
        if newest.get(key, (-1,))[0] < value[0]
    }
    return {key: value for key, value in newest.items() if value[1] is not None} | pending_values


def _commit(newest: State, ended: Mapping[Key, tuple[int, object]]) -> None:
    """A committed value does not replace one that is later in the log."""
    for key, (offset, value) in ended.items():
        if newest.get(key, (-1,))[0] < offset:
            newest[key] = offset, value


def _key(record: Record) -> Key:
    if isinstance(record, OffsetRecord | PendingOffsetRecord):
        return "offset", record.group_id, record.topic, record.partition
    if isinstance(record, GroupRecord):
        return "group", record.group_id
    if isinstance(record, TransactionRecord):
        return "transaction", record.transactional_id
    assert isinstance(record, ConsumerRecord), f"unexpected {record}"
    *names, _value = record
    return (type(record), *names)
