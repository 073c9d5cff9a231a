"""The whole node: a restart restores its state, and a stop answers or disconnects every waiting request."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from harness import (
    Client,
    MemoryClient,
    NodeHarness,
    async_test,
    commit_values,
    committed_partition,
    correlation_id_of,
    frame,
    heartbeat_values,
    join_and_sync,
    join_values,
    offsets,
    running_node,
    topic_id,
)
from peers.wire import Hangup, decode

from callboard.runtime.common.errors import StartError
from callboard.runtime.loading import local_store as loading_module
from callboard.runtime.loading.sink import LoadSink
from callboard.runtime.node import node as node_module
from callboard.runtime.node.node import Node
from callboard.runtime.settings.address import Address
from callboard.runtime.settings.listeners import PLAINTEXT, Listener
from callboard.runtime.settings.table import Options, Settings

LATEST = -1


async def describe_all_groups(client: Client) -> dict[str, Any]:
    """The description and the offsets of each group, by group id."""
    groups = (await client.ask("list_groups", states_filter=[], types_filter=[]))["groups"]
    group_ids = sorted(group["group_id"] for group in groups)
    response = await client.ask("describe_groups", groups=group_ids, include_authorized_operations=False)
    return {group["group_id"]: (group, await offsets(client, group["group_id"])) for group in response["groups"]}


async def fetch_end_offset(client: Client, topic: str, partition: int) -> int:
    request = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": LATEST}
    response = await client.ask(
        "list_offsets", 7, replica_id=-1, isolation_level=0, topics=[{"name": topic, "partitions": [request]}]
    )
    [partition_response] = response["topics"][0]["partitions"]
    assert partition_response["error_code"] == "NONE"
    offset: int = partition_response["offset"]
    return offset


@async_test
async def test_restart_restores_groups_members_offsets_and_topics(tmp_path: Path) -> None:
    """Groups, members, assignments, offsets, topics and their ids are restored; a member continues."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        assert await describe_all_groups(client) == {}
        member = await join_and_sync(client, "members", group_instance_id="i")
        await client.ask("offset_commit", 9, **commit_values("members", member, 1000))
        await client.ask("offset_commit", 9, **commit_values("simple", offset=7))
        await client.ask("offset_commit", 9, **commit_values("deleted"))
        await client.ask("delete_groups", groups_names=["deleted"])
        before, ids = await describe_all_groups(client), [topic_id(harness, name) for name in "tu"]
        cluster_id = harness.node.services.cluster.cluster_id
        assert set(before) == {"members", "simple"}
        for _ in range(2):  # the second restart restores the same
            await harness.restart()
            client = await harness.connect()
            assert await describe_all_groups(client) == before
            assert [topic_id(harness, name) for name in "tu"] == ids
            assert harness.node.services.cluster.cluster_id == cluster_id
            assert await fetch_end_offset(client, "t", 0) == 1000  # a topic ends at or above every committed offset
            heartbeat = {**heartbeat_values("members", member), "group_instance_id": "i"}
            assert (await client.ask("heartbeat", **heartbeat))["error_code"] == "NONE"
        response = await client.ask("offset_commit", 9, **commit_values("members", member, 1001))
        assert response["topics"][0]["partitions"][0]["error_code"] == "NONE"
        assert (await offsets(client, "members"))["t", 0] == 1001


@async_test
async def test_stop_answers_parked_join_with_not_coordinator(tmp_path: Path) -> None:
    """A join that waits for its group gets NOT_COORDINATOR; then the connection is closed."""
    async with running_node(tmp_path) as harness:
        first, second = await harness.connect(), await harness.connect()
        await join_and_sync(first, "g")
        new_member = await second.ask("join_group", **join_values("g"))
        second.write(frame("join_group", **join_values("g", new_member["member_id"])))
        state = ""
        while state != "PreparingRebalance":
            response = await first.ask("describe_groups", groups=["g"], include_authorized_operations=False)
            state = response["groups"][0]["group_state"]
        await harness.node.stop()
        [join_response] = await second.responses_until_disconnect()
        assert decode("join_group", 9, join_response)["error_code"] == "NOT_COORDINATOR"
        assert await first.responses_until_disconnect() == []
        with pytest.raises(OSError):
            await harness.connect()
        await harness.start()  # the folder is unlocked again
        response = await (await harness.connect()).ask(
            "describe_groups", groups=["g"], include_authorized_operations=False
        )
        assert response["groups"][0]["group_state"] == "Stable"


@async_test
async def test_connection_after_stop_reading_does_not_resume(tmp_path: Path) -> None:
    """It does not resume when its last responses are sent: a new request would come after the stop."""
    async with running_node(tmp_path) as harness:
        member = await join_and_sync(await harness.connect(), "g")
        client = MemoryClient(harness.node)
        client.feed(frame("heartbeat", 4, **heartbeat_values("g", member)) * 3)
        client.connection.stop_reading()
        await client.answered(3)
        assert client.is_paused
        client.connection.resume_writing()
        assert client.is_paused
        client.close()


