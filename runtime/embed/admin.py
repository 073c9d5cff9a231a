"""The requests of Kafka's admin clients as typed methods, in process, without a socket.

A refused request raises ``CoordinatorError`` with Kafka's code. A method that changes something returns when the change
is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from heapq import nsmallest
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.group.offsets import GroupData
from ...actors.group.states import State
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
    Leaving,
    Left,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetsDeleted,
    SettingsChanged,
    TopicsDeleted,
)
from ..client.assignment import read_assignment
from ..common.errors import StartError
from ..disk.group_commit import outcome_of
from ..kafka.services import Origin
from ..member.named import shard_name
from ..settings.dynamic import BadValue
from ..settings.table import check_range, find_setting
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

ASKED_AT_ONCE = 100
"""Groups that are queried concurrently, so that other requests are not delayed."""

TIMESTAMP_UNKNOWN = -1  # of a commit without a leader epoch, as the protocol has it

STATES = tuple(state.value for state in State if state is not State.DEAD)
TYPES = ("classic", "consumer", "share", "streams")  # of Kafka; here all groups are of the first

ADVICE = {
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "it has members: stop them, or use remove_members() first",
    ErrorCode.UNKNOWN_MEMBER_ID: "there is no such member, or the group has members, and only they may commit",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "its members subscribe to the topic, and only they may commit",
    ErrorCode.INVALID_GROUP_ID: "a group has a name",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the metadata is longer than offset_metadata_max_bytes",
}


class Admin:
    """The admin methods of a coordinator. Call them on its event loop; they wait until its log is loaded."""

    def _present(self) -> Node:
        """The running node. Raises RuntimeError if there is none, or on another event loop."""
        raise NotImplementedError

    # Groups ----------------------------------------------------------------------------------------------------------

    async def describe(self, group: str) -> GroupDescription:
        """Describe a group and its members. Raises CoordinatorError GROUP_ID_NOT_FOUND for an unknown group."""
        answer: Described = await self._ask(DescribeGroup(group))
        _check(answer.error, f"group {group!r}", answer.message)
        if answer.state == State.DEAD.value:
            raise _error(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r}", answer.message)
        members = tuple(map(_member, answer.members))
        return GroupDescription(group, answer.state, answer.protocol_type, answer.protocol, members)

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

        ``limit``: at most so many. ``after``: the value of the previous page.
        """
        if limit is not None and (type(limit) is not int or limit < 1):
            raise ValueError(f"limit={limit!r}: expected a whole number from 1 on, or None for all")
        found = await self._list(_known_words("states", states, STATES), _known_words("types", types, TYPES))
        fits = (group for group in found if group.group_id.startswith(prefix) and group.group_id > after)
        by_id = attrgetter("group_id")
        if limit is None:
            return GroupPage(tuple(sorted(fits, key=by_id)), None)
        groups = nsmallest(limit + 1, fits, key=by_id)
        is_last = len(groups) <= limit
        return GroupPage(tuple(groups[:limit]), None if is_last else groups[limit - 1].group_id)

    async def groups_of_topic(self, topic: str) -> tuple[str, ...]:
        """Ids of the groups with offsets of a topic or members that subscribe to it, sorted."""
        node = await self._loaded()
        names = [group.group_id for group in await self._list()]
        asleep = node.groups.asleep
        found = {name for name in names if name in asleep and _packed_has(asleep[name], topic)}
        awake = [name for name in names if name not in asleep]
        for first in range(0, len(awake), ASKED_AT_ONCE):
            some = awake[first : first + ASKED_AT_ONCE]
            answers = await asyncio.gather(*(self._uses(name, topic) for name in some))
            found.update(name for name, uses in zip(some, answers, strict=True) if uses)
        return tuple(sorted(found))

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
        ids = {one.instance_id: one.member_id for one in members if one.instance_id is not None}
        leaving = [Leaving(one, None, reason) for one in member_ids]
        leaving += [Leaving("", one, reason) for one in instance_ids]
        if not leaving:
            leaving = [Leaving(one.member_id, one.instance_id, reason) for one in members]
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
            (topic, one.partition): CommittedOffset(one.offset, one.metadata, one.leader_epoch)
            for topic, found in answer.topics
            for one in found
        }

    async def progress(self, group: str, resource: str) -> dict[int | str, CommittedOffset]:
        """Committed offsets of one resource, by the number or name of the shard, sorted."""
        offsets = await self.offsets(group)
        found = {
            name: offset
            for partition, offset in offsets.items()
            if (name := shard_name(resource, partition)) is not None
        }
        return dict(sorted(found.items(), key=lambda one: (isinstance(one[0], str), one[0])))

    async def reset(self, group: str, targets: Targets) -> dict[TopicPartition, int]:
        """Set offsets of a group without members; an unknown group is created. Returns the new offsets."""
        wanted = _wanted(await self._loaded(), targets)
        commits = tuple(Commit(*partition, offset, TIMESTAMP_UNKNOWN, "") for partition, offset in wanted.items())
        if commits:
            answer: Committed = await self._ask(OffsetCommit(group, "", None, -1, commits))
            for partition, error in zip(wanted, answer.errors, strict=True):
                _check(error, f"{partition[0]}-{partition[1]} of group {group!r}")
        return wanted

    async def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete offsets of a group. Offsets that it does not have are ignored."""
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        asked = tuple((topic, tuple(numbers)) for topic, numbers in topics.items())
        answer: OffsetsDeleted = await self._ask(OffsetDelete(group, asked))
        _check(answer.error, f"group {group!r}")
        for topic, error in zip(topics, answer.topics, strict=True):
            _check(error, f"topic {topic!r} of group {group!r}")

    # Topics ----------------------------------------------------------------------------------------------------------

    async def topics(self, *, with_internal: bool = False) -> tuple[TopicDescription, ...]:
        """All topics, by name."""
        topics = (await self._loaded()).topics
        found = (_described(_known(topics.get(name), name)) for name in sorted(topics.names()))
        return tuple(one for one in found if with_internal or not one.is_internal)

    async def create_topic(self, name: str, partitions: int = 1) -> TopicDescription:
        """Create a topic. Its records are in memory; its name and end offsets are durable."""
        _check_count(name, partitions)
        topics = (await self._loaded()).topics
        [topic] = await outcome_of(partial(topics.create_many, [(name, partitions)]))
        if isinstance(topic, CoordinatorError):
            raise topic
        return _described(topic)

    async def grow_topic(self, name: str, partitions: int) -> TopicDescription:
        """Add partitions to a topic. ``partitions``: the new total."""
        _check_count(name, partitions)
        topics = (await self._loaded()).topics
        topic = _known(topics.get(name), name)
        has = len(topic.partitions)
        if partitions <= has:
            raise CoordinatorError(ErrorCode.INVALID_PARTITIONS, f"topic {name!r} has {has} partitions: expected more")
        topics.check_growable(topic, partitions)
        _raise(await outcome_of(partial(topics.grow, topic, partitions)))
        return _described(topic)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic. The offsets that groups committed for it are deleted soon after."""
        node = await self._loaded()
        topic = _known(node.topics.get(name), name)
        node.topics.check_deletable(topic)

        def delete(done: Callable[[CoordinatorError | None], None]) -> None:
            node.topics.delete_many([topic], lambda refusals: finish(refusals[0], done))

        def finish(refusal: CoordinatorError | None, done: Callable[[CoordinatorError | None], None]) -> None:
            if refusal is None:  # told before anybody can make the topic anew and commit
                node.groups.coordinator.tell(TopicsDeleted(frozenset((name,))))
            done(refusal)

        _raise(await outcome_of(delete))

    # Settings --------------------------------------------------------------------------------------------------------

    async def set(self, **settings: float | bool | None) -> None:
        """Change dynamic settings; None restores the start value. Changes are kept over a restart.

        Raises StartError for a name or value that makes no sense, or for a value below its safe minimum unless the
        coordinator was made with ``unsafe_settings=True``.
        """
        node = await self._loaded()
        for name, value in settings.items():
            setting = find_setting(name)
            if not setting.is_dynamic:
                raise StartError(f"setting '{name}' does not change while the coordinator runs: give it when it starts")
            if value is not None:
                check_range(setting, value)
        try:
            _raise(await outcome_of(partial(node.configs.change, partial(_with_changes, settings))))
        except BadValue as error:
            raise StartError(str(error)) from error
        except OSError as error:
            raise CoordinatorError(ErrorCode.KAFKA_STORAGE_ERROR, f"settings: {error.strerror}") from error
        node.groups.coordinator.tell(SettingsChanged())

    # How it is done --------------------------------------------------------------------------------------------------

    async def _loaded(self) -> Node:
        node = self._present()
        if node.is_loading:
            await node.wait_until_loaded()
        return node

    async def _ask(self, message: GroupRequest) -> Any:
        return await (await self._loaded()).ask(message, ORIGIN)

    async def _list(
        self, states: frozenset[str] = frozenset(), types: frozenset[str] = frozenset()
    ) -> Sequence[ListedGroup]:
        node = await self._loaded()
        asked: Awaitable[Any] = node.groups.coordinator.ask(ListGroups(states, types), block=False)
        listed = await asked
        if isinstance(listed, ErrorCode):
            raise _error(listed, "the groups")
        return [ListedGroup(one.group_id, one.state, one.protocol_type, one.group_type) for one in listed]

    async def _uses(self, group: str, topic: str) -> bool:
        fetched: Fetched = await self._ask(OffsetFetch(group, None))
        if any(name == topic for name, _ in fetched.topics):
            return True
        described: Described = await self._ask(DescribeGroup(group))
        return topic in (subscribed_topics(one.metadata for one in described.members) or ())


