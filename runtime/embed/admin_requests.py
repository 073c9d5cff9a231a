"""AdminRequests: what the admin methods ask of a coordinator. It may be this process's node, or a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ...actors.consumer_group.messages import ConsumerGroupDescribed
from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.group.kind import ABSENT_NAME
from ...actors.group.subscription import subscribed_topics
from ...actors.messages import Described, DescribeGroup, Fetched, GroupRequest, OffsetFetch
from ...actors.recorder.now import GroupNow
from ...actors.recorder.record import RebalanceRecord
from .node_resets import NodeResets
from .results import ListedGroup, TopicDescription


class NamedTopics(NamedTuple):
    """The answer about a group, and the names of topics in it by their ids. Topics may have been deleted."""

    answer: ConsumerGroupDescribed
    names: Mapping[bytes, str]


class Recorded(NamedTuple):
    """The records of a group, the newest first, and its state; None if there is no such group."""

    records: tuple[RebalanceRecord, ...]
    now: GroupNow | None


class AdminRequests(Protocol):
    """Each method waits until what it asks is loaded, and raises CoordinatorError if it is refused."""

    async def ask(self, message: GroupRequest) -> Any:
        """The group's answer. An error in it is not raised."""

    async def describe_consumer_group(self, group: str) -> NamedTopics:
        """A group of the consumer protocol; GROUP_ID_NOT_FOUND in the answer if it is none."""

    async def rebalances(self, group: str) -> Recorded:
        """What the flight recorder has about a group."""

    async def list_groups(
        self, states: frozenset[str] = frozenset(), types: frozenset[str] = frozenset()
    ) -> Sequence[ListedGroup]:
        """All groups with these states and types in lower case, in any order; without words all."""

    async def groups_of_topic(self, topic: str) -> Iterable[str]:
        """The ids of groups with offsets of the topic, or members that subscribe to it."""

    async def topics(self) -> Sequence[TopicDescription]:
        """All topics, by name."""

    async def describe_topic(self, name: str) -> TopicDescription: ...

    async def resets(self) -> NodeResets:
        """What the node of this process keeps for resets."""

    async def offsets_since(self, name: str, numbers: Sequence[int], time_ms: int) -> Mapping[int, int]:
        """The offset of the first record with this timestamp or a later one, of these partitions that have one."""

    async def create_topic(self, name: str, partitions: int) -> None: ...

    async def grow_topic(self, name: str, partitions: int) -> None: ...

    async def delete_topic(self, name: str) -> None: ...

    async def set(self, settings: Mapping[str, float | bool | str | None]) -> None:
        """Change dynamic settings. Raises StartError too."""


async def uses_topic(requests: AdminRequests, group: str, topic: str) -> bool:
    """Whether a group has offsets of a topic, or members that subscribe to it."""
    fetched: Fetched = await requests.ask(OffsetFetch(group, None))
    if any(name == topic for name, _ in fetched.topics):
        return True
    described: Described = await requests.ask(DescribeGroup(group))
    if described.state == ABSENT_NAME:
        answer, names = await requests.describe_consumer_group(group)
        return topic in names.values() or any(topic in member.topics for member in answer.members)
    return topic in (subscribed_topics(member.metadata for member in described.members) or ())


def no_such_topic(name: str) -> CoordinatorError:
    """The advice is for callers that name a topic to use it, and for those that delete or enlarge one."""
    text = f"there is no topic {name!r}: topics() returns those that exist, and create_topic() makes one"
    return CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
