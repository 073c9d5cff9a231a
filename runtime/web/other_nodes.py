"""The groups of the other nodes of a cluster, for the list of all groups. A node that is alone imports nothing of this.

The groups without members of a partition are sent again only if one of them has changed. Threads decode what is long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from ...actors.consumer_group.messages import ConsumerGroupDescribed, DescribeConsumerGroup
from ...actors.consumer_group.records import CONSUMER
from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.group.kind import ABSENT_NAME
from ...actors.messages import DescribeGroup, ExplainGroup, Fetched, OffsetFetch
from ...actors.recorder.now import GroupNow
from ...actors.records import CLASSIC
from ..embed.any_group import requests_of
from ..embed.forwarded_requests import ranges_of
from ..kafka.codec.message_json import read_message, write_message
from ..kafka.node_subjects import GroupsRead, ListedState, ReadGroups, ReadTopics
from ..kafka.questions import NotReached, OtherNode, Questions
from ..node.group_figures import TopicRanges, of_classic, of_consumers
from ..node.node import Node
from .backend import Backend, Unavailable
from .group_rows import SETTLED, GroupRow, GroupsCopy, row_of, with_now

log = logging.getLogger("callboard.runtime.web")

NODE_S: Final = 5.0
"""For all partitions of one node."""


class ReadNode(NamedTuple):
    """What was read of a node."""

    ranges: TopicRanges
    groups: Sequence[GroupsRead]
    is_complete: bool


class OtherGroups(NamedTuple):
    """``incomplete``: the ids of nodes of which some or all groups are missing."""

    ranges: TopicRanges
    groups: Sequence[GroupsRead]
    incomplete: tuple[int, ...]

    def joined(self, own: GroupsCopy) -> GroupsCopy:
        """The groups of all nodes. One that moves meanwhile may be there twice."""
        return GroupsCopy(
            {**own.ranges, **self.ranges},
            [*own.passive, *(read.passive or () for read in self.groups)],
            [*own.active, *(listed for read in self.groups for listed in read.active)],
            [*own.unreadable, *(listed for read in self.groups for listed in read.unreadable)],
            own.now_ms,
            own.limits,
        )


class OtherNodes:
    """Reads the groups of the other nodes. ``_known``: what was read last, by session and partition."""

    def __init__(self, backend: Backend, questions: Questions) -> None:
        self._backend = backend
        self._questions = questions
        self._known: dict[tuple[str, int], GroupsRead] = {}

    async def read(self) -> OtherGroups:
        """Raises Unavailable if this node does not answer."""
        owners, unloaded = await self._backend.ask(self._find_owners)
        keys = {(node.session, partition) for node, partitions in owners.items() for partition in partitions}
        self._known = {key: known for key, known in self._known.items() if key in keys}
        found = await asyncio.gather(*(self._read_node(*item) for item in owners.items()))
        incomplete = {node.node_id for node, read in zip(owners, found, strict=True) if not read.is_complete}
        ranges = {topic: offsets for read in found for topic, offsets in read.ranges.items()}
        groups = [each for read in found for each in read.groups]
        return OtherGroups(ranges, groups, tuple(sorted(incomplete | unloaded)))

    async def _find_owners(self) -> tuple[Mapping[OtherNode, Sequence[int]], set[int]]:
        """The other nodes with their partitions, and the id of this one if a partition of it is not loaded."""
        loaded = self._backend.node().groups.partitions
        owners = dict(self._questions.partitions())
        own = [node for node in owners if node.is_own]
        unloaded = {node.node_id for node in own if not all(loaded[number].is_active for number in owners[node])}
        return {node: partitions for node, partitions in owners.items() if not node.is_own}, unloaded

    async def _read_node(self, node: OtherNode, partitions: Sequence[int]) -> ReadNode:
        ranges: TopicRanges = {}
        groups: list[GroupsRead] = []
        try:
            async with asyncio.timeout(NODE_S):
                ranges = await asyncio.to_thread(ranges_of, await self._ask(node, ReadTopics()))
                for partition in partitions:
                    read = await self._read_partition(node, partition)
                    if read is not None:
                        groups.append(read)
        except (NotReached, CoordinatorError, Unavailable, TimeoutError) as error:
            log.info("groups of node %d were not read: %s", node.node_id, error)
        return ReadNode(ranges, groups, len(groups) == len(partitions))

    async def _read_partition(self, node: OtherNode, partition: int) -> GroupsRead | None:
        """None if the node does not serve it now."""
        key = node.session, partition
        known = self._known.get(key)
        try:
            content = await self._ask(node, ReadGroups(partition, 0 if known is None else known.digest))
        except CoordinatorError as error:
            if error.code is not ErrorCode.NOT_COORDINATOR:
                raise
            return None
        read: GroupsRead = await asyncio.to_thread(read_message, GroupsRead, content)
        if read.passive is None:
            assert known is not None, "nothing is left out of the first answer"
            read = read._replace(passive=known.passive)
        self._known[key] = read
        return read

    async def _ask(self, node: OtherNode, message: ReadTopics | ReadGroups) -> bytes:
        subject, content = type(message).__name__, write_message(message)
        return await self._backend.ask(lambda: self._questions.ask(node, subject, "", content, b""))


# On the node's loop --------------------------------------------------------------------------------------------------


async def read_rows(node: Node, listed: Sequence[ListedState], ranges: TopicRanges) -> list[GroupRow]:
    """Rows of groups of any node, without those that are gone, or whose node does not answer."""
    found = await asyncio.gather(*(_read_row(node, each.group, each.type, ranges) for each in listed))
    return [row for row in found if row is not None]


async def find_row(node: Node, group: str, ranges: TopicRanges) -> GroupRow | None:
    """The row of one group of any node; None if there is no such group."""
    row = await _read_row(node, group, CLASSIC, ranges)
    return await _read_row(node, group, CONSUMER, ranges) if row is None else row


async def _read_row(node: Node, group: str, group_type: str, ranges: TopicRanges) -> GroupRow | None:
    requests = requests_of(node)
    message: Any = DescribeConsumerGroup(group) if group_type == CONSUMER else DescribeGroup(group)
    try:
        described = await requests.ask(message)
        fetched: Fetched = await requests.ask(OffsetFetch(group, None))
        asks_more = described.state not in SETTLED and not described.error
        now: GroupNow | None = (await requests.ask(ExplainGroup(group))).now if asks_more else None
    except CoordinatorError as error:
        log.info("group %r was not read: %s", group, error)
        return None
    if described.error or fetched.error or described.state == ABSENT_NAME:
        return None
    return with_now(_row_of(node, described, fetched, ranges), now)


def _row_of(node: Node, described: Any, fetched: Fetched, ranges: TopicRanges) -> GroupRow:
    if isinstance(described, ConsumerGroupDescribed):
        return row_of(of_consumers(described, fetched, ranges, lambda id_: _topic_name(node, id_)), CONSUMER)
    return row_of(of_classic(described, fetched, ranges), CLASSIC)


def _topic_name(node: Node, topic_id: bytes) -> str | None:
    topic = node.topics.by_id(UUID(bytes=topic_id))
    return None if topic is None else topic.name