def _known_words(what: str, words: Iterable[str], known: Sequence[str]) -> frozenset[str]:
    """Lower-case the words, as Kafka does. Raises ValueError for an unknown word, which would match no group."""
    if isinstance(words, str):
        raise TypeError(f"{what}={words!r}: expected several words, as in [{words!r}]")
    lower = {word.lower(): word for word in words}
    unknown = lower.keys() - {word.lower() for word in known}
    if unknown:
        raise ValueError(f"{what}: {lower[min(unknown)]!r} is none; expected some of {', '.join(known)}")
    return frozenset(lower)


def _check_count(topic: str, partitions: object) -> None:
    if not isinstance(topic, str) or type(partitions) is not int:
        raise TypeError(f"topic {topic!r} with {partitions!r} partitions: expected a name and a whole number")


def _error(code: ErrorCode, what: str, message: str | None = None) -> CoordinatorError:
    return CoordinatorError(code, f"{what}: {code.name}, {message or ADVICE.get(code, 'see the code')}")


def _check(code: ErrorCode, what: str, message: str | None = None) -> None:
    if code is not ErrorCode.NONE:
        raise _error(code, what, message)


def _member(member: DescribedMember) -> GroupMember:
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


def _packed_has(packed: bytes, topic: str) -> bool:
    """Looked at as bytes first: to unpack a group costs a hundred times as much."""
    return topic.encode() in packed and bool(list(GroupData.unpack(packed).offsets.partitions(topic)))


