"""The durable state of a queue: the sum of its records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from callboard.actors.records import GroupStateRecord

from .records import MemberRecord, QueueMember


class QueueValue(NamedTuple):
    """``epoch`` -1: there is no record of it."""

    epoch: int = -1
    members: Mapping[str, QueueMember] = {}


def replayed(value: QueueValue, record: GroupStateRecord) -> QueueValue:
    """The value after a record."""
    if isinstance(record, MemberRecord):
        others = {name: member for name, member in value.members.items() if name != record.member_id}
        return value._replace(members=others if record.value is None else others | {record.member_id: record.value})
    return value._replace(epoch=-1 if record.value is None else record.value.epoch)
