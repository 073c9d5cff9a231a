"""SessionLog: the log of the partitions that a session holds. Rounds go to its WAL, checkpoints to segments."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from .batched import Batched
from .checkpoints import Checkpoints
from .content import Superseded
from .continuity import Known
from .held_partitions import HeldPartitions
from .keys import manifest_key
from .manifest import Manifest, Tail, create_manifest, newest_manifest, newest_manifests
from .segments import write_segment
from .session_environment import SessionEnvironment
from .store import Store
from .tails import TailReader
from .wal import WalDamaged, WalWriter, confirm_alive, seal


class SessionLog:
    """``store`` is patient."""

    def __init__(self, store: Store, environment: SessionEnvironment, session: str) -> None:
        self.session = session
        self.held = HeldPartitions()
        self._store = store
        self._environment = environment
        self._wal = WalWriter(store, session, environment.pack_rounds)
        self._checkpoints = Checkpoints(store, session, environment, self._wal, self.held)
        self._tails = TailReader(store, has_packs=environment.pack_rounds > 0)
        self._newest = Batched(self._newest_manifests)
        self._alive = Batched(self._confirm_alive)
        self._last_checkpoint = 0  # the number of the next round then
        self._is_due = asyncio.Event()

    async def append(self, frame: bytes, batches: Sequence[tuple[int, bytes]]) -> None:
        """Store a round of batches of held partitions. Called again only after it returned. Raises Fenced."""
        number = self._wal.next_number
        await self._wal.append(frame, self._environment.token())
        self.held.add_round(number, batches)
        limits = self._environment
        if number - self._last_checkpoint >= limits.checkpoint_rounds or self.held.size >= limits.checkpoint_bytes:
            self._is_due.set()

    def known(self) -> Known:
        """What the store has acknowledged."""
        held = [self.held[partition] for partition in self.held]
        manifests = {manifest_key(each.manifest.partition, each.manifest.version): each.manifest for each in held}
        return Known(
            self.session,
            self._wal.next_number,
            self._wal.last_token,
            {key: manifest.token for key, manifest in manifests.items()},
            {key: manifest.epoch for key, manifest in manifests.items()},
        )

    async def load(self, partition: int, epoch: int) -> Manifest:
        """Hold a partition that the register gives this session. Returns its content: the manifest's segments.

        What the previous owner left in its WAL becomes a segment. Raises Superseded, WalDamaged, ManifestMissing,
        Fenced.
        """
        manifest = await self._newest.get(partition)
        while True:
            if manifest.epoch > epoch:
                raise Superseded(f"partition {partition} has epoch {manifest.epoch}, expected at most {epoch}")
            taken = await self._taken(manifest, epoch)
            if taken is not None:
                break
            manifest = await newest_manifest(self._store, partition)
        await self._alive.get(None)
        self.held.hold(taken)
        return taken

    async def _newest_manifests(self, partitions: Collection[int]) -> Mapping[int, Manifest]:
        return await newest_manifests(self._store, partitions)

    async def _confirm_alive(self, _: Collection[None]) -> Mapping[None, None]:
        await confirm_alive(self._store, self.session)
        return {None: None}

    async def _taken(self, manifest: Manifest, epoch: int) -> Manifest | None:
        """The manifest that follows, with this session as tail. None if the one given is not the newest any more."""
        is_own = manifest.tail is not None and manifest.tail.session == self.session
        try:
            # An own tail is that of a load that was given up: nothing was appended since.
            batches = () if is_own else await self._tails.batches(manifest)
        except WalDamaged:
            if (await newest_manifest(self._store, manifest.partition)).version == manifest.version:
                raise
            return None
        segments, version = manifest.segments, manifest.version + 1
        if batches:
            token = self._environment.token()
            segments = (*segments, await write_segment(self._store, manifest.partition, version, batches, token))
        tail = Tail(self.session, self._wal.next_number)
        token_text = self._environment.token().hex()
        taken = manifest._replace(version=version, token=token_text, epoch=epoch, segments=segments, tail=tail)
        return taken if await create_manifest(self._store, taken) else None

    async def close(self, partitions: Collection[int]) -> None:
        """Write the last manifests of partitions that get no batch any more. Raises Fenced."""
        await self._checkpoints.close(partitions)

    async def checkpoint(self) -> None:
        """Raises Fenced."""
        self._is_due.clear()
        self._last_checkpoint = self._wal.next_number
        await self._checkpoints.write()

    async def follow_compaction(self, partition: int) -> None:
        """Somebody has compacted a partition: its next checkpoint follows that manifest."""
        await self._checkpoints.follow_compaction(partition)

    async def keep_short(self) -> None:
        """Write checkpoints when they are due, for ever. Raises Fenced."""
        while True:
            await self._wait_until_due()
            self._tails.forget_all()
            if self.held.with_batches() or self._wal.next_number != self._last_checkpoint:
                await self.checkpoint()
                await self._checkpoints.delete_rounds()

    async def keep_packed(self) -> None:
        """Write copies of rounds that a takeover reads with fewer operations, for ever."""
        await self._wal.packs.keep_packed()

    async def _wait_until_due(self) -> None:
        waits = asyncio.ensure_future(self._is_due.wait())
        sleeps = asyncio.ensure_future(self._environment.sleep(self._environment.checkpoint_interval_s))
        try:
            await asyncio.wait({waits, sleeps}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waits.cancel()
            sleeps.cancel()

    async def seal(self) -> None:
        """End the own WAL, so that readers of it find its end. No round is in flight."""
        await seal(self._store, self.session, self._environment.token(), self._wal.next_number)
