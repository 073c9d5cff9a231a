"""Tails: what the WALs of ended sessions have of each partition."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ..log.format.batch import offsets_of
from ..log.journal_frames import frame_batches, frame_content
from .manifest import Manifest
from .packs import list_packs
from .store import Store
from .wal import WalDamaged, read_floor, read_tail

Batches = Sequence[bytes]


class TailReader:
    """Reads each WAL once for all partitions that go on in it. ``has_packs``: the sessions of this store write some."""

    def __init__(self, store: Store, has_packs: bool) -> None:
        self._store = store
        self._has_packs = has_packs
        self._reads: dict[str, asyncio.Task[Mapping[int, Batches]]] = {}

    async def batches(self, manifest: Manifest) -> Batches:
        """The batches of a partition after its last segment. Raises WalDamaged."""
        if manifest.tail is None:
            return ()
        session = manifest.tail.session
        if session not in self._reads:
            self._reads[session] = asyncio.get_running_loop().create_task(self._read(session))
        try:
            tail = await asyncio.shield(self._reads[session])
        except BaseException:
            self.forget(session)
            raise
        return following(tail.get(manifest.partition, ()), manifest)

    def forget(self, session: str) -> None:
        self._reads.pop(session, None)

    def forget_all(self) -> None:
        """Free the memory. Reads in progress go on."""
        self._reads.clear()

    async def _find(self, session: str) -> tuple[int, Sequence[str]]:
        """The floor of a session, and its packs."""
        if not self._has_packs:
            return await read_floor(self._store, session), ()
        return await asyncio.gather(read_floor(self._store, session), list_packs(self._store, session))

    async def _read(self, session: str) -> Mapping[int, Batches]:
        """All that is there: below the floor nothing is needed."""
        by_partition: dict[int, list[bytes]] = defaultdict(list)
        floor, packs = await self._find(session)
        async for frame in read_tail(self._store, session, floor, packs=packs):
            for partition, batch in frame_batches(frame_content(frame)):
                by_partition[partition].append(bytes(batch))
        return by_partition


def following(batches: Batches, manifest: Manifest) -> Batches:
    """Those that the manifest's segments do not have. Raises WalDamaged for a gap in the offsets."""
    end, rest = manifest.end, list[bytes]()
    for batch in batches:
        first, last = offsets_of(batch)
        if first > end:
            raise WalDamaged(f"partition {manifest.partition}: offsets {end} to {first - 1} are missing in the WAL")
        if last >= end:
            rest.append(batch)
            end = last + 1
    return rest