def _known(topic: Topic | None, name: str) -> Topic:
    if topic is None:
        raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}: create_topic() it")
    return topic


def _raise(failure: Exception | None) -> None:
    if failure is not None:
        raise failure


def _with_changes(
    settings: Mapping[str, Any], broker: Mapping[str, Any], all_brokers: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The settings of this broker with changes; None takes one back."""
    changed = {name: value for name, value in {**broker, **settings}.items() if value is not None}
    return changed, all_brokers


def _described(topic: Topic) -> TopicDescription:
    logs = (topic.partitions.peek(index) for index in range(len(topic.partitions)))
    partitions = tuple(PartitionRange(log.start_offset, log.end_offset) for log in logs)
    return TopicDescription(topic.name, topic.topic_id, partitions, topic.is_internal)


def _wanted(node: Node, targets: Targets) -> dict[TopicPartition, int]:
    """The offset of each partition; a partition's own target wins over its topic's."""
    wanted: dict[TopicPartition, int] = {}
    for where in sorted(targets, key=lambda one: not isinstance(one, str)):
        name, index = (where, None) if isinstance(where, str) else where
        logs = _known(node.topics.get(name), name).partitions
        if index is not None and not 0 <= index < len(logs):
            raise CoordinatorError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} has partitions 0 to {len(logs) - 1}, not {index}"
            )
        for number in range(len(logs)) if index is None else (index,):
            wanted[name, number] = _offset(targets[where], logs.peek(number))
    return wanted


def _offset(target: object, log: PartitionLog) -> int:
    if target == "earliest":
        return log.start_offset
    if target == "latest":
        return log.end_offset
    if type(target) is not int or target < 0:
        raise ValueError(f"offset {target!r}: expected a whole number from 0 on, 'earliest' or 'latest'")
    return target
