"""Deletes what no node needs any more: old manifests and segments, and the rounds of sessions that have ended.

Tombstones, seals and floors stay for ever: a late ``create`` must not find their names free.
"""

from __future__ import annotations

import asyncio

from .held_partitions import HeldPartitions
from .keys import SESSIONS, alive_key, manifest_prefix, number_of, pack_prefix, segment_prefix, wal_prefix
from .manifest import Manifest, decode_manifest, newest_manifest
from .register import Register
from .register_log import RegisterLog
from .session_environment import SessionEnvironment
from .store import Store
from .wal import confirm_alive, decode_round

MANIFESTS_KEPT = 3
"""The newest ones. A reader of an older one finds a segment missing, and reads the newest manifest again."""


class GarbageCollector:
    """That of one session. ``store`` is patient."""

    def __init__(
        self,
        store: Store,
        environment: SessionEnvironment,
        session: str,
        register: RegisterLog,
        held: HeldPartitions,
    ) -> None:
        self._store = store
        self._environment = environment
        self._session = session
        self._register = register
        self._held = held

    async def collect_regularly(self) -> None:
        """For ever. Raises Fenced."""
        while True:
            await self._environment.sleep(self._environment.garbage_interval_s)
            await self.collect()

    async def collect(self) -> None:
        """Once. Raises Fenced."""
        for partition in list(self._held):
            if partition in self._held:
                await self._collect_partition(partition)
        register = await self._register.read()
        if self._session == min(register.nodes, default=""):
            await self._collect_sessions(register)

    async def _collect_partition(self, partition: int) -> None:
        """Delete manifests and segments. Only the owner does it, and looks at its tombstone before.

        The manifests from the one on that the next checkpoint follows stay, though compactions have created newer ones:
        else the checkpoint would find the name of the next version free, and believe in a manifest that nobody reads.
        """
        followed = self._held[partition].manifest.version
        keys = await self._store.list(manifest_prefix(partition))
        kept = keys[-MANIFESTS_KEPT:]
        manifests = [
            decode_manifest(partition, number_of(key), data)
            for key, data in zip(kept, await self._store.get(kept), strict=True)
            if data is not None
        ]
        if not manifests:
            return  # another session owns the partition by now, and has deleted them
        named = {segment.key for manifest in manifests for segment in manifest.segments}
        newest = manifests[-1].version
        segments = [
            key
            for key in await self._store.list(segment_prefix(partition))
            if key not in named and number_of(key) <= newest
        ]
        old = [key for key in keys[: -len(kept)] if number_of(key) < followed]
        if segments or old:
            await confirm_alive(self._store, self._session)
            await self._store.delete([*old, *segments])

    async def _collect_sessions(self, register: Register) -> None:
        names = [key.removeprefix(SESSIONS) for key in await self._store.list(SESSIONS)]
        ended = [name for name in names if name not in register.nodes]
        if not ended:
            return
        manifests = await asyncio.gather(*(newest_manifest(self._store, p) for p in range(len(register.owners))))
        if all(_is_taken(manifest, register) for manifest in manifests):
            for name in ended:
                await self._collect_session(name)

    async def _collect_session(self, name: str) -> None:
        """Delete its rounds. A session without a seal has not joined yet, or never did."""
        rounds = await self._store.list(wal_prefix(name))
        if not rounds:
            return
        [last] = await self._store.get(rounds[-1:])
        if last is not None and decode_round(last).is_seal:
            packs = await self._store.list(pack_prefix(name))
            await self._store.delete([*rounds[:-1], *packs, alive_key(name)])


def _is_taken(manifest: Manifest, register: Register) -> bool:
    """The owner of this register has loaded the partition: no manifest that an ended session creates can follow."""
    return manifest.epoch == register.epochs[manifest.partition]
