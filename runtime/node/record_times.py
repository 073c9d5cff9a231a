"""When the records at offsets were made, looked up in pieces on the node's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ..topics.record_times import record_time_ms
from ..topics.topic import NOT_LED

if TYPE_CHECKING:
    from .node import Node

PIECE: Final = 64
"""Partitions that are looked up without a pause."""

Partition = tuple[str, int]


async def read_record_times(node: Node, offsets: Iterable[tuple[Partition, int]]) -> dict[Partition, int]:
    """Times since 1970 by partition, of the topics that this node leads. Those that are not known are left out."""
    found: dict[Partition, int] = {}
    for count, ((name, number), offset) in enumerate(offsets, 1):
        topic = node.topics.get(name)
        log = None if topic is None or topic.leader_epoch == NOT_LED else topic.peek(number)
        time_ms = None if log is None else record_time_ms(log, offset)
        if time_ms is not None:
            found[name, number] = time_ms
        if count % PIECE == 0:
            await asyncio.sleep(0)
    return found
