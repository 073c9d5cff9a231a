"""No sync of a file blocks the event loop of a server: a slow disk delays only requests that need the sync."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from harness import (
    TOPICS,
    Client,
    async_test,
    commit_values,
    heartbeat_values,
    join_and_sync,
    offsets,
    random_entity,
)
from peers.wire import message_type
from request_helpers import API_VERSIONS, encode_body, encode_request
from topic_request_helpers import create, grow, metadata
from topics_helpers import producer_batch

from callboard.runtime.disk import disk as disk_module
from callboard.runtime.disk.disk import Disk
from callboard.runtime.node.environment import CheckpointTriggers, Environment
from callboard.runtime.node.node import Node
from callboard.runtime.settings.listeners import PLAINTEXT
from callboard.runtime.settings.table import Options, Settings
from callboard.runtime.topics.producer_ids import PRODUCER_ID_BLOCK

BROKER = 4


class DiskCalls:
    """Records each call that waits for a disk: its name and files, and whether the thread of the loop made it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop_thread = 0
        self.on_loop: list[str] = []
        self.on_other_threads: list[str] = []
        for name in ("fsync", "fdatasync", "sync", "rename", "replace", "link"):
            monkeypatch.setattr(os, name, self._recorded(name, getattr(os, name)))
        monkeypatch.setattr(disk_module, "_sync_data", self._recorded("fdatasync", disk_module._sync_data))

    def _recorded(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def record_and_call(*args: Any, **kwargs: Any) -> Any:
            description = " ".join([name, *(Path(arg).name for arg in args if isinstance(arg, str | Path))])
            is_on_loop = threading.get_ident() == self.loop_thread
            (self.on_loop if is_on_loop else self.on_other_threads).append(description)
            return call(*args, **kwargs)

        return record_and_call


@asynccontextmanager
async def running_node(
    folder: Path, environment: Environment, **settings: Any
) -> AsyncIterator[tuple[Node, list[Client]]]:
    """A running node and three connections to it."""
    defaults = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 2}
    options = Options(data=folder, topics=TOPICS)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    node = await Node.open(Settings(**{**defaults, **settings}), options, environment, {PLAINTEXT: listener})
    clients = [Client(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(3)]
    try:
        yield node, clients
    finally:
        for client in clients:
            await client.close()
        await node.stop()


async def alter_configs(client: Client, value: str) -> str:
    config = {"name": "group.max.size", "config_operation": 0, "value": value}
    resource = {"resource_type": BROKER, "resource_name": "1", "configs": [config]}
    response = await client.ask("incremental_alter_configs", 1, resources=[resource], validate_only=False)
    return str(response["responses"][0]["error_code"])


async def produce(client: Client, topic: str) -> str:
    partition = {"index": 0, "records": producer_batch(2)}
    topics = [{"name": topic, "partition_data": [partition]}]
    response = await client.ask("produce", 9, transactional_id=None, acks=-1, timeout=1000, topic_data=topics)
    return str(response["responses"][0]["partition_responses"][0]["error_code"])


async def init_producer(client: Client, transactional_id: str | None = None) -> dict[str, Any]:
    values = {"transactional_id": transactional_id, "transaction_timeout": 60_000, "producer_id": -1}
    response = await client.ask("init_producer_id", 4, producer_epoch=-1, **values)
    assert response["error_code"] == "NONE", response
    return {name: response[name] for name in ("producer_id", "producer_epoch")}


async def delete(client: Client, *names: str) -> list[str]:
    response = await client.ask("delete_topics", 5, topic_names=list(names), timeout=1000)
    return [result["error_code"] for result in response["responses"]]


async def change_everything(client: Client) -> None:
    """Send each kind of request that writes to the disk."""
    member = await join_and_sync(client, "g")
    await client.ask("offset_commit", 9, **commit_values("g", member))
    await client.ask("heartbeat", **heartbeat_values("g", member))
    assert await create(client, "a", "b") == ["NONE", "NONE"]
    assert await metadata(client, "created-by-metadata", creates=True) == "NONE"
    assert await grow(client, "a", 700) == "NONE"
    assert await produce(client, "a") == "NONE"
    assert await alter_configs(client, "77") == "NONE"
    ids = [(await init_producer(client))["producer_id"] for _ in range(PRODUCER_ID_BLOCK + 5)]
    assert len(set(ids)) == len(ids)
    producer = await init_producer(client, "tx")
    await client.ask("add_offsets_to_txn", 3, transactional_id="tx", group_id="h", **producer)
    await client.ask("end_txn", 3, transactional_id="tx", committed=True, **producer)
    assert await delete(client, "a", "b") == ["NONE", "NONE"]
    await client.ask("delete_groups", 2, groups_names=["h"])


async def ask_at_random(port: int, barrier: Client, rng: Random) -> None:
    """Send each version of each API with random values."""
    for api, version in API_VERSIONS:
        types = message_type(api.name, version, "request")
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        client.write(encode_request(api.key, version, encode_body(random_entity(types, rng)), types.__flexible__))
        for _ in range(3):
            await barrier.ask("api_versions", 0)
        await client.close()


@async_test
async def test_no_sync_or_rename_runs_on_the_loop_while_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_calls = DiskCalls(monkeypatch)
    environment = Environment(checkpoints=CheckpointTriggers(20_000, 50))
    async with running_node(tmp_path, environment, offsets_topic_segment_bytes=2000, log_cleaner_enable=False) as (
        node,
        clients,
    ):
        disk_calls.loop_thread = threading.get_ident()
        await change_everything(clients[0])
        for number in range(200):
            await clients[1].ask("offset_commit", 9, **commit_values(f"g{number % 7}", offset=number))
        (tmp_path / "topics.ends").unlink()
        (tmp_path / "topics.json").unlink()
        node.topics.files.check()
        assert await create(clients[0], "after-deletion") in (["NONE"], ["KAFKA_STORAGE_ERROR"])
        while not ((tmp_path / "topics.ends").exists() and (tmp_path / "topics.json").exists()):
            await asyncio.sleep(0.01)

        await ask_at_random(node.services.cluster.addresses[PLAINTEXT].port, clients[2], Random(7))
        disk_calls.loop_thread = 0
    assert disk_calls.on_loop == []
    for expected in ("topics.json", "topics.ends", "settings.json"):
        assert f"rename {expected}.new {expected}" in disk_calls.on_other_threads, "other threads are recorded too"


class SlowDisk(Disk):
    """A disk on which the sync of the files named in ``slow_names`` waits for ``gate``."""

    def __init__(self) -> None:
        self.slow_names: tuple[str, ...] = ()
        self.gate = threading.Event()
        self.is_waiting = threading.Event()
        self._names: dict[int, str] = {}

    def open(self, path: Path, flags: int) -> int:
        fd = super().open(path, flags)
        self._names[fd] = path.name
        return fd

    def sync(self, fd: int) -> None:
        if self._names.get(fd, "").startswith(self.slow_names or ("-",)):
            self.is_waiting.set()
            self.gate.wait()
        super().sync(fd)

    async def wait_for_sync(self) -> None:
        """Return when a sync waits for the gate."""
        await asyncio.to_thread(self.is_waiting.wait)

    def close_gate(self, *names: str) -> None:
        self.slow_names = names
        self.is_waiting.clear()
        self.gate.clear()


CHANGES: dict[str, Callable[[Client], Any]] = {
    "create_topics": lambda client: create(client, "new"),
    "auto-creation by metadata": lambda client: metadata(client, "new", creates=True),
    "delete_topics": lambda client: delete(client, "u"),
    "create_partitions": lambda client: grow(client, "t", 9),
    "init_producer_id": init_producer,
    "init_producer_id of a transaction": lambda client: init_producer(client, "tx"),
    "incremental_alter_configs": lambda client: alter_configs(client, "9"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@async_test
async def test_requests_are_answered_while_a_change_waits_for_the_disk(
    tmp_path: Path, change: Callable[[Client], Any]
) -> None:
    disk = SlowDisk()
    async with running_node(tmp_path, Environment(disk=disk)) as (_, [first, second, third]):
        member = await join_and_sync(second, "g")
        disk.close_gate("topics.json", "topics.ends", "settings.json")
        changing = asyncio.ensure_future(change(first))
        try:
            await disk.wait_for_sync()
            assert (await second.ask("heartbeat", **heartbeat_values("g", member)))["error_code"] == "NONE"
            await second.ask("offset_commit", 9, **commit_values("g", member, offset=5))
            assert await offsets(second, "g") == {("t", 0): 5}
            assert await produce(second, "t") == "NONE"
            assert await metadata(third, "new", creates=False) == "UNKNOWN_TOPIC_OR_PARTITION", "it is not durable"
            assert await metadata(third, "u", creates=False) == "NONE", "its deletion is not durable"
            assert not changing.done()
        finally:
            disk.gate.set()
        await changing


@async_test
async def test_changes_during_a_write_share_the_next_write(tmp_path: Path) -> None:
    disk = SlowDisk()
    async with running_node(tmp_path, Environment(disk=disk)) as (_, [first, second, third]):
        disk.close_gate("topics.json")
        creating = asyncio.ensure_future(create(first, "a"))
        await disk.wait_for_sync()
        others = [asyncio.ensure_future(create(second, "b", "c")), asyncio.ensure_future(create(third, "c", "a"))]
        await asyncio.sleep(0.01)  # the assertions hold whether or not both have arrived by then
        disk.gate.set()
        assert await creating == ["NONE"]
        b, c = await others[0]
        again = await others[1]
        assert b == "NONE"
        assert again[1] == "TOPIC_ALREADY_EXISTS"
        assert sorted([c, again[0]]) == ["NONE", "TOPIC_ALREADY_EXISTS"]


@async_test
async def test_stop_answers_change_that_waits_for_the_disk(tmp_path: Path) -> None:
    disk = SlowDisk()
    async with running_node(tmp_path, Environment(disk=disk)) as (node, [first, *_]):
        disk.close_gate("topics.json")
        creating = asyncio.ensure_future(create(first, "a"))
        await disk.wait_for_sync()
        stopping = asyncio.ensure_future(node.stop())
        await asyncio.sleep(0)
        disk.gate.set()
        assert await creating == ["NONE"]
        await stopping
    restarted = await Node.open(Settings(), Options(data=tmp_path))
    try:
        assert restarted.topics.get("a") is not None
    finally:
        await restarted.stop()
