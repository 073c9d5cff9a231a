"""A partition that a node has gained and not loaded yet: error 14, as in Kafka."""

from __future__ import annotations

import asyncio
from pathlib import Path

from consumer_requests import consumer_heartbeat_values
from peers.wire import Wire

from callboard.actors.errors import ErrorCode
from callboard.runtime.settings.address import Address

from .loading_node import loading_node, until
from .probe import TOPIC

GROUP = "g"
CONSUMER_GROUP = "consumers"  # of the consumer protocol
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name


def answers(address: Address) -> dict[str, str]:
    """The error codes of requests about a group."""
    member = {"member_id": "m", "generation_id": 1, "group_instance_id": None}
    row = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"name": TOPIC, "partitions": [row]}]
    protocols = [{"name": "range", "metadata": b""}]
    timeouts = {"session_timeout": 30_000, "rebalance_timeout": 30_000}
    with Wire(*address) as wire:
        joined = wire.ask("join_group", 5, **member, **timeouts, group_id=GROUP, protocol_type="", protocols=protocols)
        commit = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        [topic] = wire.ask("offset_commit", 8, **commit, topics=topics)["topics"]
        [described] = wire.ask("describe_groups", 4, groups=[GROUP], include_authorized_operations=False)["groups"]
        joins = {"rebalance_timeout": 30_000, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
        beat = consumer_heartbeat_values("m", 0, group_id=CONSUMER_GROUP, **joins)
        values = {"group_ids": [CONSUMER_GROUP], "include_authorized_operations": False}
        [described_consumers] = wire.ask("consumer_group_describe", 1, **values)["groups"]
        return {
            "join_group": joined["error_code"],
            "sync_group": wire.ask("sync_group", 3, group_id=GROUP, **member, assignments=[])["error_code"],
            "heartbeat": wire.ask("heartbeat", 3, group_id=GROUP, **member)["error_code"],
            "offset_commit": topic["partitions"][0]["error_code"],
            "offset_fetch": wire.ask("offset_fetch", 5, group_id=GROUP, topics=None)["error_code"],
            "describe_groups": described["error_code"],
            "consumer_group_heartbeat": wire.ask("consumer_group_heartbeat", 1, **beat)["error_code"],
            "consumer_group_describe": described_consumers["error_code"],
            "list_groups": wire.ask("list_groups", 4, states_filter=[])["error_code"],
        }


def test_requests_about_a_group_get_error_14_until_its_partition_is_loaded(tmp_path: Path) -> None:
    """A heartbeat is answered as if nothing had happened, as in Kafka: the member is not to rejoin."""

    async def run() -> None:
        async with loading_node(tmp_path) as (address, gate):
            found = await asyncio.to_thread(answers, address)
            assert found == dict.fromkeys(found, LOADING) | {"heartbeat": "NONE"}
            gate.set()

            async def is_loaded() -> bool:
                return (await asyncio.to_thread(answers, address))["list_groups"] == "NONE"

            await until(is_loaded)
            loaded = await asyncio.to_thread(answers, address)
            for name in ("offset_commit", "offset_fetch", "consumer_group_heartbeat"):
                assert loaded[name] == "NONE", name
            assert LOADING not in loaded.values()

    asyncio.run(run())
