"""The requests of Kafka's admin clients as typed methods, in process, without a socket.

A refused request raises ``CoordinatorError`` with Kafka's code. A method that changes something returns when the change
is durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from heapq import nsmallest
from operator import attrgetter
from typing import TYPE_CHECKING

from ...actors.assignors.assignment import read_assignment
from ...actors.errors import ErrorCode
from ...actors.group.kind import ABSENT_NAME
from ...actors.group.kinds import KINDS
from ...actors.group.leave_causes import ADMIN_REASON
from ...actors.group.subscription import subscribed_topics
from ...actors.messages import (
    Commit,
    Committed,
    DeleteGroup,
    Described,
    DescribedMember,
    DescribeGroup,
    Fetched,
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
from ..member.resources import shard_name
from .arguments import check_group, check_list, check_partition
from .consumer_groups import describe_consumer_group
from .refusals import check, refusal
from .reset_admin import ResetAdmin
from .reset_targets import describe_topics, resolve_targets
from .resets import guarded_until
from .results import (
    CommittedOffset,
    GroupDescription,
    GroupMember,
    GroupPage,
    Targets,
    TopicDescription,
    TopicPartition,
)

if TYPE_CHECKING:
    from .admin_requests import AdminRequests

NO_LEADER_EPOCH = -1  # for a commit without a leader epoch

STATE_NAMES = tuple(dict.fromkeys(name for kind in KINDS.values() for name in kind.state_names))
TYPES = (CLASSIC, "consumer", "share", "streams")  # Kafka's group types; groups here have the first two


class Admin(ResetAdmin):
    """The admin methods of a coordinator. Call them on its event loop; they wait until its log is loaded."""

    def _requests(self) -> AdminRequests:
        """Asks the running coordinator. Raises RuntimeError if it does not run, or on another event loop."""
        raise NotImplementedError

    # Groups ----------------------------------------------------------------------------------------------------------

    async def describe(self, group: str) -> GroupDescription:
        """Describe a group and its members. Raises CoordinatorError GROUP_ID_NOT_FOUND for an unknown group."""
        check_group(group)
        requests = self._requests()
        answer: Described = await requests.ask(DescribeGroup(group))
        if answer.state == ABSENT_NAME:
            described = await requests.describe_consumer_group(group)
            if not described.answer.error:
                return await _with_guard(requests, describe_consumer_group(described))
        return await _with_guard(requests, describe_group(group, answer))

    async def groups(
        self,
        *,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
        prefix: str = "",
        limit: int | None = None,
        after: str = "",
    ) -> GroupPage:
        """List groups, sorted by id, with these states ("Stable", "Empty", ...) and types ("classic", "consumer").

        ``limit``: the greatest number of groups to return. ``after``: the value of the previous page.
        """
        if limit is not None and (type(limit) is not int or limit < 1):
            raise ValueError(f"limit={limit!r}: expected a whole number >= 1, or None for all")
        listed = await self._requests().list_groups(
            _check_filter("states", states, STATE_NAMES), _check_filter("types", types, TYPES)
        )
        matching = (group for group in listed if group.group_id.startswith(prefix) and group.group_id > after)
        by_id = attrgetter("group_id")
        if limit is None:
            return GroupPage(tuple(sorted(matching, key=by_id)), None)
        groups = nsmallest(limit + 1, matching, key=by_id)
        is_last = len(groups) <= limit
        return GroupPage(tuple(groups[:limit]), None if is_last else groups[limit - 1].group_id)

    async def groups_of_topic(self, topic: str) -> tuple[str, ...]:
        """Ids of the groups with offsets of a topic or members that subscribe to it, sorted."""
        return tuple(sorted(await self._requests().groups_of_topic(topic)))

    async def delete(self, group: str) -> None:
        """Delete a group without members, with its offsets."""
        check_group(group)
        error: ErrorCode = await self._requests().ask(DeleteGroup(group))
        check(error, f"group {group!r}")

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
        check_list("member_ids", member_ids)
        check_list("instance_ids", instance_ids)
        members = (await self.describe(group)).members
        ids = {member.instance_id: member.member_id for member in members if member.instance_id is not None}
        reason = f"{ADMIN_REASON}: {reason}" if reason else ADMIN_REASON  # as Kafka's admin client
        leaving = [LeavingMember(member_id, None, reason) for member_id in member_ids]
        leaving += [LeavingMember("", instance_id, reason) for instance_id in instance_ids]
        if not leaving:
            leaving = [LeavingMember(member.member_id, member.instance_id, reason) for member in members]
        answer: Left = await self._requests().ask(LeaveGroup(group, tuple(leaving)))
        check(answer.error, f"group {group!r}")
        for left in answer.members:
            check(left.error, f"member {left.group_instance_id or left.member_id!r} of group {group!r}")
        return tuple(left.member_id or ids.get(left.group_instance_id or "", "") for left in answer.members)

    # Offsets ---------------------------------------------------------------------------------------------------------

    async def offsets(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """All committed offsets of a group by topic and partition; empty for an unknown group."""
        check_group(group)
        answer: Fetched = await self._requests().ask(OffsetFetch(group, None))
        check(answer.error, f"group {group!r}")
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
        check_group(group)
        topics = await describe_topics(self._requests(), targets)
        resolved = await resolve_targets(self._requests(), group, targets, topics)
        offsets = {partition: chosen.offset for partition, chosen in resolved.items() if chosen.offset is not None}
        commits = tuple(Commit(*partition, offset, NO_LEADER_EPOCH, "") for partition, offset in offsets.items())
        if commits:
            answer: Committed = await self._requests().ask(OffsetCommit(group, "", None, -1, commits))
            for partition, error in zip(offsets, answer.errors, strict=True):
                check(error, f"{partition[0]}-{partition[1]} of group {group!r}")
        return offsets

    async def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete offsets of a group. Offsets that it does not have are ignored."""
        check_group(group)
        topics: dict[str, list[int]] = {}
        for each in partitions:
            check_partition(each)
            topics.setdefault(each[0], []).append(each[1])
        request = OffsetDelete(group, tuple((topic, tuple(numbers)) for topic, numbers in topics.items()))
        answer: OffsetsDeleted = await self._requests().ask(request)
        check(answer.error, f"group {group!r}")
        for topic, error in zip(topics, answer.topics, strict=True):
            check(error, f"topic {topic!r} of group {group!r}")

    # Topics ----------------------------------------------------------------------------------------------------------

    async def topics(self, *, with_internal: bool = False) -> tuple[TopicDescription, ...]:
        """All topics, by name."""
        return tuple(topic for topic in await self._requests().topics() if with_internal or not topic.is_internal)

    async def create_topic(self, name: str, partitions: int = 1) -> TopicDescription:
        """Create a topic. Its records are in memory; its name and end offsets are durable."""
        _check_count(name, partitions)
        await self._requests().create_topic(name, partitions)
        return await self._requests().describe_topic(name)

    async def grow_topic(self, name: str, partitions: int) -> TopicDescription:
        """Add partitions to a topic. ``partitions``: the new total."""
        _check_count(name, partitions)
        await self._requests().grow_topic(name, partitions)
        return await self._requests().describe_topic(name)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic. The offsets that groups committed for it are deleted soon after."""
        await self._requests().delete_topic(name)

    # Settings --------------------------------------------------------------------------------------------------------

    async def set(self, **settings: float | bool | str | None) -> None:
        """Change dynamic settings; None restores the start value. Changes are kept over a restart.

        Raises StartError for an unknown name or an invalid value, and for a value below its safe minimum unless the
        coordinator was created with ``unsafe_settings=True``.
        """
        await self._requests().set(settings)


async def _with_guard(requests: AdminRequests, described: GroupDescription) -> GroupDescription:
    return replace(described, guarded_until=await guarded_until(requests, described.group_id))


def describe_group(group: str, answer: Described) -> GroupDescription:
    """The description in an answer. Raises CoordinatorError."""
    check(answer.error, f"group {group!r}", answer.message)
    if answer.state == ABSENT_NAME:
        raise refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r}", answer.message)
    members = tuple(map(_describe_member, answer.members))
    return GroupDescription(group, answer.state, answer.protocol_type, answer.protocol, members)


def _check_filter(argument: str, words: Iterable[str], allowed: Sequence[str]) -> frozenset[str]:
    """Lower-case the words, as Kafka does. Raises ValueError for an unknown word, which would match no group."""
    check_list(argument, words)
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
