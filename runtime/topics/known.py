"""What is known of the topics of a group: which ones do not exist, and how far its offsets are behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...actors.messages import FetchedOffset
from ...actors.recorder.now import GroupNow
from ...actors.steps import Steps, pieces

Fetched = Sequence[tuple[str, Sequence[FetchedOffset]]]


def with_missing_topics(
    now: GroupNow, exists: Callable[[str], bool], may_tell: Callable[[str], bool] = lambda _name: True
) -> GroupNow:
    """``may_tell``: whether it may be told of a topic if it exists."""
    topics = now.subscriptions.topics
    if topics is None:
        return now
    told = tuple(filter(may_tell, topics.subscribed))
    missing = tuple(name for name in told if not exists(name))
    topics = topics._replace(missing=missing, untold=len(topics.subscribed) - len(told))
    return now._replace(subscriptions=now.subscriptions._replace(topics=topics))


def needs_lag(now: GroupNow) -> bool:
    """Only of a group without members, because with members the lag changes all the time."""
    return not now.member_count and now.offsets is not None and now.offsets.offset_count > 0


def lag_in_steps(fetched: Fetched, ends: Mapping[str, Sequence[int]]) -> Steps[int | None]:
    """The records from the committed offsets to the ends; None if one of the ends is not known."""
    lag = 0
    for topic, rows in fetched:
        known = ends.get(topic)
        for piece in pieces(rows):
            for row in piece:
                if known is None or not 0 <= row.partition < len(known):
                    return None
                lag += max(known[row.partition] - row.offset, 0)
            yield
    return lag


def with_lag(now: GroupNow, lag: int | None) -> GroupNow:
    return now if now.offsets is None else now._replace(offsets=now.offsets._replace(lag=lag))
