"""Planted mistakes of the cluster's protocol, one at a time. The simulation must find each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from typing import Any

import pytest

from callboard.runtime.cluster import (
    burial,
    checkpoints,
    continuity,
    garbage,
    handover,
    lease,
    liveness,
    operator,
    session,
    wal,
)
from callboard.runtime.cluster.checkpoints import Checkpoints
from callboard.runtime.cluster.compaction import compactor
from callboard.runtime.cluster.compaction.compactor import Compactor
from callboard.runtime.cluster.compaction.plan import CompactionPlan, make_plan
from callboard.runtime.cluster.garbage import GarbageCollector
from callboard.runtime.cluster.handover import Handover
from callboard.runtime.cluster.held_partitions import HeldPartition, HeldPartitions
from callboard.runtime.cluster.keys import manifest_key, register_key, round_key
from callboard.runtime.cluster.lease import Lease
from callboard.runtime.cluster.liveness import Liveness
from callboard.runtime.cluster.manifest import Manifest, Segment, create_manifest, newest_manifest
from callboard.runtime.cluster.register import Register, planned_owners
from callboard.runtime.cluster.register_log import RegisterLog
from callboard.runtime.cluster.session import Session
from callboard.runtime.cluster.session_log import SessionLog
from callboard.runtime.cluster.store import Store, StoreUnavailable, settle
from callboard.runtime.cluster.tails import TailReader
from callboard.runtime.log.compaction import survivors
from callboard.runtime.log.compaction.survivors import Survivors
from callboard.runtime.log.compaction.swap import CompactionDraft

from .simulated_node import Commit, SimulatedNode

Plant = Callable[[pytest.MonkeyPatch], None]


async def _nothing(*_arguments: Any) -> None:
    """Does nothing."""


async def _zero(*_arguments: Any) -> int:
    return 0


def no_seal(patch: pytest.MonkeyPatch) -> None:
    """Who takes over does not seal the WAL."""
    patch.setattr(burial, "seal", _zero)


def no_tombstone(patch: pytest.MonkeyPatch) -> None:
    async def no_settle(_store: Store, _key: str, value: bytes) -> bytes:
        return value

    patch.setattr(burial, "settle", no_settle)


def seal_ignores_the_floor(patch: pytest.MonkeyPatch) -> None:
    """The seal is put below rounds that were deleted."""

    async def seal_at_first_gap(store: Store, name: str, token: bytes) -> int:
        number, data = 0, wal.Round(True, token, wal.NO_TOKEN, b"").encode()
        while True:
            winner = await settle(store, round_key(name, number), data)
            if winner == data or wal.decode_round(winner).is_seal:
                return number
            number += 1

    patch.setattr(burial, "seal", seal_at_first_gap)


def rounds_deleted_without_floor(patch: pytest.MonkeyPatch) -> None:
    """The floor is not written before rounds are deleted."""

    async def delete_rounds(self: Checkpoints) -> None:
        floor = self._held.needed_from(self._wal.next_number)
        keys = [round_key(self._session, number) for number in range(self._floor, floor)]
        self._floor = floor
        await self._store.delete(keys)

    patch.setattr(Checkpoints, "delete_rounds", delete_rounds)


def rounds_deleted_without_a_look(patch: pytest.MonkeyPatch) -> None:
    """The session does not look at its tombstone between its floor and the deletion of rounds."""
    patch.setattr(checkpoints, "confirm_alive", _nothing)


def needed_rounds_deleted(patch: pytest.MonkeyPatch) -> None:
    """The floor does not count the partitions that have batches in rounds only."""
    patch.setattr(HeldPartitions, "needed_from", lambda self, next_round: next_round)


def manifest_replaced_blindly(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint does not look whether it created the manifest."""

    async def create(store: Store, manifest: Manifest) -> bool:
        await store.put(manifest_key(manifest.partition, manifest.version), manifest.encode())
        return True

    patch.setattr(checkpoints, "create_manifest", create)


