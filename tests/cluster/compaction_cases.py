"""Logs of a partition in a store, for tests of their compaction."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from compaction_helpers import ALWAYS, START_MS, BatchSpec, Replay, State, encoded, plain_batch

from callboard.runtime.cluster.compaction.compactor import Compactor
from callboard.runtime.cluster.content import read_content
from callboard.runtime.cluster.manifest import Manifest, Segment, Tail, create_manifest, newest_manifest
from callboard.runtime.cluster.segments import write_segment
from callboard.runtime.cluster.store import Store
from callboard.runtime.disk.memory import MemoryDisk
from callboard.runtime.log.compaction.job import CompactionReport
from callboard.runtime.log.compaction.swap import CompactionSettings
from callboard.runtime.log.format.batch import read_batches

PARTITION = 3
NAME = "__consumer_offsets-3"
EPOCH = 4
TAIL = Tail("a-1", 7)
FOLDER = Path("/scratch")

GARBAGE = [[plain_batch(("a", "1"), ("b", "1"))], [plain_batch(("a", "2"))], [plain_batch(("c", "1"))]]
"""The last segment is open. Of the closed ones, compaction drops the first record."""


def token() -> bytes:
    return os.urandom(8)


async def stored(store: Store, segments: Sequence[Sequence[BatchSpec]], partition: int = PARTITION) -> Manifest:
    """A partition with these segments. The last one is open."""
    manifest = Manifest(partition, 1, token().hex(), EPOCH, (), TAIL)
    written = [await added(store, manifest, segments[:index], segments[index]) for index in range(len(segments))]
    manifest = manifest._replace(segments=tuple(written))
    assert await create_manifest(store, manifest)
    return manifest


async def added(
    store: Store, manifest: Manifest, before: Sequence[Sequence[BatchSpec]], batches: Sequence[BatchSpec]
) -> Segment:
    """A segment that follows those before."""
    offset = sum(len(batch.records) or 1 for segment in before for batch in segment)
    data = []
    for batch in batches:
        data.append(encoded(batch, offset, START_MS + offset))
        offset += len(batch.records) or 1
    return await write_segment(store, manifest.partition, manifest.version, data, token())


async def replayed(store: Store, partition: int = PARTITION) -> State:
    """The state for whoever loads the partition. Checks that its segments follow each other."""
    manifest, replay = await newest_manifest(store, partition), Replay()
    for segment, data in await read_content(store, manifest):
        assert segment.base >= replay.end
        for batch in read_batches(data):
            replay.batch(batch)
        assert replay.end <= segment.end
    return replay.state()


async def record_offsets(store: Store, partition: int = PARTITION) -> list[int]:
    manifest = await newest_manifest(store, partition)
    contents = await read_content(store, manifest)
    return [offset for _, data in contents for batch in read_batches(data) for offset, _, _, _ in batch.records()]


async def compacted(
    store: Store, settings: CompactionSettings = ALWAYS, partition: int = PARTITION
) -> CompactionReport:
    return await Compactor(store, MemoryDisk(), FOLDER, settings, token).compact(partition, NAME)
