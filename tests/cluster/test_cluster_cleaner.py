"""The cleaner of a node in a cluster, and its child process."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from compaction_helpers import NOW_MS

from callboard.runtime.cluster import manifest as manifests
from callboard.runtime.cluster.compaction.cleaner import ChildWorkers, ClusterCleaner
from callboard.runtime.cluster.compaction.job import ClusterCompactionJob, run
from callboard.runtime.cluster.engines import open_store
from callboard.runtime.cluster.manifest import Manifest, newest_manifest
from callboard.runtime.common.child_process import ChildEnded
from callboard.runtime.log.compaction.swap import CompactionSettings
from callboard.runtime.settings.table import Settings

from .compaction_cases import GARBAGE, NAME, PARTITION, replayed, stored
from .named_bucket import Bucket
from .node_thread import COUNTS, NodeThread, node_thread
from .postgres_server import PostgresServer

SETTINGS = Settings()
KEY = b"k"
NUMBERS = itertools.count(PARTITION)
"""Of partitions: tests share a server."""


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store without a cluster, of the engine that is the parameter."""
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        return postgres.url()
    if request.param == "objects":
        objects: Bucket = request.getfixturevalue("objects")
        return objects.url()
    return tmp_path.as_uri().replace("file:", f"{request.param}:")


@pytest.mark.parametrize("url", ["file", "local", "postgres", "objects"], indirect=True)
def test_job_compacts_a_partition_in_the_store_of_each_engine(url: str) -> None:
    partition = next(NUMBERS)

    async def state(*, is_new: bool) -> tuple[object, Manifest]:
        store = open_store(url, "test")
        try:
            if is_new:
                await stored(store, GARBAGE, partition)
            return await replayed(store, partition), await newest_manifest(store, partition)
        finally:
            await store.close()

    before, _ = asyncio.run(state(is_new=True))
    report = run(ClusterCompactionJob(url, partition, NAME, CompactionSettings(NOW_MS, "test", 0.1)))
    after, newest = asyncio.run(state(is_new=False))
    assert (report.status, report.records_before, report.records_after) == ("compacted", 3, 2), report.reason
    assert (after, newest.version, newest.segments[0].is_compacted) == (before, 2, True)


def test_job_reports_a_store_that_cannot_be_opened(tmp_path: Path) -> None:
    job = ClusterCompactionJob("rain://x", 0, NAME, CompactionSettings(NOW_MS, "test"))
    report = run(job)
    assert (report.status, report.partition) == ("failed", NAME)
    assert report.reason.startswith(f"{NAME}: no store has a URL like 'rain://x'")


class FakeClock:
    now_s = 0.0


def known_manifest(thread: NodeThread) -> Manifest:
    session = thread.nodes["a"].session
    assert session is not None
    return session.log.held[0].manifest


def commit_to_segments(thread: NodeThread, count: int) -> None:
    """Each commit is in a segment of its own."""
    for value in range(1, count + 1):
        segments = len(known_manifest(thread).segments)
        thread.commit(0, KEY, value)
        thread.wait(lambda segments=segments: len(known_manifest(thread).segments) > segments)  # type: ignore[misc]


def test_owner_compacts_what_is_due_in_a_child_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "MERGED_BYTES_MAX", 10)
    url = (tmp_path / "store").as_uri()
    (tmp_path / "store").mkdir()
    with node_thread(url) as thread:
        thread.start("a")
        thread.wait_until_balanced()
        cleaner = ClusterCleaner(thread.nodes["a"], ChildWorkers(url, COUNTS, tmp_path / "scratch"), SETTINGS)
        thread.call(cleaner.compact_due_partitions())
        assert cleaner.runs == 0, "nothing is due, and no process is started"
        commit_to_segments(thread, 4)
        thread.call(cleaner.compact_due_partitions())
        assert cleaner.runs == 1
        clean, *others = known_manifest(thread).segments
        assert clean.is_compacted, "the node knows the manifest of its child"
        assert len(others) <= 1
        thread.call(cleaner.compact_due_partitions())
        assert cleaner.runs == 1
        commit_to_segments(thread, 2)
        assert known_manifest(thread).segments[0] == clean, "checkpoints go on from it"
        assert not any((tmp_path / "scratch").rglob("*.log"))


def test_owner_compacts_on_demand_whatever_the_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "MERGED_BYTES_MAX", 10)
    url = tmp_path.as_uri()
    with node_thread(url) as thread:
        thread.start("a")
        thread.wait_until_balanced()
        settings = Settings(log_cleaner_min_cleanable_ratio=1.0)
        cleaner = ClusterCleaner(thread.nodes["a"], ChildWorkers(url, COUNTS, tmp_path / "scratch"), settings)
        assert thread.call(cleaner.compactable()) == []
        commit_to_segments(thread, 4)
        thread.call(cleaner.compact_due_partitions())
        assert cleaner.runs == 0
        [found] = thread.call(cleaner.compactable())
        assert (found.name, found.clean_bytes, found.dirty_bytes > 0) == ("__consumer_offsets-0", 0, True)

        async def compact_now() -> None:
            cleaner.compact_now()
            while cleaner.is_running:
                await asyncio.sleep(0.02)

        thread.call(compact_now())
        assert cleaner.runs == 1
        assert known_manifest(thread).segments[0].is_compacted


def test_partition_that_could_not_be_compacted_is_not_tried_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "MERGED_BYTES_MAX", 10)
    clock = FakeClock()
    with node_thread(tmp_path.as_uri()) as thread:
        thread.start("a")
        thread.wait_until_balanced()
        workers = ChildWorkers("rain://x", COUNTS, tmp_path / "scratch")
        cleaner = ClusterCleaner(thread.nodes["a"], workers, SETTINGS, lambda: clock.now_s)
        commit_to_segments(thread, 3)
        for clock.now_s, runs in ((0.0, 1), (599.0, 1), (600.0, 2)):
            thread.call(cleaner.compact_due_partitions())
            assert cleaner.runs == runs


def test_child_that_is_killed_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "MERGED_BYTES_MAX", 10)
    url = tmp_path.as_uri()
    with node_thread(url) as thread:
        thread.start("a")
        thread.wait_until_balanced()
        workers = ChildWorkers(url, COUNTS, tmp_path / "scratch")
        cleaner = ClusterCleaner(thread.nodes["a"], workers, SETTINGS)
        commit_to_segments(thread, 3)
        before = known_manifest(thread)

        async def compact_and_kill() -> None:
            running = asyncio.create_task(cleaner.compact_due_partitions())
            while not running.done():
                workers.kill()  # once there is a process
                await asyncio.sleep(0.001)
            with pytest.raises(ChildEnded):
                await running

        thread.call(compact_and_kill())
        assert known_manifest(thread).segments == before.segments
