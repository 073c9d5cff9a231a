"""A node in memory: disk, log and actors on one thread, with crashes and restarts."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pykka
import pytest

from callboard import Coordinator
from callboard.actors.errors import ErrorCode
from callboard.actors.messages import Commit, Fetched, JoinGroup, OffsetCommit, OffsetFetch, Protocol
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.group_commit import immediate_outcome
from callboard.runtime.disk.memory import MemoryDisk
from callboard.runtime.disk.threads import InlineThreads, OwnThreads, Threads
from callboard.runtime.engine.dispatcher import LoopDispatcher
from callboard.runtime.kafka.services import Origin
from callboard.runtime.log.journal import SyncPolicy
from callboard.runtime.node.environment import MEMORY, Environment, in_memory
from callboard.runtime.node.node import Node
from callboard.runtime.settings.dynamic import SettingValues
from callboard.runtime.settings.table import Options, Settings
from callboard.runtime.testing.disk.faulty import FaultyDisk

HERE = Origin("test", "/127.0.0.1", 1)
SETTINGS = Settings(group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=4)
OPTIONS = Options(data=MEMORY, topics=(("jobs", 2),))


class SeededRandom:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def uuid(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))


async def start_node(environment: Environment, settings: Settings = SETTINGS) -> Node:
    return await Node.open(settings, OPTIONS, environment)


async def commit(node: Node, offset: int, group: str = "g") -> None:
    answer = await node.local.ask(OffsetCommit(group, "", None, -1, (Commit("jobs", 0, offset, -1, ""),)), HERE)
    assert answer.errors == (ErrorCode.NONE,)


async def committed(node: Node, group: str = "g") -> int:
    answer: Fetched = await node.local.ask(OffsetFetch(group, None), HERE)
    [(_, [row])] = answer.topics
    return row.offset


@pytest.mark.parametrize(("sync", "durability"), [("always", "synced"), ("interval", "written"), ("none", "written")])
def test_commit_answer_has_the_durability_of_the_sync_policy(sync: SyncPolicy, durability: str) -> None:
    """Also in the result of a member's ``commit``."""

    async def run() -> None:
        jobs = {"jobs": 1}
        coordinator = Coordinator(sync=sync, topics=jobs, group_initial_rebalance_delay_ms=0)
        async with coordinator, coordinator.member("g", resources=jobs) as member:
            async for assignment in member.assignments():
                if assignment.shards:
                    assert (await assignment.shards[0].commit(3)).durability == durability
                    return

    asyncio.run(run())


def with_size(size: int, broker: SettingValues, all_brokers: SettingValues) -> tuple[SettingValues, SettingValues]:
    return {**broker, "group_max_size": size}, all_brokers


@pytest.mark.parametrize("end", ["kill", "crash"])
def test_acknowledged_commits_survive_repeated_crashes(end: str) -> None:
    """Also topics with ids and end offsets, producer ids, the cluster id, and changed settings."""

    async def scenario() -> None:
        environment, producer_id, before = in_memory(FaultyDisk(seed=7)), -1, None
        for incarnation in range(20):
            node = await start_node(environment)
            topic = node.topics.get("jobs")
            assert topic is not None
            ids = node.services.cluster.cluster_id, topic.topic_id
            assert before in (None, ids)
            before = ids
            if incarnation:
                assert await committed(node) == incarnation - 1
                assert node.settings.group_max_size == incarnation
            assert node.topics.new_producer_id() > producer_id
            producer_id = node.topics.new_producer_id()
            await commit(node, incarnation)
            assert immediate_outcome(partial(node.configs.change, partial(with_size, incarnation + 1))) is None
            node.halt()
            environment = replace(environment, disk=getattr(environment.disk, end)())

    asyncio.run(scenario())


@pytest.mark.parametrize("threads", [None, OwnThreads, InlineThreads])
def test_node_after_a_crash_on_a_real_folder_has_all_acknowledged_commits(
    tmp_path: Path, threads: Callable[[], Threads] | None
) -> None:
    """The halted node's threads end and its lock is released; the next node recovers the log."""

    async def scenario() -> None:
        threads_before = set(threading.enumerate())
        for incarnation in range(3):
            options = Options(data=tmp_path, topics=(("jobs", 2),))
            node = await Node.open(SETTINGS, options, Environment(threads=threads))
            if incarnation:
                assert await committed(node) == incarnation - 1
            await commit(node, incarnation)
            node.halt()
            assert not (tmp_path / ".clean_shutdown").exists()
            assert not [thread for thread in set(threading.enumerate()) - threads_before if "log" in thread.name]

    asyncio.run(scenario())


