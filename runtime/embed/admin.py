"""The requests of Kafka's admin clients as typed methods, in process, without a socket.

A refused request raises ``CoordinatorError`` with Kafka's code. A method that changes something returns when the change
is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from heapq import nsmallest
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ...actors.assignors.assignment import read_assignment
from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.group.events import ADMIN_REASON
from ...actors.group.kind import ABSENT_NAME
from ...actors.group.offsets import GroupData
from ...actors.group.states import LISTED_NAMES
from ...actors.group.subscription import subscribed_topics
from ...actors.messages import (
    Commit,
    Committed,
    DeleteGroup,
    Described,
    DescribedMember,
    DescribeGroup,
    Fetched,
    GroupRequest,
    LeaveGroup,
    LeavingMember,
    Left,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetsDeleted,
)
from ...actors.records import CLASSIC
from ...actors.text import did_you_mean
from ..common.errors import StartError
from ..disk.group_commit import outcome_of
from ..kafka.services import Origin
from ..member.resources import shard_name
from ..settings.dynamic import InvalidSetting
from ..topics.store import NewTopic
from .results import (
    CommittedOffset,
    GroupDescription,
    GroupMember,
    GroupPage,
    ListedGroup,
    PartitionRange,
    Targets,
    TopicDescription,
    TopicPartition,
)

if TYPE_CHECKING:
    from ..node.node import Node
    from ..topics.partition_log import PartitionLog
    from ..topics.topic import Topic

ORIGIN = Origin("callboard-admin", "/127.0.0.1", 0)

PIECES_PER_TURN = 16
"""Pieces of a list of groups, each of 64, that are copied without a pause."""

CONCURRENT_GROUPS_MAX = 100
"""Groups that are queried concurrently, so that other requests are not delayed."""

NO_LEADER_EPOCH = -1  # for a commit without a leader epoch

TYPES = (CLASSIC, "consumer", "share", "streams")  # Kafka's group types; all groups here are classic

ADVICE = {
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "it has members: stop them, or use remove_members() first",
    ErrorCode.UNKNOWN_MEMBER_ID: "there is no such member, or the group has members, and only they may commit",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "its members subscribe to the topic, and only they may commit",
    ErrorCode.INVALID_GROUP_ID: "expected a non-empty group id",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the metadata is longer than offset_metadata_max_bytes",
}


class Admin:
    """The admin methods of a coordinator. Call them on its event loop; they wait until its log is loaded."""

    def _running_node(self) -> Node:
        """The running node. Raises RuntimeError if there is none, or on another event loop."""
        raise NotImplementedError

    # Groups ----------------------------------------------------------------------------------------------------------

    async def describe(self, group: str) -> GroupDescription:
        """Describe a group and its members. Raises CoordinatorError GROUP_ID_NOT_FOUND for an unknown group."""
        return describe_group(group, await self._ask(DescribeGroup(group)))

    async def groups(
        self,
        *,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
        prefix: str = "",
        limit: int | None = None,
        after: str = "",
    ) -> GroupPage:
        """List groups, sorted by id, with these states ("Stable", "Empty", ...) and types ("classic"); default all.

        ``limit``: the greatest number of groups to return. ``after``: the value of the previous page.
        """
        if limit is not None and (type(limit) is not int or limit < 1):
            raise ValueError(f"limit={limit!r}: expected a whole number >= 1, or None for all")
        listed = await self._list(_check_filter("states", states, LISTED_NAMES), _check_filter("types", types, TYPES))
        matching = (group for group in listed if group.group_id.startswith(prefix) and group.group_id > after)
        by_id = attrgetter("group_id")
        if limit is None:
            return GroupPage(tuple(sorted(matching, key=by_id)), None)
        groups = nsmallest(limit + 1, matching, key=by_id)
        is_last = len(groups) <= limit
        return GroupPage(tuple(groups[:limit]), None if is_last else groups[limit - 1].group_id)

    async def groups_of_topic(self, topic: str) -> tuple[str, ...]:
        """Ids of the groups with offsets of a topic or members that subscribe to it, sorted."""
        node = await self._loaded()
        names = [group.group_id for group in await self._list()]
        passivated = node.groups.passivated
        group_ids = {name for name in names if name in passivated and _packed_has_topic(passivated[name], topic)}
        awake = [name for name in names if name not in passivated]
        for first in range(0, len(awake), CONCURRENT_GROUPS_MAX):
            chunk = awake[first : first + CONCURRENT_GROUPS_MAX]
            answers = await asyncio.gather(*(self._uses_topic(name, topic) for name in chunk))
            group_ids.update(name for name, uses_topic in zip(chunk, answers, strict=True) if uses_topic)
        return tuple(sorted(group_ids))

    async def delete(self, group: str) -> None:
        """Delete a group without members, with its offsets."""
        error: ErrorCode = await self._ask(DeleteGroup(group))
        _check(error, f"group {group!r}")

    async def remove_members(
        self,
        group: str,
        *,
        member_ids: Iterable[str] = (),
        instance_ids: Iterable[str] = (),
        reason: str | None = None,
    ) -> tuple[str, ...]:
        """Remove members from a group, all if no id is given. Returns the ids of the removed members.

        A running consumer joins again.
        """
        members = (await self.describe(group)).members
        ids = {member.instance_id: member.member_id for member in members if member.instance_id is not None}
        reason = f"{ADMIN_REASON}: {reason}" if reason else ADMIN_REASON  # as Kafka's admin client
        leaving = [LeavingMember(member_id, None, reason) for member_id in member_ids]
        leaving += [LeavingMember("", instance_id, reason) for instance_id in instance_ids]
        if not leaving:
            leaving = [LeavingMember(member.member_id, member.instance_id, reason) for member in members]
        answer: Left = await self._ask(LeaveGroup(group, tuple(leaving)))
        _check(answer.error, f"group {group!r}")
        for left in answer.members:
            _check(left.error, f"member {left.group_instance_id or left.member_id!r} of group {group!r}")
        return tuple(left.member_id or ids.get(left.group_instance_id or "", "") for left in answer.members)

    # Offsets ---------------------------------------------------------------------------------------------------------

    async def offsets(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """All committed offsets of a group by topic and partition; empty for an unknown group."""
        answer: Fetched = await self._ask(OffsetFetch(group, None))
        _check(answer.error, f"group {group!r}")
        return {
            (topic, row.partition): CommittedOffset(row.offset, row.metadata, row.leader_epoch)
            for topic, rows in answer.topics
            for row in rows
        }

    async def progress(self, group: str, resource: str) -> dict[int | str, CommittedOffset]:
        """Committed offsets of one resource, by the number or name of the shard, sorted."""
        offsets = await self.offsets(group)
        progress = {
            name: offset
            for partition, offset in offsets.items()
            if (name := shard_name(resource, partition)) is not None
        }
        return dict(sorted(progress.items(), key=lambda item: (isinstance(item[0], str), item[0])))

    async def reset(self, group: str, targets: Targets) -> dict[TopicPartition, int]:
        """Set offsets of a group without members; an unknown group is created. Returns the new offsets."""
        offsets = _resolve_targets(await self._loaded(), targets)
        commits = tuple(Commit(*partition, offset, NO_LEADER_EPOCH, "") for partition, offset in offsets.items())
        if commits:
            answer: Committed = await self._ask(OffsetCommit(group, "", None, -1, commits))
            for partition, error in zip(offsets, answer.errors, strict=True):
                _check(error, f"{partition[0]}-{partition[1]} of group {group!r}")
        return offsets

    async def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete offsets of a group. Offsets that it does not have are ignored."""
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        request = OffsetDelete(group, tuple((topic, tuple(numbers)) for topic, numbers in topics.items()))
        answer: OffsetsDeleted = await self._ask(request)
        _check(answer.error, f"group {group!r}")
        for topic, error in zip(topics, answer.topics, strict=True):
            _check(error, f"topic {topic!r} of group {group!r}")

    # Topics ----------------------------------------------------------------------------------------------------------

    async def topics(self, *, with_internal: bool = False) -> tuple[TopicDescription, ...]:
        """All topics, by name."""
        topics = (await self._loaded()).topics
        described = (_describe_topic(_require_topic(topics.get(name), name)) for name in sorted(topics.names()))
        return tuple(topic for topic in described if with_internal or not topic.is_internal)

    async def create_topic(self, name: str, partitions: int = 1) -> TopicDescription:
        """Create a topic. Its records are in memory; its name and end offsets are durable."""
        _check_count(name, partitions)
        admin = (await self._loaded()).services.topic_admin
        [topic] = await outcome_of(partial(admin.create, [NewTopic(name, partitions)]))
        if isinstance(topic, CoordinatorError):
            raise topic
        return _describe_topic(topic)

    async def grow_topic(self, name: str, partitions: int) -> TopicDescription:
        """Add partitions to a topic. ``partitions``: the new total."""
        _check_count(name, partitions)
        node = await self._loaded()
        topic, admin = _require_topic(node.topics.get(name), name), node.services.topic_admin
        count = len(topic.partitions)
        if partitions <= count:
            raise CoordinatorError(
                ErrorCode.INVALID_PARTITIONS, f"topic {name!r} has {count} partitions, expected more"
            )
        admin.check_growable(topic, partitions)
        _raise_if_error(await outcome_of(partial(admin.grow, topic, partitions)))
        return _describe_topic(topic)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic. The offsets that groups committed for it are deleted soon after."""
        node = await self._loaded()
        topic = _require_topic(node.topics.get(name), name)
        node.services.topic_admin.check_deletable(topic)
        [refusal] = await outcome_of(partial(node.services.topic_admin.delete, [topic]))
        _raise_if_error(refusal)

    # Settings --------------------------------------------------------------------------------------------------------

    async def set(self, **settings: float | bool | None) -> None:
        """Change dynamic settings; None restores the start value. Changes are kept over a restart.

        Raises StartError for an unknown name or an invalid value, and for a value below its safe minimum unless the
        coordinator was created with ``unsafe_settings=True``.
        """
        node = await self._loaded()
        try:
            _raise_if_error(await outcome_of(partial(node.services.settings_admin.set, settings)))
        except InvalidSetting as error:
            raise StartError(str(error)) from error
        except OSError as error:
            raise CoordinatorError(ErrorCode.KAFKA_STORAGE_ERROR, f"settings: {error.strerror}") from error

    # Implementation --------------------------------------------------------------------------------------------------

    async def _loaded(self) -> Node:
        node = self._running_node()
        if node.is_loading:
            await node.wait_until_loaded()
        return node

    async def _ask(self, message: GroupRequest) -> Any:
        return await (await self._loaded()).local.ask(message, ORIGIN)

    async def _list(
        self, states: frozenset[str] = frozenset(), types: frozenset[str] = frozenset()
    ) -> Sequence[ListedGroup]:
        node = await self._loaded()
        answer: Awaitable[Any] = node.groups.list_groups()
        listing = await answer
        if isinstance(listing, ErrorCode):
            raise _error(listing, "the groups")
        listed: list[ListedGroup] = []
        for number, piece in enumerate(listing.pieces(states, types), 1):
            listed += [ListedGroup(row.group_id, row.state, row.protocol_type, row.group_type) for row in piece]
            if number % PIECES_PER_TURN == 0:
                await asyncio.sleep(0)
        return listed

    async def _uses_topic(self, group: str, topic: str) -> bool:
        fetched: Fetched = await self._ask(OffsetFetch(group, None))
        if any(name == topic for name, _ in fetched.topics):
            return True
        described: Described = await self._ask(DescribeGroup(group))
        return topic in (subscribed_topics(member.metadata for member in described.members) or ())


def describe_group(group: str, answer: Described) -> GroupDescription:
    """The description in an answer. Raises CoordinatorError."""
    _check(answer.error, f"group {group!r}", answer.message)
    if answer.state == ABSENT_NAME:
        raise _error(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r}", answer.message)
    members = tuple(map(_describe_member, answer.members))
    return GroupDescription(group, answer.state, answer.protocol_type, answer.protocol, members)


def _check_filter(argument: str, words: Iterable[str], allowed: Sequence[str]) -> frozenset[str]:
    """Lower-case the words, as Kafka does. Raises ValueError for an unknown word, which would match no group."""
    if isinstance(words, str):
        raise TypeError(f"{argument}={words!r}: expected a list of words, as in [{words!r}]")
    lower = {word.lower(): word for word in words}
    unknown = lower.keys() - {word.lower() for word in allowed}
    if unknown:
        name = lower[min(unknown)]
        raise ValueError(
            f"{argument}: unknown {name!r};{did_you_mean(name, allowed)} expected some of {', '.join(allowed)}"
        )
    return frozenset(lower)


def _check_count(topic: str, partitions: object) -> None:
    if not isinstance(topic, str) or type(partitions) is not int:
        raise TypeError(f"topic {topic!r} with {partitions!r} partitions: expected a name and a whole number")


def _error(code: ErrorCode, subject: str, message: str | None = None) -> CoordinatorError:
    detail = message or ADVICE.get(code)
    return CoordinatorError(code, f"{subject}: {code.name}" + (f", {detail}" if detail else ""))


def _check(code: ErrorCode, subject: str, message: str | None = None) -> None:
    if code is not ErrorCode.NONE:
        raise _error(code, subject, message)


def _describe_member(member: DescribedMember) -> GroupMember:
    topics = subscribed_topics([member.metadata]) if member.metadata else frozenset()
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        None if topics is None else tuple(sorted(topics)),
        read_assignment(member.assignment),
        member.metadata,
        member.assignment,
    )


def _packed_has_topic(packed: bytes, topic: str) -> bool:
    """Search the bytes first: to unpack a group takes a hundred times as long."""
    return topic.encode() in packed and bool(list(GroupData.unpack(packed).offsets.partitions(topic)))


def _require_topic(topic: Topic | None, name: str) -> Topic:
    if topic is None:
        raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}: create_topic() it")
    return topic


def _raise_if_error(error: Exception | None) -> None:
    if error is not None:
        raise error


def _describe_topic(topic: Topic) -> TopicDescription:
    logs = (topic.partitions.peek(index) for index in range(len(topic.partitions)))
    partitions = tuple(PartitionRange(log.start_offset, log.end_offset) for log in logs)
    return TopicDescription(topic.name, topic.topic_id, partitions, topic.is_internal)


def _resolve_targets(node: Node, targets: Targets) -> dict[TopicPartition, int]:
    """The offset of each partition; a partition's own target wins over its topic's."""
    offsets: dict[TopicPartition, int] = {}
    for key in sorted(targets, key=lambda key: not isinstance(key, str)):  # topics first: partitions override them
        name, index = (key, None) if isinstance(key, str) else key
        logs = _require_topic(node.topics.get(name), name).partitions
        if index is not None and not 0 <= index < len(logs):
            raise CoordinatorError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} has partitions 0 to {len(logs) - 1}, not {index}"
            )
        for number in range(len(logs)) if index is None else (index,):
            offsets[name, number] = _resolve_offset(targets[key], logs.peek(number))
    return offsets


def _resolve_offset(target: object, log: PartitionLog) -> int:
    if target == "earliest":
        return log.start_offset
    if target == "latest":
        return log.end_offset
    if type(target) is not int or target < 0:
        raise ValueError(f"offset {target!r}: expected a whole number >= 0, 'earliest' or 'latest'")
    return target
