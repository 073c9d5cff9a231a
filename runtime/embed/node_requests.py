"""NodeRequests: the admin methods' requests to the node of this process, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...actors.consumer_group.messages import DescribeConsumerGroup
from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.group.offsets import GroupData
from ...actors.messages import Explained, ExplainGroup, Fetched, GroupRequest, OffsetFetch
from ...actors.recorder.now import GroupNow
from ...actors.text import format_count
from ..common.errors import StartError
from ..disk.group_commit import outcome_of
from ..kafka.audit.audited_topics import Growth, creation, deletion
from ..kafka.node_lists import last_rebalances
from ..kafka.node_subjects import LastRebalance
from ..kafka.services import Origin
from ..node.group_figures import TopicRanges
from ..node.recording import finish_records
from ..node.topic_ranges import read_ranges
from ..security.audit import alteration
from ..settings.dynamic import InvalidSetting
from ..topics.known import lag_in_steps, needs_lag, with_lag, with_missing_topics
from ..topics.store import NewTopic
from .admin_requests import NamedTopics, Recorded, no_such_topic, uses_topic
from .audited_requests import ask_recorded, check_audit, record_change
from .consumer_groups import named
from .in_pieces import map_in_pieces, run_in_pieces
from .node_resets import NodeResets
from .results import ListedGroup, PartitionRange, TopicDescription

if TYPE_CHECKING:
    from ..node.node import Node
    from ..topics.topic import Topic

T = TypeVar("T")

ORIGIN = Origin("callboard-admin", "/127.0.0.1", 0)

PIECES_PER_TURN = 16
"""Pieces of a list of groups, each of 64, that are copied without a pause."""

CONCURRENT_GROUPS_MAX = 100
"""Groups that are queried concurrently, so that other requests are not delayed."""


class NodeRequests:
    """``AdminRequests``."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def loaded(self) -> Node:
        """The node, when its log is loaded."""
        if self._node.is_loading:
            await self._node.wait_until_loaded()
        return self._node

    async def ask(self, message: GroupRequest) -> Any:
        node = await self.loaded()
        return await ask_recorded(node, lambda each: node.local.ask(each, ORIGIN), message)

    async def _loaded_for_change(self) -> Node:
        """The node, when its log is loaded. Raises CoordinatorError if changes must be refused."""
        node = await self.loaded()
        check_audit(node.services.audit)
        return node

    async def describe_consumer_group(self, group: str) -> NamedTopics:
        return named(await self.ask(DescribeConsumerGroup(group)), self._node.topics)

    async def rebalances(self, group: str) -> Recorded:
        recorded = await self._recorded(group)
        now = recorded.now
        return recorded if now is None else recorded._replace(now=await self._with_topics(group, now))

    async def _recorded(self, group: str) -> Recorded:
        """Without what is known of the topics."""
        explained: Explained = await self.ask(ExplainGroup(group))
        if explained.error:
            raise CoordinatorError(explained.error, f"group {group!r}: {explained.error.name}")
        recorder = self._node.groups.event_log.recorder
        await finish_records(recorder)
        now = explained.now
        if now is None:
            now = recorder.absent(group, self._node.environment.clock.wall_ms())
        return Recorded(recorder.records(group), now)

    async def _with_topics(self, group: str, now: GroupNow) -> GroupNow:
        """Which topics do not exist, and the lag, if it is wanted and known."""
        now = with_missing_topics(now, lambda name: self._node.topics.get(name) is not None)
        if not needs_lag(now):
            return now
        fetched: Fetched = await self.ask(OffsetFetch(group, None))
        ranges = await self.ranges([topic for topic, _ in fetched.topics])
        ends = {name: known.ends for name, known in ranges.items()}
        return with_lag(now, await run_in_pieces(lag_in_steps(fetched.topics, ends)))

    async def ranges(self, names: Iterable[str]) -> TopicRanges:
        """The offsets of topics. Those that are not known are left out."""
        return await read_ranges(map((await self.loaded()).topics.get, names))

    async def last_rebalances(self, groups: Sequence[str]) -> Mapping[str, LastRebalance]:
        """By group. Groups without a record are left out."""
        node = await self.loaded()
        steps = last_rebalances(node.groups.event_log.recorder, groups, node.environment.clock.wall_ms())
        return {each.group: each for each in (await run_in_pieces(steps)).rebalances}

    async def list_groups(
        self, states: frozenset[str] = frozenset(), types: frozenset[str] = frozenset()
    ) -> Sequence[ListedGroup]:
        node = await self.loaded()
        answer: Awaitable[Any] = node.groups.list_groups()
        listing = await answer
        if isinstance(listing, ErrorCode):
            raise CoordinatorError(listing, f"the groups: {listing.name}")
        listed: list[ListedGroup] = []
        for number, piece in enumerate(listing.pieces(states, types), 1):
            listed += [ListedGroup(row.group_id, row.state, row.protocol_type, row.group_type) for row in piece]
            if number % PIECES_PER_TURN == 0:
                await asyncio.sleep(0)
        return listed

    async def groups_of_topic(self, topic: str) -> Iterable[str]:
        node = await self.loaded()
        names = [group.group_id for group in await self.list_groups()]
        passivated = node.groups.passivated
        group_ids = {name for name in names if name in passivated and _packed_has_topic(passivated[name], topic)}
        awake = [name for name in names if name not in passivated]
        for first in range(0, len(awake), CONCURRENT_GROUPS_MAX):
            chunk = awake[first : first + CONCURRENT_GROUPS_MAX]
            answers = await asyncio.gather(*(uses_topic(self, name, topic) for name in chunk))
            group_ids.update(name for name, has_topic in zip(chunk, answers, strict=True) if has_topic)
        return group_ids

    # Topics ----------------------------------------------------------------------------------------------------------

    async def topics(self) -> Sequence[TopicDescription]:
        topics = (await self.loaded()).topics
        return [_describe_topic(_require_topic(topics.get(name), name)) for name in sorted(topics.names())]

    async def describe_topic(self, name: str) -> TopicDescription:
        topic = _require_topic((await self.loaded()).topics.get(name), name)
        ranges = await map_in_pieces(partial(_range, topic), range(len(topic.partitions)))
        return TopicDescription(topic.name, topic.topic_id, tuple(ranges), topic.is_internal)

    async def resets(self) -> NodeResets:
        return NodeResets(await self.loaded())

    async def offsets_since(self, name: str, numbers: Sequence[int], time_ms: int) -> Mapping[int, int]:
        topic = _require_topic((await self.loaded()).topics.get(name), name)
        offsets: dict[int, int] = {}
        for index in numbers:
            found = await run_in_pieces(topic.partitions.peek(index).find_first_since(time_ms))
            if found is not None:
                offsets[index] = found.offset
        return offsets

    async def create_topic(self, name: str, partitions: int) -> None:
        node = await self._loaded_for_change()
        [topic] = await outcome_of(partial(node.services.topic_admin.create, [NewTopic(name, partitions)]))
        if isinstance(topic, CoordinatorError):
            raise topic
        record_change(node, "create_topic", creation(topic))

    async def grow_topic(self, name: str, partitions: int) -> None:
        node = await self._loaded_for_change()
        topic, admin = _require_topic(node.topics.get(name), name), node.services.topic_admin
        count = len(topic.partitions)
        if partitions <= count:
            raise CoordinatorError(
                ErrorCode.INVALID_PARTITIONS, f"topic {name!r} has {format_count(count, 'partition')}: expected more"
            )
        admin.check_growable(topic, partitions)
        growth = Growth(topic, partitions)
        _raise_if_error(await outcome_of(partial(admin.grow, topic, partitions, seen=growth)))
        record_change(node, "grow_topic", growth.alteration())

    async def delete_topic(self, name: str) -> None:
        node = await self._loaded_for_change()
        topic = _require_topic(node.topics.get(name), name)
        node.services.topic_admin.check_deletable(topic)
        [refusal] = await outcome_of(partial(node.services.topic_admin.delete, [topic]))
        _raise_if_error(refusal)
        record_change(node, "delete_topic", deletion(topic))

    # Settings --------------------------------------------------------------------------------------------------------

    async def set(self, settings: Mapping[str, float | bool | str | None]) -> None:
        node = await self._loaded_for_change()
        before = dict(node.configs.broker)
        try:
            _raise_if_error(await outcome_of(partial(node.services.settings_admin.set, settings)))
        except InvalidSetting as error:
            raise StartError(str(error)) from error
        except OSError as error:
            raise CoordinatorError(ErrorCode.KAFKA_STORAGE_ERROR, f"settings: {error.strerror}") from error
        values = ({name: table.get(name) for name in settings} for table in (before, node.configs.broker))
        record_change(node, "set", alteration(f"Broker:{node.services.cluster.node_id}", *values))


def _packed_has_topic(packed: bytes, topic: str) -> bool:
    """Search the bytes first: to unpack a group takes a hundred times as long."""
    return topic.encode() in packed and bool(list(GroupData.unpack(packed).offsets.partitions(topic)))


def _require_topic(topic: Topic | None, name: str) -> Topic:
    if topic is None:
        raise no_such_topic(name)
    return topic


def _raise_if_error(error: Exception | None) -> None:
    if error is not None:
        raise error


def _range(topic: Topic, index: int) -> PartitionRange:
    log = topic.partitions.peek(index)
    return PartitionRange(log.start_offset, log.end_offset)


def _describe_topic(topic: Topic) -> TopicDescription:
    partitions = tuple(_range(topic, index) for index in range(len(topic.partitions)))
    return TopicDescription(topic.name, topic.topic_id, partitions, topic.is_internal)
