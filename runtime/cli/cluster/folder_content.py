"""What a data folder has, as counts: to show after an import or an export, and to refuse a damaged folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ....actors.records import TransactionValue
from ....actors.text import format_count
from ...disk.disk import Disk
from ..log.newest import GroupContent, load_newest
from ..log.scan import LogPartition, find_missing
from ..tables import format_number
from .errors import CommandFailed


class ContentCounts(NamedTuple):
    """``producer_id_max``: the highest one in the records; -1 if there is none."""

    groups: int = 0
    offsets: int = 0
    transactional_ids: int = 0
    topics: int = 0
    producer_id_max: int = -1

    def describe(self) -> Iterator[tuple[str, str]]:
        yield "groups", format_number(self.groups)
        yield "offsets", format_number(self.offsets)
        yield "transactional ids", format_number(self.transactional_ids)
        yield "topics", format_number(self.topics)


def count_content(partitions: Iterable[LogPartition], disk: Disk) -> ContentCounts:
    """Raises CommandFailed for damage: a copy would lack what cannot be read."""
    counts = ContentCounts()
    for partition in partitions:
        newest = load_newest(partition, disk)
        problems: Sequence[object] = [*find_missing(partition, disk), *newest.damages, *newest.problems]
        if problems:
            count = len(problems) - 1
            others = f", and {format_count(count, 'other problem')}" if count else ""
            raise CommandFailed(
                f"{partition.folder}: {problems[0]}{others}; see callboard log verify, "
                "repair the folder or restore a backup, then try again"
            )
        for value in newest.state.values():
            counts = _with_value(counts, value)
    return counts


def _with_value(counts: ContentCounts, value: object) -> ContentCounts:
    if isinstance(value, TransactionValue):
        highest = max(counts.producer_id_max, value.producer_id)
        return counts._replace(transactional_ids=counts.transactional_ids + 1, producer_id_max=highest)
    if isinstance(value, GroupContent):
        pending = [producer_id for producers in value.pending.values() for producer_id in producers]
        return counts._replace(
            groups=counts.groups + 1,
            offsets=counts.offsets + len(value.offsets),
            producer_id_max=max(counts.producer_id_max, *pending, -1),
        )
    return counts
