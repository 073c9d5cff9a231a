"""The content of a partition is loaded from its segments, in this process or in child processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest
from harness import async_test

from callboard.actors.records import OffsetRecord, OffsetValue
from callboard.runtime.cluster import content_loader
from callboard.runtime.cluster.content_loader import ContentLoader
from callboard.runtime.cluster.manifest import Manifest, create_manifest
from callboard.runtime.cluster.segments import write_segment
from callboard.runtime.cluster.store import StoreUnavailable
from callboard.runtime.loading.pool import LoadPool
from callboard.runtime.log.format.batch import encode_batch, frame_record
from callboard.runtime.log.format.records import encode
from callboard.runtime.log.pieces import LoadJob, LoadPiece, LoadReport, PackedGroups

from .memory_store import Memory, MemoryStore

GROUPS = [[f"group-{partition}-{number}" for number in range(3)] for partition in range(2)]


async def manifest_of(store: MemoryStore, partition: int) -> Manifest:
    """A segment for each group."""
    segments = []
    for offset, name in enumerate(GROUPS[partition]):
        record = OffsetRecord(name, "orders", 0, OffsetValue(7, -1, "", 5))
        batch = encode_batch(offset, 5, 5, [frame_record(0, 0, *encode(record))])
        segments.append(await write_segment(store, partition, 1, [batch], b"%08d" % offset))
    return Manifest(partition, 1, "token", 1, tuple(segments))


async def loaded(loader: ContentLoader, store: MemoryStore, removed: Sequence[int] = ()) -> dict[int, list[LoadPiece]]:
    """The pieces of each partition. ``removed``: the store lacks a segment of these."""
    pieces: dict[int, list[LoadPiece]] = {0: [], 1: []}

    async def load(partition: int) -> None:
        manifest = await manifest_of(store, partition)
        if partition in removed:
            await store.delete([manifest.segments[1].key])
            await create_manifest(store, manifest)
        job = LoadJob(partition, f"__consumer_offsets-{partition}", False, 0)
        await loader.load(job, manifest, lambda job, piece: pieces[job.partition].append(piece))

    await asyncio.gather(*map(load, pieces))
    return pieces


def groups_in(pieces: Sequence[LoadPiece]) -> list[str]:
    return sorted(name for piece in pieces if isinstance(piece, PackedGroups) for name in piece.groups)


@pytest.mark.parametrize("small_bytes", [10_000, -1], ids=["in this process", "in child processes"])
def test_partitions_are_loaded(small_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that a killed process has left are not read."""
    monkeypatch.setattr(content_loader, "SMALL_BYTES", small_bytes)
    left = tmp_path / "__consumer_offsets-0" / "00000000000000000009.log"
    left.parent.mkdir()
    record = OffsetRecord("stale", "orders", 0, OffsetValue(7, -1, "", 5))
    left.write_bytes(encode_batch(9, 5, 5, [frame_record(0, 0, *encode(record))]))

    async def run() -> dict[int, list[LoadPiece]]:
        store = MemoryStore(Memory())
        return await loaded(ContentLoader(store, tmp_path), store)

    pieces = asyncio.run(run())
    assert [groups_in(pieces[partition]) for partition in (0, 1)] == GROUPS
    assert all(isinstance(pieces[partition][-1], LoadReport) for partition in (0, 1))
    assert small_bytes > 0 or not any(tmp_path.rglob("*.log"))


def test_missing_segment_fails_its_partition_alone() -> None:
    async def run() -> dict[int, list[LoadPiece]]:
        store = MemoryStore(Memory())
        return await loaded(ContentLoader(store, None), store, removed=[1])

    pieces = asyncio.run(run())
    assert groups_in(pieces[0]) == GROUPS[0]
    [report] = pieces[1]
    assert isinstance(report, LoadReport)
    assert "is missing in the store" in report.failure


def test_child_processes_for_large_partitions_start_when_they_are_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected: list[int] = []
    monkeypatch.setattr(LoadPool, "expect", lambda _pool, jobs: expected.append(jobs))

    async def run(small_bytes: int) -> list[int]:
        expected.clear()
        monkeypatch.setattr(content_loader, "SMALL_BYTES", small_bytes)
        store = MemoryStore(Memory())
        for partition in (0, 1):
            await create_manifest(store, await manifest_of(store, partition))
        loader = ContentLoader(store, tmp_path)
        loader.expect([0, 7])  # 7 has no manifest, which its load will say
        await asyncio.sleep(0)
        loader.expect([0, 1])
        while not expected:
            await asyncio.sleep(0)
        store.list = store.get = AsyncMock(side_effect=AssertionError("they are known"))  # type: ignore[method-assign]
        loader.expect([1])
        await asyncio.sleep(0)
        assert loader._preparing is not None
        assert loader._preparing.done() and loader._preparing.exception() is None
        return list(expected)

    assert asyncio.run(run(10_000)) == [0]
    assert asyncio.run(run(-1)) == [2]


@async_test
async def test_expected_partitions_of_a_store_that_does_not_answer_are_left_to_their_loads(tmp_path: Path) -> None:
    store = Mock(list=AsyncMock(side_effect=StoreUnavailable("down")))
    loader = ContentLoader(store, tmp_path)
    loader.expect([0, 1])
    while loader._preparing is not None and not loader._preparing.done():
        await asyncio.sleep(0)
    assert loader._preparing is not None
    assert loader._preparing.exception() is None


def test_first_load_of_a_node_waits_for_no_import() -> None:
    """It took a fifth of a second, in which nobody served the partition."""
    reader = "callboard.runtime.log.reading.newest"
    program = f"import sys, {content_loader.__name__}; print({reader!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