def segments_of_another_owner(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint that lost the race adds its batches to the manifest of another owner."""
    replace = Checkpoints._replace

    async def replace_any(self: Checkpoints, manifest: Manifest, batches: list[bytes], tail: Any) -> Manifest:
        while True:
            try:
                return await replace(self, manifest, batches, tail)
            except wal.Fenced:
                newest = await newest_manifest(self._store, manifest.partition)
                manifest = newest._replace(epoch=newest.epoch)

    patch.setattr(Checkpoints, "_replace", replace_any)


def merged_segment_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint replaces the last segment by one that has the new batches only."""

    async def nothing(_store: Store, _segment: Segment) -> bytes:
        return b""

    patch.setattr(checkpoints, "read_segment", nothing)


def checkpoint_drops_too_much(patch: pytest.MonkeyPatch) -> None:
    """Batches that came while the checkpoint was written are dropped with the others."""
    drop = HeldPartition.drop
    patch.setattr(HeldPartition, "drop", lambda self, count, start: drop(self, len(self.batches), start))


def leaver_does_not_seal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SessionLog, "seal", _nothing)


def leaver_seals_like_the_others(patch: pytest.MonkeyPatch) -> None:
    """Who leaves seals its WAL by what is stored, while it deletes rounds."""

    async def seal_own(self: SessionLog) -> None:
        await wal.seal(self._store, self.session, self._environment.token())

    patch.setattr(SessionLog, "seal", seal_own)


def own_tail_is_read(patch: pytest.MonkeyPatch) -> None:
    """A load that was given up after its manifest is repeated with the own open WAL as tail."""
    taken = SessionLog._taken

    async def taken_after_its_tail(self: SessionLog, manifest: Manifest, epoch: int) -> Manifest | None:
        await self._tails.batches(manifest)
        return await taken(self, manifest, epoch)

    patch.setattr(SessionLog, "_taken", taken_after_its_tail)


def given_to_who_has_left(patch: pytest.MonkeyPatch) -> None:
    """Who gives a partition away does not look whether the node is still there."""
    give, original = Handover.give, planned_owners
    newest: dict[str, Register] = {}  # as each session knew it when it began to give

    def surplus(self: Handover, register: Register) -> list[int]:
        newest[self._log.session] = register
        return original_surplus(self, register)

    async def give_as_planned(self: Handover, partitions: Any) -> None:
        planned = original(newest[self._log.session])
        patch.setattr(handover, "planned_owners", lambda register: planned)
        try:
            await give(self, partitions)
        finally:
            patch.setattr(handover, "planned_owners", original)

    original_surplus = Handover.surplus
    patch.setattr(Handover, "surplus", surplus)
    patch.setattr(Handover, "give", give_as_planned)


def register_changed_by_two_tasks(patch: pytest.MonkeyPatch) -> None:
    """Tasks of one node do not wait for each other, and each advances the version that the node knows."""

    async def change(self: RegisterLog, change_register: Any, confirm: Any) -> Register | None:
        register = await self._read()
        while True:
            changed: Register | None = change_register(register)
            if changed is None:
                return None
            version = (self.current or register).version + 1
            changed = changed._replace(version=version, token=self._environment.token().hex())
            data = changed.encode()
            if await settle(self._store, register_key(version), data) == data:
                self.current = changed._replace(version=(self.current or register).version + 1)
                return changed
            register = await self._read()

    patch.setattr(RegisterLog, "change", change)


def answered_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    write = SimulatedNode._write_round

    async def answer_first(self: SimulatedNode, commits: list[Commit]) -> None:
        self._answer_all(commits, True)
        await write(self, commits)

    patch.setattr(SimulatedNode, "_write_round", answer_first)


def unanswered_round_counts_as_stored(patch: pytest.MonkeyPatch) -> None:
    """A round whose create got no answer is acknowledged, and the next number follows it."""

    async def append(self: wal.WalWriter, content: bytes, token: bytes) -> None:
        data = wal.Round(False, token, self.last_token, content).encode()
        with suppress(StoreUnavailable):
            if not await self._store.create(round_key(self._session, self.next_number), data):
                raise wal.Fenced(f"the WAL of {self._session} is sealed")
        self.last_token = token
        self.next_number += 1

    patch.setattr(wal.WalWriter, "append", append)


def round_is_packed_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    """A pack has a round that may not be stored: a seal may be in its place."""
    append = wal.WalWriter.append

    async def pack_first(self: wal.WalWriter, content: bytes, token: bytes) -> None:
        add, self.packs.add = self.packs.add, lambda *_: None  # type: ignore[method-assign]
        add(self.next_number, wal.Round(False, token, self.last_token, content).encode())
        try:
            await append(self, content, token)
        finally:
            self.packs.add = add  # type: ignore[method-assign]

    patch.setattr(wal.WalWriter, "append", pack_first)


def reads_without_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "is_valid", property(lambda self: True))


