"""What tests of consumers and members do again and again: wait for a group, and produce a record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ....actors.consumer_group.messages import ConsumerGroupDescribed, DescribeConsumerGroup
from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.group.kind import ABSENT_NAME
from ....actors.messages import Described, DescribeGroup, GroupRequest
from ....actors.text import did_you_mean
from ...embed.admin import describe_group
from ...embed.consumer_groups import describe_consumer_group, named
from ...embed.results import GroupDescription
from ...log.format.batch import encode_batch, frame_record

if TYPE_CHECKING:
    from ...node.node import Node
    from ...topics.topic import Topic

STABLE_NAME = "Stable"
"""In listings of groups of each kind: all members have what they shall have."""

POLL_S = 0.005
WAIT_S = 10.0
"""The default time to wait, in seconds of the machine's clock: clients use that one too."""


async def wait_until_stable(
    node: Callable[[], Node], group: str, members: int, timeout: float, clock_s: Callable[[], float] = time.monotonic
) -> GroupDescription:
    """Poll the group. Raises TimeoutError. ``node`` returns the running node, which a restart replaces."""
    end_s = clock_s() + timeout
    while isinstance(found := await check_stable(node(), group, members), str):
        if clock_s() > end_s:
            raise TimeoutError(f"{found} after {timeout:g} s")
        await asyncio.sleep(POLL_S)
    return found


async def check_stable(node: Node, group: str, members: int) -> GroupDescription | str:
    """The group if it is Stable with so many members, else what it is. Faults and the timeline see no request."""
    answer: Described | ConsumerGroupDescribed = await _ask(node, DescribeGroup(group))
    if answer.state == ABSENT_NAME:
        consumers: ConsumerGroupDescribed = await _ask(node, DescribeConsumerGroup(group))
        answer = answer if consumers.error else consumers
    if answer.state == STABLE_NAME and len(answer.members) == members:
        if isinstance(answer, ConsumerGroupDescribed):
            return describe_consumer_group(named(answer, node.topics))
        return describe_group(group, answer)
    state = answer.state or answer.error.name
    return f"group {group!r} is {state} with {len(answer.members)} members, not Stable with {members},"


async def _ask(node: Node, message: GroupRequest) -> Any:
    reply = node.actors.system.dispatcher.new_reply()
    node.local.post(message, reply)
    return await reply


def produce(node: Node, topic: str, value: bytes | str | None, key: bytes | str | None, partition: int) -> int:
    """Append a record with the coordinator's time, and wake the consumers that wait for it. Returns its offset."""
    found = _find_topic(node, topic, partition)
    now_ms = node.environment.clock.wall_ms()
    record = frame_record(0, 0, _to_bytes("key", key), _to_bytes("value", value))
    append_time_ms = now_ms if found.policy.timestamps.is_append_time else None
    return found.append(partition, encode_batch(0, now_ms, now_ms, [record]), append_time_ms)


def _find_topic(node: Node, topic: str, partition: int) -> Topic:
    found = node.topics.get(topic)
    if found is None or found.is_internal:
        hint = did_you_mean(topic, (name for name in node.topics.names() if not name.startswith("__")))
        raise CoordinatorError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}:{hint} create_topic() it"
        )
    if not found.has_partition(partition):
        last = len(found.partitions) - 1
        raise CoordinatorError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} has partitions 0 to {last}, not {partition}"
        )
    return found


def _to_bytes(name: str, given: bytes | str | None) -> bytes | None:
    if isinstance(given, str):
        return given.encode()
    if given is not None and not isinstance(given, bytes | bytearray | memoryview):
        raise TypeError(f"{name}={given!r}: expected bytes, text or None")
    return given
