"""From the log to the groups: every record in the order of the log, through the same ``replay`` that runs later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from ..actors.offsets import GroupData
from ..actors.records import UnknownRecord

if TYPE_CHECKING:
    from .log.offsets_log import OffsetsLog

log = structlog.get_logger()


def load_groups(offsets_log: OffsetsLog) -> dict[str, GroupData]:
    """All groups that the log knows, by id; those of which nothing is left but tombstones are gone."""
    groups: dict[str, GroupData] = {}
    skipped = 0
    for partition in offsets_log.partitions_with_data():
        for _offset, _timestamp_ms, record in offsets_log.read(partition):
            if isinstance(record, UnknownRecord):
                skipped += 1
                continue
            data = groups.get(record.group_id)
            if data is None:
                data = groups[record.group_id] = GroupData()
            data.replay(record)
    if skipped:
        log.warning("records of unknown types were skipped", records=skipped)
    return {group_id: data for group_id, data in groups.items() if not data.is_gone()}
