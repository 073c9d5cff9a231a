"""What loading collects of one group, and of one partition of a topic, newest record first."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ....actors.group.kinds import KINDS
from ....actors.group.offsets import GroupData, PackedOffset
from ....actors.records import (
    CLASSIC,
    GroupRecord,
    GroupStateRecord,
    GroupType,
    GroupValue,
    Record,
    TransactionRecord,
    UnknownRecord,
)
from ..format.errors import DamagedRecord
from ..format.records import decode


class PartitionEnd:
    """The largest committed offset of a topic's partition."""

    __slots__ = ("end", "partition", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.end = -1


class GroupRecords:
    """The current records of one group. ``rows``: a topic and a packed offset each.

    ``value``: of its record if it is a classic group. ``states``: the records of a group of another kind, newest first.
    """

    __slots__ = ("name", "rows", "states", "value")

    def __init__(self, name: str, rows: Sequence[tuple[str, PackedOffset]] = ()) -> None:
        self.name = name
        self.value: GroupValue | None = None
        self.states: tuple[()] | list[GroupStateRecord] = ()
        self.rows = list(rows)

    def add_state(self, record: GroupStateRecord) -> None:
        if isinstance(record, GroupRecord) and not self.states:
            self.value = record.value
            return
        newer = () if self.value is None else (GroupRecord(self.name, self.value),)
        self.states, self.value = [*self.states, *newer, record], None

    @property
    def type(self) -> GroupType | None:
        """None if the group has offsets only."""
        if self.states:
            return self.states[0].group_type
        return None if self.value is None else CLASSIC

    def data(self) -> GroupData:
        """The group without its offsets."""
        data = GroupData()
        data.value = self.value
        for record in reversed(self.states):
            data.replay(record)
        return data

    def topics(self) -> list[tuple[str, list[PackedOffset]]]:
        if len(self.rows) == 1:
            [(topic, row)] = self.rows
            return [(topic, [row])]
        topics: dict[str, list[PackedOffset]] = {}
        for topic, row in reversed(self.rows):
            topics.setdefault(topic, []).append(row)
        return list(topics.items())


def is_unserved(record: Record) -> bool:
    """Whether loading skips a record: its type is unknown, or it is of a kind of group that this version cannot run.

    The record stays in the log, also when it is compacted.
    """
    return isinstance(record, UnknownRecord | TransactionRecord) or getattr(record, "group_type", CLASSIC) not in KINDS


def group_type_of(key: bytes) -> GroupType:
    """The type of group that has a record with this key. All types have the same keys of offsets: CLASSIC."""
    with suppress(DamagedRecord):
        group_type: GroupType = getattr(decode(key, None), "group_type", CLASSIC)
        return group_type
    return CLASSIC
