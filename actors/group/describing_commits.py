"""DescribeCommits to an active group of any kind: when its offsets were committed."""

from __future__ import annotations

from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..messages import CommitsDescribed, DescribeCommits
from ..steps import SHORT_WORK_ITEMS, Steps, pieces, run_steps
from .active_group import ActiveGroup


def describe_commits(active: ActiveGroup, _request: DescribeCommits, _reply: ReplyTo | None) -> object:
    """The reply, or the work that makes it."""
    steps = _describe_in_steps(active)
    return steps if len(active.data.offsets) > SHORT_WORK_ITEMS else run_steps(steps)


def _describe_in_steps(active: ActiveGroup) -> Steps[CommitsDescribed]:
    topics: list[tuple[str, tuple[tuple[int, int], ...]]] = []
    for topic, partitions in active.data.offsets.topics():
        dates: list[tuple[int, int]] = []
        for piece in pieces(partitions.items()):
            dates += ((partition, value.commit_timestamp_ms) for partition, value in piece)
            yield
        topics.append((topic, tuple(dates)))
    return CommitsDescribed(
        ErrorCode.NONE, active.in_flight.commits_sent, tuple(topics), active.environment.clock.wall_ms()
    )
