"""Checkpoints: batches go from the session's WAL to segments of their partitions, then rounds are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable

from .held_partitions import HeldPartitions
from .keys import floor_key, floor_prefix, round_key
from .manifest import Manifest, Segment, Tail, create_manifest, newest_manifest
from .segments import read_segment, write_segment
from .session_environment import SessionEnvironment
from .store import Store
from .wal import Fenced, WalWriter, confirm_alive

CONCURRENT = 16
"""Partitions whose manifests are written at the same time."""


class Checkpoints:
    """Those of one session. ``store`` is patient. All methods raise Fenced if another session owns a partition."""

    def __init__(
        self,
        store: Store,
        session: str,
        environment: SessionEnvironment,
        wal: WalWriter,
        held: HeldPartitions,
    ) -> None:
        self._store = store
        self._session = session
        self._environment = environment
        self._wal = wal
        self._held = held
        self._lock = asyncio.Lock()
        self._floor = 0

    async def write(self) -> None:
        """Bring all batches to segments."""
        async with self._lock:
            await self._each(self._checkpoint, self._held.with_batches())
            await confirm_alive(self._store, self._session)

    async def close(self, partitions: Collection[int]) -> None:
        """Write the last manifests of this session for partitions that get no batch any more. They have no tail."""
        async with self._lock:
            await self._each(self._close, [partition for partition in partitions if partition in self._held])
            await confirm_alive(self._store, self._session)

    async def _each(self, write: Callable[[int], Awaitable[None]], partitions: Iterable[int]) -> None:
        """Write for each partition, for a few at a time. Waits for all of them before it raises the first error."""
        limit = asyncio.Semaphore(CONCURRENT)

        async def limited(partition: int) -> None:
            async with limit:
                await write(partition)

        results = await asyncio.gather(*map(limited, partitions), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _checkpoint(self, partition: int) -> None:
        held = self._held[partition]
        count, next_round = len(held.batches), self._wal.next_number
        held.manifest = await self._replace(held.manifest, held.batches[:count], Tail(self._session, next_round))
        held.drop(count, next_round)

    async def _close(self, partition: int) -> None:
        held = self._held[partition]
        held.manifest = await self._replace(held.manifest, list(held.batches), None)
        self._held.release(partition)

    async def _replace(self, manifest: Manifest, batches: list[bytes], tail: Tail | None) -> Manifest:
        """Create the next manifest. A compaction may have been faster: then the segments are those that it left."""
        epoch = manifest.epoch
        while True:
            version, token = manifest.version + 1, self._environment.token().hex()
            segments = await self._with_batches(manifest, version, batches)
            following = manifest._replace(version=version, token=token, segments=segments, tail=tail)
            if await create_manifest(self._store, following):
                return following
            manifest = await newest_manifest(self._store, manifest.partition)
            if manifest.epoch != epoch:
                raise Fenced(f"partition {manifest.partition} has epoch {manifest.epoch}, expected {epoch}")

    async def _with_batches(self, manifest: Manifest, version: int, batches: list[bytes]) -> tuple[Segment, ...]:
        if not batches:
            return manifest.segments
        segments = manifest.segments
        if segments and segments[-1].may_grow:
            last = segments[-1]
            batches = [await read_segment(self._store, last), *batches]
            segments = segments[:-1]
        token = self._environment.token()
        return (*segments, await write_segment(self._store, manifest.partition, version, batches, token))

    async def follow_compaction(self, partition: int) -> None:
        """Know the manifest that a compaction has created.

        Not while a checkpoint is written: of the manifests, garbage collection leaves those from the known one on.
        """
        async with self._lock:
            held = self._held.get(partition)
            newest = None if held is None else await newest_manifest(self._store, partition)
            if held is not None and newest is not None and newest.epoch == held.epoch:
                held.manifest = newest

    async def delete_rounds(self) -> None:
        """Delete the rounds that no partition needs any more.

        The floor comes first, then a look at the tombstone: whoever seals this WAL begins at or above the floor.
        """
        floor = self._held.needed_from(self._wal.next_number)
        if floor == self._floor:
            return
        key = floor_key(self._session, floor)
        await self._store.put(key, b"")
        await confirm_alive(self._store, self._session)
        older = [other for other in await self._store.list(floor_prefix(self._session)) if other < key]
        rounds = [round_key(self._session, number) for number in range(self._floor, floor)]
        self._floor = floor
        await self._store.delete([*rounds, *older, *self._wal.packs.forget_below(floor)])