@pytest.mark.parametrize("in_one_group", [True, False])
@async_test
async def test_stop_under_load_loses_no_acknowledged_commit(tmp_path: Path, in_one_group: bool) -> None:
    """A hundred commits are in flight: each is answered or its connection is closed; no acknowledged one is lost."""
    async with running_node(tmp_path, {"topics": (("wide", 100),)}) as harness:
        clients = [await harness.connect() for _ in range(4)]
        for number in range(100):
            topic = {"name": "wide", "partitions": [committed_partition(number)]}
            values = commit_values("g" if in_one_group else f"g{number}", topics=[topic])
            clients[number % 4].write(frame("offset_commit", 9, correlation_id=number, **values))
        while not any(connection.requests.calls for connection in harness.node.connections):
            await asyncio.sleep(0)
        await harness.node.stop()
        acknowledged = set()
        for client in clients:
            for response in await client.responses_until_disconnect():
                [topic] = decode("offset_commit", 9, response)["topics"]
                if topic["partitions"][0]["error_code"] == "NONE":
                    acknowledged.add(correlation_id_of(response))
        await harness.start()
        reader, fetched = await harness.connect(), set()
        for group in ["g"] if in_one_group else [f"g{number}" for number in range(100)]:
            fetched |= {partition for _topic, partition in await offsets(reader, group)}
        assert acknowledged
        assert acknowledged <= fetched


# Starts that are refused ----------------------------------------------------------------------------------------------


async def start_another(folder: Path, **options: Any) -> Node:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return await Node.open(Settings(), Options(data=folder, **options), listening_sockets={PLAINTEXT: listening})


@async_test
async def test_second_node_on_same_folder_is_refused(tmp_path: Path) -> None:
    """It is refused in the same process too; the first node goes on with its folder and its members."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        member = await join_and_sync(client, "g")
        for _ in range(2):
            with pytest.raises(StartError, match=str(tmp_path)):
                await start_another(tmp_path)
        assert (await client.ask("heartbeat", **heartbeat_values("g", member)))["error_code"] == "NONE"
        await client.ask("offset_commit", 9, **commit_values("g", member))
        await harness.restart()
        client = await harness.connect()
        assert await offsets(client, "g") == {("t", 0): 42}
        assert (await client.ask("heartbeat", **heartbeat_values("g", member)))["error_code"] == "NONE"


@async_test
async def test_failed_start_releases_the_folder(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="a_b"):
        await start_another(tmp_path, topics=(("a.b", 1), ("a_b", 1)))
    async with running_node(tmp_path) as harness:
        await join_and_sync(await harness.connect(), "g")


# While it runs --------------------------------------------------------------------------------------------------------


@async_test
async def test_sync_of_topic_ends_is_retried_after_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The periodic sync goes on after the disk was full for a short time."""
    monkeypatch.setattr(node_module, "TOPICS_SYNC_INTERVAL_S", 0.001)
    async with running_node(tmp_path) as harness:
        loop, synced, calls = asyncio.get_running_loop(), asyncio.Event(), []

        def sync() -> str:
            calls.append("sync")
            if len(calls) < 3:
                raise OSError(28, "No space left on device")
            loop.call_soon_threadsafe(synced.set)
            return ""

        monkeypatch.setattr(harness.node.topics._ends, "sync", sync)
        await synced.wait()


@async_test
async def test_stop_closes_log_if_topics_cannot_be_synced(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        await (await harness.connect()).ask("offset_commit", 9, **commit_values("g", offset=7))
        close = harness.node.topics.files.close

        def close_and_fail() -> None:
            close()
            raise OSError(5, "the disk is gone")

        harness.node.topics.files.close = close_and_fail  # type: ignore[method-assign]
        with pytest.raises(OSError, match="the disk is gone"):
            await harness.node.stop()
        assert (tmp_path / ".clean_shutdown").exists()
        await harness.start()
        assert await offsets(await harness.connect(), "g") == {("t", 0): 7}


@async_test
async def test_stop_closes_log_if_loading_cannot_be_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_load_sink: LoadSink) -> None:
        raise ValueError("a bug")

    async with running_node(tmp_path) as harness:
        await (await harness.connect()).ask("offset_commit", 9, **commit_values("g", offset=7))
        with monkeypatch.context() as patch:
            patch.setattr(loading_module, "AT_ONCE_BYTES", -1)
            patch.setattr(LoadSink, "finish", fail)
            await harness.restart()
            assert not (tmp_path / ".clean_shutdown").exists()
            await harness.node.wait_until_loaded()
            assert harness.node.is_loading
            await harness.node.stop()
            assert (tmp_path / ".clean_shutdown").exists()
        await harness.start()
        assert await offsets(await harness.connect(), "g") == {("t", 0): 7}


def advertised_address(node: Node) -> tuple[str, int]:
    return node.services.cluster.addresses[PLAINTEXT]


@async_test
async def test_find_coordinator_returns_advertised_address(tmp_path: Path) -> None:
    async with running_node(tmp_path / "listened") as harness:
        assert advertised_address(harness.node) == ("127.0.0.1", harness.port)
    async with running_node(
        tmp_path / "advertised", {"listeners": (Listener(advertised=Address("host.example", 9)),)}
    ) as harness:
        assert advertised_address(harness.node) == ("host.example", 9)


@async_test
async def test_stop_closes_listener_and_connections(tmp_path: Path) -> None:
    """Open connections are closed with the node, and none stays registered."""
    async with running_node(tmp_path) as harness:
        clients = [await harness.connect() for _ in range(20)]
        for client in clients:
            await client.ask("api_versions", 0)
        stopping: NodeHarness = harness
        node = stopping.node
        await harness.restart()
        for client in clients:
            with pytest.raises(Hangup):
                await client.receive_frame()
        while node.connections:
            await asyncio.sleep(0)
