"""What a node knows about the topics of a group: which ones do not exist, and the lag."""

from __future__ import annotations

from collections.abc import Sequence

from ...actors.messages import FetchedOffset
from ...actors.recorder.now import GroupNow
from ..topics.catalogue import TopicCatalogue
from .group_figures import TopicRanges


def missing_topics(now: GroupNow, topics: TopicCatalogue) -> GroupNow:
    if now.topics is None:
        return now
    missing = tuple(name for name in now.topics.subscribed if topics.get(name) is None)
    return now._replace(topics=now.topics._replace(missing=missing))


def lag_of(fetched: Sequence[tuple[str, Sequence[FetchedOffset]]], ranges: TopicRanges) -> int | None:
    """The records from the committed offsets to the ends; None if one of the ends is not known."""
    lag = 0
    for topic, partitions in fetched:
        known = ranges.get(topic)
        for row in partitions:
            if known is None or not 0 <= row.partition < len(known.ends):
                return None
            lag += max(known.ends[row.partition] - row.offset, 0)
    return lag
