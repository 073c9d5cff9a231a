"""Compaction with more keys than fit in memory: sorted hashes on disk give the same output bytes."""

from __future__ import annotations

import errno
import random
import shutil
import tracemalloc
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from compaction_helpers import (
    ALWAYS,
    FOLDER,
    NOW_MS,
    OPEN,
    BatchSpec,
    RecordSpec,
    at,
    by_manifest,
    contents,
    encoded,
    logs,
    plain_batch,
    write_files,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from property_examples import examples

from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.compaction import runs as runs_module
from callboard.runtime.log.compaction.garbage import publish_and_collect
from callboard.runtime.log.compaction.runs import HASH_BYTES, HashRun, HashRuns
from callboard.runtime.log.compaction.swap import CompactionSettings, compact
from callboard.runtime.log.format.errors import DamagedBatch
from callboard.runtime.log.manifest import segments_folder, write_file
from callboard.runtime.log.reading.columns import has_numpy
from callboard.runtime.log.reading.segment import scan
from callboard.runtime.testing.disk.faulty import FaultyDisk

NUMPY_OPTIONS = [False, True] if has_numpy() else [False]
NO_KEYS_BYTES = 0  # no key fits
FEW_KEYS_BYTES = 900  # some keys fit, so there are runs and keys in memory


def compact_log(disk: FaultyDisk, compaction_settings: CompactionSettings = ALWAYS) -> Any:
    numbers = iter(range(1000))
    return compact(
        disk, FOLDER, compaction_settings, lambda: compaction_settings.now_ms, lambda: f"{next(numbers):08x}"
    )


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes many blocks and pieces of a few hundred keys."""
    monkeypatch.setattr(runs_module, "BLOCK_HASHES", 4)
    monkeypatch.setattr(runs_module, "PIECE_HASHES", 12)
    yield


@settings(max_examples=examples(48))
@given(
    rounds=st.lists(logs, min_size=1, max_size=3),
    pauses_h=st.lists(st.sampled_from([0, 1, 30]), min_size=3),
    fast=st.sampled_from(NUMPY_OPTIONS),
    keys_bytes_max=st.sampled_from([NO_KEYS_BYTES, 150, FEW_KEYS_BYTES]),
)
def test_compaction_with_keys_on_disk_writes_same_bytes(
    rounds: list[list[list[BatchSpec]]], pauses_h: list[int], fast: bool, keys_bytes_max: int
) -> None:
    """Includes transactions and tombstones, in several rounds."""
    memory_disk, spill_disk = FaultyDisk(), FaultyDisk()
    base, now_ms = 0, NOW_MS
    for files, pause_h in zip(rounds, pauses_h, strict=False):
        now_ms += pause_h * 3_600_000
        ends = [write_files(disk, files, base=base) for disk in (memory_disk, spill_disk)]
        base = ends[0]
        state_before = by_manifest(spill_disk)
        compact_log(memory_disk, at(now_ms, fast=False, chunk_bytes=64))
        compact_log(spill_disk, at(now_ms, fast=fast, chunk_bytes=64, keys_bytes_max=keys_bytes_max))
        assert by_manifest(spill_disk) == state_before
        assert contents(memory_disk, segments_folder(FOLDER)) == contents(spill_disk, segments_folder(FOLDER))


@pytest.mark.parametrize("fast", NUMPY_OPTIONS)
@pytest.mark.usefixtures("small_blocks")
def test_compaction_of_many_keys_with_keys_on_disk_writes_same_bytes(fast: bool) -> None:
    """Hundreds of runs, merged many times; keys too long for ``known_keys``, and keys repeated in a chunk."""
    rng = random.Random(5)

    def random_batch() -> BatchSpec:
        keys = (f"group {rng.randrange(3000)}" * rng.randint(1, 12) for _ in range(rng.randint(1, 40)))
        return BatchSpec(tuple(RecordSpec(key.encode(), rng.choice([b"1", b"22", None])) for key in keys))

    disks = FaultyDisk(), FaultyDisk()
    files = [[random_batch() for _ in range(40)] for _ in range(8)]
    for disk, keys_bytes_max in zip(disks, (1 << 30, FEW_KEYS_BYTES), strict=True):
        write_files(disk, [*files, OPEN])
        result = compact_log(disk, ALWAYS._replace(fast=fast, chunk_bytes=1000, keys_bytes_max=keys_bytes_max))
        assert 2000 < result.records_after < result.records_before
    memory_files, spill_files = (contents(disk, segments_folder(FOLDER)) for disk in disks)
    assert memory_files == spill_files


hashes = st.lists(st.sampled_from([b"\0", b"\1"]), min_size=HASH_BYTES, max_size=HASH_BYTES).map(b"".join)


@settings(max_examples=examples(40))
@given(stored=st.sets(hashes, max_size=60), requested=st.sets(hashes, max_size=60))
def test_hash_run_find_returns_stored_hashes(stored: set[bytes], requested: set[bytes]) -> None:
    """The hashes are so similar that the bytes of one often occur across two adjacent ones."""
    disk = FaultyDisk()
    disk.make_folder(Path("/spill"))
    result = HashRun(disk, Path("/spill/run"))
    result.write(sorted(stored))
    assert list(result) == sorted(stored)
    assert result.find(sorted(requested | {b"\0" * 16, b"\1" * 16})) == (requested | {b"\0" * 16, b"\1" * 16}) & stored
    result.remove()
    assert disk.names(Path("/spill")) == []


@settings(max_examples=examples(20))
@given(sizes=st.lists(st.integers(0, 60), max_size=30), seed=st.integers(0, 1000))
def test_hash_runs_find_same_keys_as_set_and_stay_few(sizes: list[int], seed: int) -> None:
    disk, numbers, rng = FaultyDisk(), count(), random.Random(seed)
    disk.make_folder(Path("/spill"))
    result = HashRuns(disk, lambda: Path(f"/spill/{next(numbers)}"))
    model: set[bytes] = set()
    for size in sizes:
        keys = {b"%d" % rng.randrange(2000) for _ in range(size)}
        new_keys = result.find_missing(keys)
        assert len(new_keys) == len(set(new_keys)) and set(new_keys) == keys - model
        result.add(set(new_keys))
        model |= keys
        assert len(result) <= len(model).bit_length() + 1
        assert len(disk.names(Path("/spill"))) == len(result)
    result.remove()
    assert disk.names(Path("/spill")) == []


FAR_MS = 1 << 62  # too large for numpy's columns, so the slow reader is used


def test_compaction_with_one_chunk_unreadable_by_numpy_keeps_state() -> None:
    """The keys of that chunk must not be added to those of the previous chunk."""
    if not has_numpy():
        pytest.skip("needs numpy")
    names = [f"a group and a topic {number}" for number in range(60)]
    unreadable_batch = encoded(plain_batch(*((name, "1") for name in names)), 0, FAR_MS)
    later_batches = [
        plain_batch(*((name, "2") for name in names[:20])),
        plain_batch(*((name, "3") for name in names[10:40])),
    ]
    result = []
    for use_numpy in NUMPY_OPTIONS:
        disk = FaultyDisk()
        disk.make_folder(FOLDER)
        write_file(disk, FOLDER / f"{0:020d}.log", unreadable_batch)
        write_files(disk, [later_batches[:1], later_batches[1:], OPEN], base=60)
        state_before = by_manifest(disk)
        assert compact_log(disk, ALWAYS._replace(fast=use_numpy)).records_after == 60
        assert by_manifest(disk) == state_before
        result.append(contents(disk, segments_folder(FOLDER)))
    assert result[0] == result[1]


def many_keys(number: int) -> list[BatchSpec]:
    return [plain_batch(*((f"key {index}", "x"), (f"key {index + 1}", "x"))) for index in range(number)]


def test_compaction_of_damaged_log_removes_key_files(disk: FaultyDisk) -> None:
    write_files(disk, [many_keys(5), many_keys(50), OPEN])
    path = FOLDER / f"{0:020d}.log"
    second_position = next(iter(scan(disk, path))).size
    disk.write(disk.open(path, 2), b"\xff", second_position + 65)
    with pytest.raises(DamagedBatch, match=rf"{path}: damaged batch at byte {second_position}"):
        compact_log(disk, ALWAYS._replace(chunk_bytes=64, keys_bytes_max=NO_KEYS_BYTES))
    assert disk.names(segments_folder(FOLDER)) == []


def test_compaction_on_full_disk_fails_and_leaves_log_unchanged(disk: FaultyDisk) -> None:
    write_files(disk, [many_keys(100), OPEN])
    state_before = by_manifest(disk)
    disk.capacity_bytes = disk.used_bytes() + 1000
    with pytest.raises(OSError, match="spill") as error:
        compact_log(disk, ALWAYS._replace(chunk_bytes=64, keys_bytes_max=NO_KEYS_BYTES))
    assert error.value.errno == errno.ENOSPC
    assert by_manifest(disk) == state_before
    assert disk.names(segments_folder(FOLDER)) == []


def test_files_of_killed_run_are_collected(disk: FaultyDisk) -> None:
    class Killed(BaseException):
        pass

    write_files(disk, [many_keys(20), OPEN])
    files_at_kill: dict[str, bytes] = {}

    def kill(_size: int) -> None:
        files_at_kill.update(contents(disk, segments_folder(FOLDER)))
        if len(files_at_kill) > 3:
            raise Killed

    compaction_settings = ALWAYS._replace(chunk_bytes=64, keys_bytes_max=NO_KEYS_BYTES)
    with pytest.raises(Killed):
        compact(disk, FOLDER, compaction_settings, on_bytes_read=kill)
    for name in files_at_kill:
        disk.close(disk.open(segments_folder(FOLDER) / name, 0o100))
    compact_log(disk, compaction_settings)
    publish_and_collect(disk, FOLDER, NOW_MS, 0)
    assert not set(files_at_kill) & set(disk.names(segments_folder(FOLDER)))


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def peak_bytes(folder: Path, compaction_settings: CompactionSettings) -> int:
    tracemalloc.start()
    try:
        result = compact(Disk(), folder, compaction_settings)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result is not None and result.records_after == result.records_before
    return peak


def write_keys(folder: Path, keys: int) -> Path:
    records = [RecordSpec(b"group and topic key %010d" % number, b"x") for number in range(keys)]
    batches = [BatchSpec(tuple(records[start : start + 100])) for start in range(0, keys, 100)]
    write_files(Disk(), [batches, OPEN], folder)
    return folder


@pytest.fixture(scope="module")
def large_and_small(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Folders of partitions with many and with some keys."""
    return [write_keys(tmp_path_factory.mktemp("keys") / FOLDER.name, keys) for keys in (30_000, 3_000)]


@pytest.mark.parametrize("fast", NUMPY_OPTIONS)
def test_compaction_memory_stays_within_keys_bytes_max(large_and_small: list[Path], tmp_path: Path, fast: bool) -> None:
    large, small = large_and_small
    limit_bytes = 300_000
    compaction_settings = ALWAYS._replace(fast=fast, chunk_bytes=16 * 1024)
    compact(Disk(), shutil.copytree(small, tmp_path / "small"), compaction_settings._replace(keys_bytes_max=30_000))
    peaks = {}  # without imports and caches that are filled once
    for keys_bytes_max in (1 << 30, limit_bytes):
        folder = shutil.copytree(large, tmp_path / str(keys_bytes_max) / FOLDER.name)
        peaks[keys_bytes_max] = peak_bytes(folder, compaction_settings._replace(keys_bytes_max=keys_bytes_max))
    assert peaks[1 << 30] > 12 * limit_bytes
    assert peaks[limit_bytes] < 4 * limit_bytes, "numpy's tables and a chunk are included"
