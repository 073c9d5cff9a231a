"""Heartbeats of the consumer protocol and their replies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from ..errors import NO_ERROR, ErrorCode
from ..steps import Steps
from .records import Partition, RegexValue

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2

TopicFilter = Callable[[Collection[str]], Steps[Collection[str]]]
"""Leaves out the topics that a client may not see."""


class ConsumerHeartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat request. None, and -1 of the timeout, mean: as in my last request.

    ``describable``: which topics a regular expression may match if this request starts its resolution; None: all.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    server_assignor: str | None = None
    owned: tuple[Partition, ...] | None = None
    client_id: str = ""
    client_host: str = ""
    needs_member_id: bool = True  # False: version 0, in which the coordinator makes the id
    describable: TopicFilter | None = None

    @property
    def is_full(self) -> bool:
        """Clients send everything when they join, and after errors."""
        subscribes = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and subscribes and self.owned is not None


class ConsumerHeartbeatReply(NamedTuple):
    """``assigned``: None if it has not changed. ``limit``: the setting by which the heartbeat is refused."""

    error: ErrorCode = NO_ERROR
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: tuple[Partition, ...] | None = None
    limit: str = ""


class DescribeConsumerGroup(NamedTuple):
    """A group of a ConsumerGroupDescribe request. The reply is ``ConsumerGroupDescribed``."""

    group_id: str


class DescribedConsumer(NamedTuple):
    """``assigned``: with the partitions that the member has to give back. ``is_classic``: by the classic protocol."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str
    assigned: tuple[Partition, ...]
    target: tuple[Partition, ...]
    is_classic: bool = False


class ConsumerGroupDescribed(NamedTuple):
    """What is durable. Topics of partitions may not exist any more."""

    error: ErrorCode
    group_id: str
    message: str | None = None
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[DescribedConsumer, ...] = ()


class RegexesResolved(NamedTuple):
    """To a group, from its work in the background: the topics that its regular expressions match.

    ``describable``: that of the heartbeat that asked.
    """

    group_id: str
    resolved: Mapping[str, RegexValue]
    describable: TopicFilter | None = None
