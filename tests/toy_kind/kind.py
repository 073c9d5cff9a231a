"""The kind of group itself, and all rows that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from callboard.actors.group.environment import GroupEnvironment
from callboard.actors.records import GroupStateRecord, Record

from .group import QueueGroup, State
from .records import QUEUE, RECORD_ROWS, EpochRecord, MemberRecord, QueueMember
from .requests import REQUEST_ROWS
from .value import QueueValue, replayed


class QueueKind:
    type = QUEUE
    state_names = tuple(state.value for state in State if state is not State.DEAD)

    def new_group(self, group_id: str, environment: GroupEnvironment) -> QueueGroup:
        return QueueGroup(group_id, environment)

    def replay(self, value: QueueValue | None, record: GroupStateRecord) -> QueueValue | None:
        value = replayed(value or QueueValue(), record)
        return None if value == QueueValue() else value

    def has_members(self, value: QueueValue) -> bool:
        return bool(value.members)

    def protocol_type(self, _value: QueueValue) -> str:
        return "queue"

    def offsets_age_from_ms(self, _value: QueueValue) -> int:
        return -1

    def pack(self, value: QueueValue) -> Any:
        return value.epoch, {name: tuple(member) for name, member in value.members.items()}

    def unpack(self, packed: Any) -> QueueValue:
        epoch, members = packed
        return QueueValue(epoch, {name: QueueMember(*member) for name, member in members.items()})

    def tombstones(self, group_id: str, value: QueueValue | None) -> Iterator[Record]:
        for member_id in value.members if value is not None else ():
            yield MemberRecord(group_id, member_id, None)
        yield EpochRecord(group_id, None)


ROWS: dict[str, dict[Any, Any]] = {
    "actors/group/kinds.py:KINDS": {QUEUE: QueueKind()},
    "actors/group/requests.py:REQUESTS": REQUEST_ROWS,
    "runtime/log/format/records.py:RECORD_TYPES": RECORD_ROWS,
}
"""By table: the file and the name of the table."""
