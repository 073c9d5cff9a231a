"""The content of a partition: the bytes of its segments."""

from __future__ import annotations

import asyncio

from .manifest import Manifest, Segment, newest_manifest
from .segments import SegmentDamaged, read_segment
from .store import Store

READS_AT_ONCE = 16


class Superseded(Exception):
    """Another session has owned the partition since."""


async def read_content(store: Store, manifest: Manifest) -> list[tuple[Segment, bytes]]:
    """The segments in their order. ``store`` is patient.

    A compaction replaces segments, and the old ones are deleted later: then those of the newest manifest are read.
    Raises Superseded, SegmentDamaged, ManifestMissing.
    """
    while True:
        try:
            return await _read_all(store, manifest)
        except SegmentDamaged:
            newest = await newest_manifest(store, manifest.partition)
            if newest.epoch != manifest.epoch:
                raise Superseded(f"partition {manifest.partition} has epoch {newest.epoch} now") from None
            if newest.version == manifest.version:
                raise
            manifest = newest


async def _read_all(store: Store, manifest: Manifest) -> list[tuple[Segment, bytes]]:
    limit = asyncio.Semaphore(READS_AT_ONCE)

    async def read(segment: Segment) -> tuple[Segment, bytes]:
        async with limit:
            return segment, await read_segment(store, segment)

    return list(await asyncio.gather(*map(read, manifest.segments)))
