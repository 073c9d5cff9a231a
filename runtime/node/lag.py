"""The lag of named groups, for metrics: the records between their committed offsets and the ends of the partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pykka

from ...actors.messages import Fetched, FetchedOffset, OffsetFetch
from ...actors.steps import pieces
from ..kafka.services import Origin
from ..topics.topic import NOT_LED

if TYPE_CHECKING:
    from ..topics.topic import Topic
    from .node import Node

LAG_TIMEOUT_S = 1.0
ORIGIN = Origin("callboard-metrics", "/127.0.0.1", 0)


async def group_lags(node: Node, groups: Sequence[str]) -> dict[str, int]:
    """The lag in records by group, in pieces. A group without an offset of a topic that this server leads is left out.

    Those that cannot answer in ``LAG_TIMEOUT_S`` are left out too.
    """
    lags: dict[str, int] = {}
    if node.is_loading:
        return lags
    with suppress(TimeoutError, pykka.ActorDeadError):
        async with asyncio.timeout(LAG_TIMEOUT_S):
            for group in groups:
                fetched: Fetched = await node.local.ask(OffsetFetch(group, None), ORIGIN)
                lag = await _lag(node, fetched)
                if lag is not None:
                    lags[group] = lag
    return lags


async def _lag(node: Node, fetched: Fetched) -> int | None:
    """The sum over the partitions that exist and have a committed offset; None if there is none."""
    lag = None
    for name, rows in fetched.topics:
        topic = node.topics.get(name)
        if topic is None or topic.is_internal or topic.leader_epoch == NOT_LED:
            continue
        for piece in pieces(rows):
            known = [_partition_lag(topic, row) for row in piece if topic.has_partition(row.partition)]
            lag = sum(known, lag or 0) if known else lag
            await asyncio.sleep(0)
    return lag


def _partition_lag(topic: Topic, row: FetchedOffset) -> int:
    """Not below 0: a deleted topic that was created again begins at 0."""
    return max(topic.partitions.peek(row.partition).end_offset - row.offset, 0)