def lease_counts_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    renew = Lease.renew

    async def renew_late(self: Lease) -> None:
        await renew(self)
        self.until_s = self._environment.now() + self._environment.lease_s

    patch.setattr(Lease, "renew", renew_late)


def tombstone_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """A session renews its lease although it was declared dead."""
    patch.setattr(lease, "confirm_alive", _nothing)


def counter_is_not_read_again(patch: pytest.MonkeyPatch) -> None:
    """Who declares a session dead does not look whether it has renewed its lease meanwhile."""
    end_session = burial.end_session

    async def end_at_once(store: Any, register: Any, environment: Any, name: str, counter: Any, confirm: Any) -> None:
        async def no_sleep(_seconds: float) -> None:
            await asyncio.sleep(0)

        await end_session(store, register, environment._replace(sleep=no_sleep), name, counter, confirm)

    patch.setattr(session, "end_session", end_at_once)


def operator_does_not_wait_for_the_lease(patch: pytest.MonkeyPatch) -> None:
    """Who seals a node that lives gives its partitions away at once."""
    patch.setattr(operator, "wait_for_lease", _nothing)


def declared_dead_too_early(patch: pytest.MonkeyPatch) -> None:
    """Silence of a third of a TTL is enough, and the counter is not read again: stale reads."""
    create = Liveness.__init__
    patch.setattr(Liveness, "__init__", lambda self, ttl_s: create(self, ttl_s / 3))
    patch.setattr(liveness, "GAP_TTLS", 1)
    counter_is_not_read_again(patch)


def dead_rounds_deleted_by_name(patch: pytest.MonkeyPatch) -> None:
    """Rounds of an ended session are deleted although a partition has not been loaded by its new owner."""
    patch.setattr(garbage, "_is_taken", lambda manifest, register: True)


def handover_of_nothing_is_a_bug(patch: pytest.MonkeyPatch) -> None:
    """A task of a session ends with an error, and the next session of the node goes on."""
    patch.setattr(handover, "batch_size", lambda count: min(handover.PARTITIONS_AT_ONCE, count))


def older_register_applied(patch: pytest.MonkeyPatch) -> None:
    """A task applies a register that it read before another task applied a newer one."""
    apply = Session._apply

    def apply_any(self: Session, register: Register) -> None:
        self._applied = -1
        apply(self, register)

    patch.setattr(Session, "_apply", apply_any)


def stale_owner_accepts(patch: pytest.MonkeyPatch) -> None:
    """A session that was fenced still answers what is in flight."""
    patch.setattr(Session, "fence", lambda self, reason: None)


