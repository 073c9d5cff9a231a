"""The kind of groups of the consumer protocol (KIP-848): several records, which ``GroupState`` sums up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..group.environment import GroupEnvironment
from ..group.subscription import CONSUMER_PROTOCOL_TYPE
from ..records import Record
from .group import ConsumerGroup
from .records import CONSUMER, GroupEpochValue, RegexValue, TargetEpochValue
from .state import GroupPhase, GroupState
from .tombstones import tombstones


class ConsumerKind:
    """The value is a ``GroupState``, which its records change."""

    type = CONSUMER
    state_names = tuple(phase.value for phase in GroupPhase)

    def new_group(self, group_id: str, environment: GroupEnvironment) -> ConsumerGroup:
        return ConsumerGroup(group_id, environment)

    def replay(self, value: GroupState | None, record: Any) -> GroupState | None:
        state = GroupState(record.group_id) if value is None else value
        state.replay(record)
        return None if state.is_blank else state

    def has_members(self, value: GroupState) -> bool:
        return bool(value.members)

    def protocol_type(self, _value: GroupState) -> str:
        return CONSUMER_PROTOCOL_TYPE

    def offsets_age_from_ms(self, _value: GroupState) -> int:
        """Offsets age from their commits, in every state."""
        return -1

    def pack(self, value: GroupState) -> Any:
        """What is left of a group without members. Targets and regular expressions only if a write was torn."""
        regexes = {regex: tuple(resolved) for regex, resolved in value.regexes.items()}
        rest = (value.targets, regexes, value.has_topic_metadata)
        return value.group_id, *value.epoch, *value.target, rest if any(rest) else None

    def unpack(self, packed: Any) -> GroupState:
        group_id, epoch, metadata_hash, target_epoch, timestamp_ms, rest = packed
        state = GroupState(group_id)
        state.epoch = GroupEpochValue(epoch, metadata_hash)
        state.target = TargetEpochValue(target_epoch, timestamp_ms)
        if rest is not None:
            state.targets, regexes, state.has_topic_metadata = rest
            state.regexes = {regex: RegexValue(*resolved) for regex, resolved in regexes.items()}
        return state

    def tombstones(self, _group_id: str, value: GroupState | None) -> Iterator[Record]:
        """A group that was never stored has none."""
        return iter(()) if value is None else tombstones(value)
