"""ConsumerGroupHeartbeat requests over TCP, for tests."""

from __future__ import annotations

from typing import Any

from harness import Client


def consumer_heartbeat_values(member_id: str, epoch: int, **values: Any) -> dict[str, Any]:
    """The values of a ConsumerGroupHeartbeat that changes nothing."""
    return {
        "group_id": "g",
        "member_id": member_id,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
        **values,
    }


async def beat(client: Client, member_id: str, epoch: int, version: int = 1, **values: Any) -> dict[str, Any]:
    return await client.ask(
        "consumer_group_heartbeat", version, **consumer_heartbeat_values(member_id, epoch, **values)
    )


async def join(client: Client, member_id: str, *topics: str, version: int = 1, **values: Any) -> dict[str, Any]:
    joining = {"rebalance_timeout": 60_000, "subscribed_topic_names": list(topics), "topic_partitions": []}
    return await beat(client, member_id, 0, version, **{**joining, **values})
