"""The content of a log partition, read newest first as a server loads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ....actors.group.offsets import GroupData
from ....actors.records import GroupType, OffsetValue
from ...disk.disk import Disk
from ...log.format.errors import Damage
from ...log.partition import TRANSACTIONS_TOPIC
from ...log.reading.newest import load_partition
from ...log.reading.newest_transactions import load_transactions_partition
from .scan import LogPartition

State = Mapping[str, object]
"""The content of a partition, by group or transactional id, as comparable values."""


class GroupContent(NamedTuple):
    """What the log has of a group, in a form that does not depend on the order of its records."""

    type: GroupType
    value: object
    offsets: dict[tuple[str, int], OffsetValue]
    pending: dict[tuple[str, int], dict[int, OffsetValue | None]]
    """Offsets of open transactions by topic and partition, then by producer id."""


class NewestContent(NamedTuple):
    """``records``: how many were read. ``unknown_keys``: keys of types that are not interpreted.

    ``problems``: records with a valid checksum and invalid content, as texts; only the newest of each key is decoded.
    """

    state: State
    records: int
    unknown_keys: int
    damages: list[Damage]
    problems: list[str]


def comparable_state(data: GroupData) -> GroupContent:
    offsets = {(topic, partition): value for topic, partition, value in data.offsets}
    pending = {topic_partition: dict(producers) for topic_partition, producers in data.pending.by_partition.items()}
    return GroupContent(data.type, data.value, offsets, pending)


def load_newest(partition: LogPartition, disk: Disk) -> NewestContent:
    """The newest record of each key. Raises the errors of ``load_partition``."""
    if partition.topic == TRANSACTIONS_TOPIC:
        values, records, _, unknown_keys, damages, problems = load_transactions_partition(partition.folder, disk)
        return NewestContent(values, records, unknown_keys, damages, problems)
    loaded = load_partition(partition.folder, disk)
    packed_groups = {
        group_id: comparable_state(GroupData.unpack(packed)) for group_id, packed in loaded.packed_groups.items()
    }
    unpacked_groups = {
        group_id: comparable_state(data) for group_id, data in loaded.unpacked_groups.items() if not data.is_empty()
    }
    quarantined = [
        f"group '{group_id}' cannot be read: {quarantine.reason}" for group_id, quarantine in loaded.quarantined.items()
    ]
    problems = [*loaded.problems, *quarantined]
    return NewestContent(packed_groups | unpacked_groups, loaded.records, loaded.unknown_keys, loaded.damages, problems)
