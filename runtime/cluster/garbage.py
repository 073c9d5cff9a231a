"""Deletes what no node needs any more: old manifests and segments, and the rounds of sessions that have ended.

Tombstones, seals and floors stay for ever: a late ``create`` must not find their names free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from .held_partitions import HeldPartitions
from .keys import (
    MANIFESTS,
    SEGMENTS,
    SESSIONS,
    alive_key,
    manifest_prefix,
    number_of,
    owner_of,
    pack_prefix,
    segment_prefix,
    wal_prefix,
)
from .manifest import Manifest, decode_manifest, newest_manifests
from .register import Register
from .register_log import RegisterLog
from .session_environment import SessionEnvironment
from .store import Store
from .wal import confirm_alive, decode_round

MANIFESTS_KEPT = 3
"""The newest ones. A reader of an older one finds a segment missing, and reads the newest manifest again."""
FIRST_PART = 0.1
"""The first collection comes after this part of the interval: nodes may restart so often that no session lasts longer.
Whoever takes over a partition lists what was not collected."""
LISTED_TOGETHER = 10
"""A list of all partitions replaces those of single ones if it has at most so many times as many keys."""
READ_TOGETHER = 8
"""Partitions whose manifests are read by one operation, and decoded without a pause."""


class NewestManifests(NamedTuple):
    """Of a partition: the segments that its newest manifests name, and the version of the newest one."""

    named: frozenset[str]
    newest: int


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
        interval_s = self._environment.garbage_interval_s
        await self._environment.sleep(interval_s * FIRST_PART)
        while True:
            await self.collect()
            await self._environment.sleep(interval_s)

    async def collect(self) -> None:
        """Once. Raises Fenced."""
        followed = {partition: self._held[partition].manifest.version for partition in self._held}
        register = await self._register.read()
        await self._collect_partitions(followed, len(register.owners))
        if self._session == min(register.nodes, default=""):
            await self._collect_sessions(register)

    async def _collect_partitions(self, followed: Mapping[int, float], total: int) -> None:
        """Delete manifests and segments. Only the owner does it, and looks at its tombstone before.

        ``followed``: by partition the manifest that the next checkpoint follows. Those from it on stay, though
        compactions have created newer ones: else the checkpoint would find the name of the next version free, and
        believe in a manifest that nobody reads. ``total``: the number of all partitions.
        """
        is_together = len(followed) * LISTED_TOGETHER >= total
        manifests = await self._listed(MANIFESTS, manifest_prefix, followed, is_together)
        kept = await self._read_kept(manifests)
        listed = await self._listed(SEGMENTS, segment_prefix, kept, is_together)
        segments = [
            key
            for partition, keys in listed.items()
            for key in keys
            if key not in kept[partition].named and number_of(key) <= kept[partition].newest
        ]
        old = [
            key
            for partition in kept
            for key in manifests[partition][:-MANIFESTS_KEPT]
            if number_of(key) < followed[partition]
        ]
        if segments or old:
            await confirm_alive(self._store, self._session)
            await self._store.delete([*old, *segments])

    async def _listed(
        self, prefix: str, prefix_of: Callable[[int], str], partitions: Collection[int], is_together: bool
    ) -> Mapping[int, Sequence[str]]:
        """The keys of each partition, in their order."""
        if not is_together:
            return {partition: await self._store.list(prefix_of(partition)) for partition in partitions}
        keys: dict[int, list[str]] = defaultdict(list)
        for key in await self._store.list(prefix):
            keys[int(owner_of(key))].append(key)
        return {partition: keys[partition] for partition in partitions}

    async def _read_kept(self, manifests: Mapping[int, Sequence[str]]) -> Mapping[int, NewestManifests]:
        """Without those partitions that another session owns by now, which has deleted the manifests."""
        kept: dict[int, NewestManifests] = {}
        partitions = list(manifests)
        for start in range(0, len(partitions), READ_TOGETHER):
            keys = [key for p in partitions[start : start + READ_TOGETHER] for key in manifests[p][-MANIFESTS_KEPT:]]
            for key, data in zip(keys, await self._store.get(keys), strict=True):
                if data is not None:
                    manifest = decode_manifest(int(owner_of(key)), number_of(key), data)
                    before = kept.get(manifest.partition, NewestManifests(frozenset(), 0))
                    named = before.named.union(segment.key for segment in manifest.segments)
                    kept[manifest.partition] = NewestManifests(named, manifest.version)
        return kept

    async def _collect_sessions(self, register: Register) -> None:
        """Delete the rounds of sessions that have ended.

        The register that decides is read after their seals. A session that an earlier one lacks may have joined since,
        have stored rounds, and have been sealed.
        """
        names = [key.removeprefix(SESSIONS) for key in await self._store.list(SESSIONS)]
        rounds = {name: await self._sealed_rounds(name) for name in names if name not in register.nodes}
        sealed = {name: keys for name, keys in rounds.items() if keys is not None}
        if not sealed:
            return
        register = await self._register.read()
        manifests = await newest_manifests(self._store, range(len(register.owners)))
        if all(_is_taken(manifest, register) for manifest in manifests.values()):
            for name, keys in sealed.items():
                if name not in register.nodes:
                    packs = await self._store.list(pack_prefix(name))
                    await self._store.delete([*keys, *packs, alive_key(name)])

    async def _sealed_rounds(self, name: str) -> Sequence[str] | None:
        """The keys of the session's rounds. None without a seal: it has not joined yet, or never did."""
        keys = await self._store.list(wal_prefix(name))
        [last] = await self._store.get(keys[-1:]) if keys else [None]
        return keys[:-1] if last is not None and decode_round(last).is_seal else None


def _is_taken(manifest: Manifest, register: Register) -> bool:
    """The owner of this register has loaded the partition: no manifest that an ended session creates can follow."""
    return manifest.epoch == register.epochs[manifest.partition]
