"""When the offsets of a group were committed, and when the first records after them were made."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.messages import CommitsDescribed, DescribeCommits
from ..embed.any_group import requests_of
from ..embed.results import CommittedOffset, TopicPartition
from ..node.node import Node
from ..node.record_times import read_record_times


class CommitTimes(NamedTuple):
    """Times since 1970, of the partitions where they are known. ``now_ms``: when they were read, by the asked node's
    clock; ``group_now_ms``: by that of the node that has the group.

    ``committed_ms``: an offset of a reset that is guarded is dated at the end of the guard, so in the future.
    ``unread_ms``: of the first record that is not committed. ``commits``: those since the group is in memory; None
    if that is not known.
    """

    now_ms: int = 0
    committed_ms: Mapping[TopicPartition, int] = MappingProxyType({})
    unread_ms: Mapping[TopicPartition, int] = MappingProxyType({})
    commits: int | None = None
    group_now_ms: int = 0

    def committed(self, partition: TopicPartition) -> int | None:
        """When an offset was committed; None if that is not known."""
        time_ms = self.committed_ms.get(partition, -1)
        return time_ms if 0 <= time_ms <= self.group_now_ms else None

    def is_reset(self, partition: TopicPartition) -> bool:
        """Whether an offset is one of a reset that is guarded."""
        return self.committed_ms.get(partition, -1) > self.group_now_ms

    def lag_ms(self, partition: TopicPartition, lag: int | None) -> int | None:
        """The age of the first record that is not committed, 0 without one; None if it is not known."""
        if lag == 0:
            return 0
        time_ms = self.unread_ms.get(partition)
        return None if time_ms is None else max(0, self.now_ms - time_ms)


async def read_commit_times(node: Node, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> CommitTimes:
    """On the node's loop. Raises CoordinatorError."""
    described = await _describe_commits(node, group)
    committed_ms = {(topic, number): time_ms for topic, dates in described.topics for number, time_ms in dates}
    unread_ms = await read_record_times(node, ((key, offset.offset) for key, offset in offsets.items()))
    commits = None if described.error else described.commits
    now_ms = node.environment.clock.wall_ms()
    return CommitTimes(now_ms, committed_ms, unread_ms, commits, described.now_ms)


async def _describe_commits(node: Node, group: str) -> CommitsDescribed:
    """Nothing of a group that is gone, or whose node has an older version."""
    try:
        answer: CommitsDescribed = await requests_of(node).ask(DescribeCommits(group))
    except CoordinatorError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return CommitsDescribed(error.code)
    return answer
