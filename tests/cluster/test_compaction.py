"""Compaction of a partition in a store: races, open transactions, tombstones, and what it never touches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from compaction_helpers import ALWAYS, DAY_MS, NOW_MS, BatchSpec, at, logs, offsets, plain_batch, write_files
from compaction_helpers import FOLDER as LOCAL_FOLDER
from hypothesis import given, settings

from callboard.runtime.cluster.compaction.compactor import Compactor
from callboard.runtime.cluster.compaction.plan import make_plan
from callboard.runtime.cluster.content import read_content
from callboard.runtime.cluster.keys import manifest_key, manifest_prefix, number_of, segment_prefix
from callboard.runtime.cluster.manifest import Manifest, Tail, create_manifest, decode_manifest, newest_manifest
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.memory import MemoryDisk
from callboard.runtime.log.compaction.swap import compact

from .compaction_cases import (
    GARBAGE,
    NAME,
    PARTITION,
    TAIL,
    added,
    compacted,
    record_offsets,
    replayed,
    stored,
    token,
)
from .memory_store import Memory, MemoryStore

BeforeCreate = Callable[["RacedStore"], Awaitable[None]]


class RacedStore(MemoryStore):
    """Before the first creates of manifests, others do something. ``deleted``: the keys that were deleted."""

    def __init__(self, *before_creates: BeforeCreate) -> None:
        super().__init__(Memory())
        self.deleted: list[str] = []
        self.before_creates: list[BeforeCreate] = []
        self.others = before_creates

    def begin(self) -> None:
        self.before_creates = list(self.others)

    async def create(self, key: str, value: bytes) -> bool:
        if key.startswith("man/") and self.before_creates:
            others, self.before_creates = self.before_creates, []
            await others[0](self)
            self.before_creates = others[1:]
        return await super().create(key, value)

    async def delete(self, keys: Sequence[str]) -> None:
        self.deleted += keys
        await super().delete(keys)


async def checkpoint(store: RacedStore) -> None:
    """By the owner: the open segment is replaced by one with a batch more."""
    manifest = await newest_manifest(store, PARTITION)
    following = manifest._replace(version=manifest.version + 1, token=token().hex())
    open_segment = await added(store, following, GARBAGE[:-1], [*GARBAGE[-1], plain_batch(("d", "1"))])
    assert await create_manifest(store, following._replace(segments=(*manifest.segments[:-1], open_segment)))


async def take_over(store: RacedStore) -> None:
    manifest = await newest_manifest(store, PARTITION)
    following = manifest._replace(version=manifest.version + 1, token=token().hex(), epoch=9, tail=Tail("b-2", 0))
    assert await create_manifest(store, following)


async def rival(store: RacedStore) -> None:
    """Another compaction is faster."""
    assert (await compacted(store)).status == "compacted"


@settings(max_examples=60)
@given(logs)
def test_compaction_keeps_the_state_and_does_what_it_does_in_a_folder(log: list[list[BatchSpec]]) -> None:
    async def run() -> None:
        store, disk = MemoryStore(Memory()), MemoryDisk()
        await stored(store, log)
        write_files(disk, log)
        before = await replayed(store)
        report = await compacted(store)
        compact(disk, LOCAL_FOLDER, ALWAYS)
        assert await replayed(store) == before
        assert await record_offsets(store) == offsets(disk)
        assert report.status in ("compacted", "nothing", "waiting")

    asyncio.run(run())


def test_result_is_the_next_manifest_with_the_same_epoch_tail_and_open_segment() -> None:
    async def run() -> None:
        store = MemoryStore(Memory())
        before = await stored(store, GARBAGE)
        report = await compacted(store)
        assert (report.partition, report.status, report.records_before, report.records_after) == (
            *(NAME, "compacted"),
            *(3, 2),
        )
        after = await newest_manifest(store, PARTITION)
        assert (after.version, after.epoch, after.tail) == (before.version + 1, before.epoch, TAIL)
        [clean, open_segment] = after.segments
        assert (clean.base, clean.end, clean.is_compacted) == (0, 3, True)
        assert open_segment == before.segments[-1]
        assert (await compacted(store, at(NOW_MS, min_ratio=0.0))).status == "nothing"

    asyncio.run(run())


@pytest.mark.parametrize("other", [checkpoint, take_over])
def test_lost_version_is_made_up_for_on_top_of_the_winner(other: BeforeCreate) -> None:
    async def run() -> None:
        store = RacedStore(other, other)
        await stored(store, GARBAGE)
        store.begin()
        assert (await compacted(store)).status == "compacted"
        newest = await newest_manifest(store, PARTITION)
        before = await read_manifest(store, newest.version - 1)
        assert newest.version == 4
        assert (newest.epoch, newest.tail, newest.segments[1:]) == (before.epoch, before.tail, before.segments[2:])
        assert number_of(newest.segments[0].key) == newest.version, "the segment was written for this version"
        assert store.deleted == []
        assert set((await replayed(store)).live) >= {b"a", b"b", b"c"}

    asyncio.run(run())


async def read_manifest(store: MemoryStore, version: int) -> Manifest:
    [data] = await store.get([manifest_key(PARTITION, version)])
    assert data is not None
    return decode_manifest(PARTITION, version, data)


def test_compaction_that_lost_creates_no_manifest_and_deletes_nothing() -> None:
    async def run() -> None:
        store = RacedStore(rival)
        await stored(store, GARBAGE)
        store.begin()
        state = await replayed(store)
        assert (await compacted(store, at(NOW_MS, min_ratio=0.0))).status == "nothing"
        assert len(await store.list(manifest_prefix(PARTITION))) == 2
        assert store.deleted == []
        assert await replayed(store) == state

    asyncio.run(run())


def test_version_that_was_deleted_and_is_created_again_does_not_count() -> None:
    """A compaction slept while others went on, and garbage collection has deleted the version that it creates."""

    async def many_versions(store: RacedStore) -> None:
        for _ in range(4):
            await take_over(store)
        await rival(store)
        await store.delete([manifest_key(PARTITION, version) for version in (1, 2, 3)])

    async def run() -> None:
        store = RacedStore(many_versions)
        await stored(store, GARBAGE)
        store.begin()
        assert (await compacted(store, at(NOW_MS, min_ratio=0.0))).status == "nothing"
        newest = await newest_manifest(store, PARTITION)
        assert newest.version == 6
        assert len(await read_content(store, newest)) == 2

    asyncio.run(run())


def test_segment_that_was_replaced_while_it_was_read_is_read_in_the_newest_manifest() -> None:
    async def run() -> None:
        store = MemoryStore(Memory())
        manifest = await stored(store, GARBAGE)
        list_manifests, is_first = store.list, True

        async def compacted_after_the_list(prefix: str, after: str = "") -> list[str]:
            nonlocal is_first
            keys = await list_manifests(prefix, after)
            if is_first:
                is_first = False
                await compacted(store)
                await store.delete([segment.key for segment in manifest.segments[:2]])
            return keys

        store.list = compacted_after_the_list  # type: ignore[method-assign]
        assert (await compacted(store, at(NOW_MS, min_ratio=0.0))).status == "nothing"

    asyncio.run(run())


def test_missing_segment_is_damage() -> None:
    async def run() -> None:
        store = MemoryStore(Memory())
        manifest = await stored(store, GARBAGE)
        await store.delete([manifest.segments[0].key])
        report = await compacted(store)
        assert report.status == "damaged"
        assert report.reason == f"{NAME}: {manifest.segments[0].key} is missing in the store"
        assert len(await store.list(manifest_prefix(PARTITION))) == 1

    asyncio.run(run())


def test_nothing_from_an_open_transaction_on_is_compacted() -> None:
    transaction = BatchSpec(plain_batch(("t", "1")).records, "transaction")
    log = [[plain_batch(("a", "1"), ("a", "2"))], [plain_batch(("a", "3")), transaction], [plain_batch(("a", "4"))]]

    async def run() -> None:
        store = MemoryStore(Memory())
        before = await stored(store, log)
        assert (await compacted(store)).status == "compacted"
        newest = await newest_manifest(store, PARTITION)
        assert newest.segments[1:] == before.segments[1:]
        assert await record_offsets(store) == [1, 2, 3, 4]
        report = await compacted(store, at(NOW_MS, min_ratio=0.3))
        assert report.status == "waiting"
        assert report.reason.startswith(f"{NAME}: a transaction is open since offset 3; ")

    asyncio.run(run())


def test_tombstone_stays_until_its_time_is_over() -> None:
    log = [[plain_batch(("a", "1"), ("b", "1"))], [plain_batch(("a", None))], [plain_batch(("c", "1"))]]

    async def run() -> None:
        store = MemoryStore(Memory())
        await stored(store, log)
        await compacted(store)
        assert await record_offsets(store) == [1, 2, 3]
        newest = await newest_manifest(store, PARTITION)
        assert newest.segments[0].horizon_ms == NOW_MS + DAY_MS
        assert not make_plan(newest).is_due(NOW_MS + DAY_MS - 1, 0.0)
        assert (await compacted(store, at(NOW_MS + DAY_MS, min_ratio=0.0))).status == "compacted"
        assert await record_offsets(store) == [1, 3]

    asyncio.run(run())


def test_result_is_cut_into_segments_that_a_store_takes() -> None:
    log = [[plain_batch((f"k{number}", "x" * 500))] for number in range(9)]

    async def run() -> None:
        store = MemoryStore(Memory())
        await stored(store, log)
        state = await replayed(store)
        await compacted(store, ALWAYS._replace(segment_bytes=1200))
        newest = await newest_manifest(store, PARTITION)
        assert [segment.is_compacted for segment in newest.segments] == [True] * 4 + [False]
        assert len(await store.list(segment_prefix(PARTITION))) == 9 + 4
        assert await replayed(store) == state

    asyncio.run(run())


def test_files_of_a_run_are_removed(tmp_path: Path) -> None:
    async def run() -> None:
        store = MemoryStore(Memory())
        await stored(store, GARBAGE)
        (tmp_path / "left").write_bytes(b"by a run that was killed")
        report = await Compactor(store, Disk(), tmp_path, ALWAYS, token).compact(PARTITION, NAME)
        assert report.status == "compacted"
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

    asyncio.run(run())