def test_disk_can_be_reused_after_a_clean_stop() -> None:
    async def scenario() -> None:
        environment = in_memory()
        for incarnation in range(3):
            node = await start_node(environment)
            if incarnation:
                assert await committed(node) == incarnation - 1
            await commit(node, incarnation)
            await node.stop()
            assert environment.disk.kind(MEMORY / ".clean_shutdown") == "file"

    asyncio.run(scenario())


def test_node_in_memory_starts_no_thread_and_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It also opens no real file."""

    def forbidden(*_args: Any, **_kwargs: Any) -> Any:
        raise AssertionError("a node in memory must not use files or threads")

    async def scenario() -> None:
        for name in ("open", "make_folder", "rename", "sync_folder"):
            monkeypatch.setattr(Disk, name, forbidden)
        monkeypatch.setattr(threading.Thread, "start", forbidden)
        environment = in_memory()
        for _ in range(2):
            node = await start_node(environment, replace(SETTINGS, log_cleaner_backoff_ms=1))
            await commit(node, 3)
            await node.stop()
        assert node.compactions == 0

    asyncio.run(scenario())
    assert not MEMORY.exists()


def test_same_random_seed_gives_the_same_ids() -> None:
    async def ids_of_node(seed: int) -> list[Any]:
        node = await start_node(replace(in_memory(), random=SeededRandom(seed)))
        topic = node.topics.get("jobs")
        assert topic is not None
        join = JoinGroup("g", "", None, "c", "/h", 10_000, 10_000, "consumer", (Protocol("range", b""),), False, False)
        joined = await node.local.ask(join, HERE)
        await node.stop()
        return [node.services.cluster.cluster_id, topic.topic_id, joined.member_id]

    first, again, other = (asyncio.run(ids_of_node(seed)) for seed in (1, 1, 2))
    assert first == again
    assert all(first_id != other_id for first_id, other_id in zip(first, other, strict=True))


def test_actors_run_on_the_given_dispatcher() -> None:
    dispatchers: list[LoopDispatcher] = []

    def create_dispatcher(loop: asyncio.AbstractEventLoop) -> LoopDispatcher:
        dispatchers.append(LoopDispatcher(loop))
        return dispatchers[-1]

    async def scenario() -> None:
        node = await start_node(replace(in_memory(), dispatcher=create_dispatcher))
        assert [node.actors.system.dispatcher] == dispatchers
        await commit(node, 1)
        await node.stop()

    asyncio.run(scenario())


def test_halted_node_does_nothing_more() -> None:
    """No timer fires, no request is answered, and nothing is written to the disk."""

    async def scenario() -> None:
        environment = in_memory(FaultyDisk())
        node = await start_node(environment)
        join = JoinGroup("g", "", None, "c", "/h", 6_000, 10_000, "consumer", (Protocol("range", b""),), True, False)
        await node.local.ask(join, HERE)  # starts a session timer
        request = node.local.ask(OffsetCommit("g", "", None, -1, (Commit("jobs", 0, 1, -1, ""),)), HERE)
        disk: Any = environment.disk
        node.halt()
        changes = disk.faults.changes
        with pytest.raises(pykka.ActorDeadError):
            await request
        for _ in range(10):
            await asyncio.sleep(0)
        assert disk.faults.changes == changes
        assert node.actors.system.actors() == []
        assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    asyncio.run(scenario())


def test_log_in_memory_is_loaded_in_this_process_at_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child process could not read a disk in memory."""

    async def scenario() -> None:
        monkeypatch.setattr("callboard.runtime.loading.local_store.AT_ONCE_BYTES", -1)
        environment = in_memory()
        node = await start_node(environment)
        for number in range(50):
            await commit(node, number, f"g{number}")
        node.halt()
        node = await start_node(replace(environment, disk=disk_of(environment).for_next_process()))
        assert not node.is_loading
        assert [await committed(node, f"g{number}") for number in range(50)] == list(range(50))
        await node.stop()

    asyncio.run(scenario())


def disk_of(environment: Environment) -> MemoryDisk:
    assert isinstance(environment.disk, MemoryDisk)
    return environment.disk


# Disk ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_real", [True, False], ids=["real", "memory"])
def test_disk_kind_of_file_folder_link_and_missing_path(tmp_path: Path, is_real: bool) -> None:
    disk, folder = (Disk(), tmp_path) if is_real else (MemoryDisk(), MEMORY)
    disk.make_folder(folder)
    path = folder / "file"
    disk.close(disk.open(path, os.O_RDWR | os.O_CREAT))
    kinds = [disk.kind(entry) for entry in (Path("/"), folder, path, folder / "none", path / "below")]
    assert kinds == ["folder", "folder", "file", "nothing", "nothing"]
    if is_real:
        (folder / "link").symlink_to(folder / "none")
        assert disk.kind(folder / "link") == "broken link"
