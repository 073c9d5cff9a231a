"""The first and the next offset of each partition of topics."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from ...actors.steps import Steps, pieces
from .topic import NOT_LED, Topic

PARTITIONS_PER_STEP = 256

Offsets = tuple["array[int]", "array[int]"]


def ranges_in_steps(topics: Iterable[Topic | None]) -> Steps[dict[str, Offsets]]:
    """By name, of the topics that this server leads. The coordinator's own are left out."""
    ranges: dict[str, Offsets] = {}
    read = 0
    for topic in topics:
        read += 1
        if read >= PARTITIONS_PER_STEP:
            read = 0
            yield
        if topic is None or topic.is_internal or topic.leader_epoch == NOT_LED:
            continue
        starts, ends = array("q"), array("q")
        for piece in pieces(range(len(topic.partitions))):
            logs = [topic.partitions.peek(number) for number in piece]
            starts.extend(log.start_offset for log in logs)
            ends.extend(log.end_offset for log in logs)
            read += len(logs)
            if read >= PARTITIONS_PER_STEP:
                read = 0
                yield
        ranges[topic.name] = starts, ends
    return ranges
