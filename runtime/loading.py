"""From the log to the groups: every record in the order of the log, through the same ``replay`` that runs later."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from ..actors.offsets import GroupData
from ..actors.records import UnknownRecord

if TYPE_CHECKING:
    from .log.offsets_log import OffsetsLog

log = structlog.get_logger()


def load_groups(
    offsets_log: OffsetsLog, asleep: dict[str, bytes], seen: Callable[[GroupData], None]
) -> dict[str, GroupData]:
    """The groups with members, by id. Those without go to ``asleep``, packed; of both ``seen`` is told.

    A group is packed as soon as its partition is read, so a million of them never lie in memory unpacked.
    """
    awake: dict[str, GroupData] = {}
    for partition in offsets_log.partitions_with_data():
        for group_id, data in _load_partition(offsets_log, partition, asleep).items():
            if data.is_gone():
                continue
            seen(data)
            if data.may_sleep():
                asleep[group_id] = data.pack()
            else:
                awake[group_id] = data
    return awake


def _load_partition(offsets_log: OffsetsLog, partition: int, asleep: dict[str, bytes]) -> dict[str, GroupData]:
    groups: dict[str, GroupData] = {}
    skipped = 0
    for _offset, _timestamp_ms, record in offsets_log.read(partition):
        if isinstance(record, UnknownRecord):
            skipped += 1
            continue
        data = groups.get(record.group_id)
        if data is None:
            packed = asleep.pop(record.group_id, None)  # of a log that had another number of partitions once
            data = groups[record.group_id] = GroupData() if packed is None else GroupData.unpack(packed)
        data.replay(record)
    if skipped:
        log.warning("records of unknown types were skipped", partition=partition, records=skipped)
    return groups
