"""Whether all shards are assigned after a static member has returned.

The coordinator returns the current generation to a static member that has restarted, without a rebalance (KIP-345). If
its resources have changed meanwhile, for example in a new version of the program, nobody has assigned the new shards.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from ...actors.assignors.consumer_protocol import read_assignment
from ...actors.messages import Described, DescribeGroup
from .channel import ChannelLost
from .reconnecting_channel import ReconnectingChannel
from .shards import TopicPartition


async def are_assigned(channel: ReconnectingChannel, group_id: str, partitions: AbstractSet[TopicPartition]) -> bool:
    """Ask the coordinator whether these partitions are assigned to members. False if it does not say."""
    try:
        described: Described = await channel.ask(DescribeGroup(group_id))
    except ChannelLost:
        return False
    assignments = (read_assignment(member.assignment) for member in described.members)
    assigned = {
        partition for assignment in assignments if assignment is not None for partition in assignment.partitions
    }
    return partitions <= assigned
