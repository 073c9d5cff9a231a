"""The classic kind of group: one record, which is written when a generation begins or ends."""

from __future__ import annotations

from typing import Any

from ..records import CLASSIC, GroupRecord, GroupStateRecord, GroupValue
from .classic import ClassicGroup
from .environment import GroupEnvironment
from .states import LISTED_NAMES


class ClassicKind:
    """The value is the ``GroupValue`` of the last record."""

    type = CLASSIC
    state_names = LISTED_NAMES

    def new_group(self, group_id: str, environment: GroupEnvironment) -> ClassicGroup:
        group = ClassicGroup(group_id, environment.settings, environment.clock, environment.random)
        group.refuses_new_members = environment.memory_limit.refuses_new
        return group

    def replay(self, _value: GroupValue | None, record: GroupStateRecord) -> Any:
        return record.value

    def has_members(self, value: GroupValue) -> bool:
        return bool(value.members)

    def protocol_type(self, value: GroupValue) -> str:
        return value.protocol_type

    def offsets_age_from_ms(self, value: GroupValue) -> int:
        """Offsets of a simple group age from their commits."""
        return value.current_state_timestamp_ms if value.protocol_type else -1

    def pack(self, value: GroupValue) -> Any:
        return tuple(value)

    def unpack(self, packed: Any) -> GroupValue:
        return GroupValue(*packed)

    def tombstones(self, group_id: str, _value: GroupValue | None) -> tuple[GroupRecord, ...]:
        """Written even for a simple group, as in Kafka."""
        return (GroupRecord(group_id, None),)