def tail_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A new owner loads the segments only."""

    async def none(self: Any, manifest: Manifest) -> tuple[bytes, ...]:
        return ()

    patch.setattr(TailReader, "batches", none)


def closed_while_writing(patch: pytest.MonkeyPatch) -> None:
    """A partition is given away while a round of it is in flight."""

    def lost(self: SimulatedNode, partitions: Any) -> None:
        for partition in partitions:
            self.values.pop(partition, None)
            self._epochs.pop(partition, None)
            if self.session is not None:
                self.session.release(partition)

    patch.setattr(SimulatedNode, "lost", lost)


# Compaction ----------------------------------------------------------------------------------------------------------


def compaction_deletes_before_its_manifest(patch: pytest.MonkeyPatch) -> None:
    """A compaction deletes the segments that it has read before its manifest is created."""
    replace = Compactor._replace

    async def delete_first(self: Compactor, manifest: Manifest, draft: CompactionDraft) -> bool:
        cleaned = manifest.segments[: len(draft.manifest.replaced)]
        await self._store.delete([segment.key for segment in cleaned])
        return await replace(self, manifest, draft)

    patch.setattr(Compactor, "_replace", delete_first)


def compaction_deletes_what_it_believes_replaced(patch: pytest.MonkeyPatch) -> None:
    """A compaction deletes the segments that it has read once its create has succeeded, however old the version is."""

    async def replace(self: Compactor, manifest: Manifest, draft: CompactionDraft) -> bool:
        count = len(draft.manifest.replaced)
        following = await _compacted(self, manifest, draft, manifest.segments[count:])
        if not await create_manifest(self._store, following):
            return False
        await self._store.delete([segment.key for segment in manifest.segments[:count]])
        return True

    patch.setattr(Compactor, "_replace", replace)


async def _compacted(
    self: Compactor,
    manifest: Manifest,
    draft: CompactionDraft,
    rest: tuple[Segment, ...],
    kept: tuple[Segment, ...] = (),
) -> Manifest:
    """The version after ``manifest``, with what is in ``draft`` after ``kept`` and before ``rest``."""
    version, sources = manifest.version + 1, draft.manifest.segments
    written = [await self._store_segment(manifest.partition, version, source) for source in sources]
    return manifest._replace(version=version, token=self._token().hex(), segments=(*kept, *written, *rest))


def compaction_replaces_blindly(patch: pytest.MonkeyPatch) -> None:
    """A compaction puts its manifest."""

    async def put(store: Store, manifest: Manifest) -> bool:
        await store.put(manifest_key(manifest.partition, manifest.version), manifest.encode())
        return True

    patch.setattr(compactor, "create_manifest", put)


def compaction_keeps_the_epoch_that_it_read(patch: pytest.MonkeyPatch) -> None:
    """A compaction that lost its version creates the next one with the epoch and the tail that it had read."""

    async def replace(self: Compactor, manifest: Manifest, draft: CompactionDraft) -> bool:
        read, count = manifest, len(draft.manifest.replaced)
        while manifest.segments[:count] == read.segments[:count]:
            following = await _compacted(self, manifest, draft, manifest.segments[count:])
            if await create_manifest(self._store, following._replace(epoch=read.epoch, tail=read.tail)):
                return True
            manifest = await newest_manifest(self._store, manifest.partition)
        return False

    patch.setattr(Compactor, "_replace", replace)


def compaction_does_not_compare_segments(patch: pytest.MonkeyPatch) -> None:
    """A compaction that lost its version replaces as many segments as it has read, whichever they are."""

    async def replace(self: Compactor, manifest: Manifest, draft: CompactionDraft) -> bool:
        count = len(draft.manifest.replaced)
        while True:
            following = await _compacted(self, manifest, draft, manifest.segments[count:])
            if await create_manifest(self._store, following):
                return True
            manifest = await newest_manifest(self._store, manifest.partition)

    patch.setattr(Compactor, "_replace", replace)


def compaction_takes_the_segments_as_complete(patch: pytest.MonkeyPatch) -> None:
    """The manifest of a compaction has no tail: what is in the WAL only is lost when another node loads it."""

    async def create(store: Store, manifest: Manifest) -> bool:
        return await create_manifest(store, manifest._replace(tail=None))

    patch.setattr(compactor, "create_manifest", create)


def tombstones_dropped_while_older_segments_stay(patch: pytest.MonkeyPatch) -> None:
    """A compaction reads only what was never compacted, and drops tombstones although older records stay."""

    def plan_of_dirty(manifest: Manifest) -> CompactionPlan:
        whole = make_plan(manifest)
        return whole._replace(segments=tuple(each for each in whole.segments if not each.is_compacted))

    async def replace(self: Compactor, manifest: Manifest, draft: CompactionDraft) -> bool:
        clean = tuple(segment for segment in manifest.segments if segment.is_compacted)
        rest = manifest.segments[len(clean) + len(draft.manifest.replaced) :]
        return await create_manifest(self._store, await _compacted(self, manifest, draft, rest, clean))

    def drop_at_once(survivors: Survivors, *_others: Any) -> Survivors:
        rows = [row for row in zip(*survivors, strict=True) if not row[3]]
        return Survivors(*(map(list, zip(*rows, strict=True)))) if rows else Survivors([], [], [], [], [])

    patch.setattr(compactor, "make_plan", plan_of_dirty)
    patch.setattr(Compactor, "_replace", replace)
    patch.setattr(survivors, "_without_old_tombstones", drop_at_once)


def collector_deletes_ahead_of_its_owner(patch: pytest.MonkeyPatch) -> None:
    """Manifests are deleted that are newer than the one that the owner's next checkpoint follows."""
    collect = GarbageCollector._collect_partitions

    async def collect_all(self: GarbageCollector, followed: Mapping[int, float], total: int) -> None:
        await collect(self, dict.fromkeys(followed, inf), total)

    patch.setattr(GarbageCollector, "_collect_partitions", collect_all)


def deleted_rounds_are_missed(patch: pytest.MonkeyPatch) -> None:
    """A node believes that the store has lost the rounds that the node itself has deleted."""
    patch.setattr(continuity, "_is_behind", _zero)


MUTATIONS: Mapping[str, Plant] = {
    name.replace("_", " "): plant
    for name, plant in list(globals().items())
    if callable(plant) and getattr(plant, "__module__", "") == __name__ and not name.startswith("_")
}
