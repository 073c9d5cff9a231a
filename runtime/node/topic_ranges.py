"""The offsets of topics, read in pieces on the node's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ..topics.ranges import ranges_in_steps
from ..topics.topic import Topic
from .group_figures import TopicRange, TopicRanges


async def read_ranges(topics: Iterable[Topic | None]) -> TopicRanges:
    """Of the topics that this server leads. The coordinator's own are left out."""
    steps = ranges_in_steps(topics)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return {name: TopicRange(*offsets) for name, offsets in end.value.items()}
        await asyncio.sleep(0)
