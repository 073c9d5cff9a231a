"""The records that compaction keeps: the newest of each key, unchanged, and markers, tombstones and last batches."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compaction_helpers import (
    ALWAYS,
    DAY_MS,
    FOLDER,
    NOW_MS,
    OPEN,
    START_MS,
    BatchSpec,
    RecordSpec,
    at,
    by_manifest,
    contents,
    encoded,
    logs,
    offsets,
    plain_batch,
    write_files,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import kafka_python_batches, with_attributes
from property_examples import examples

from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.compaction.plan import make_plan
from callboard.runtime.log.compaction.rewrite import DELETE_HORIZON_BIT
from callboard.runtime.log.compaction.swap import CompactionSettings, compact
from callboard.runtime.log.format.batch import HEADER_BYTES, read_batches
from callboard.runtime.log.format.errors import DamagedBatch, UnsupportedCompression
from callboard.runtime.log.manifest import log_files, segments_folder, write_file
from callboard.runtime.log.reading.segment import scan
from callboard.runtime.testing.disk.faulty import FaultyDisk


def compact_log(disk: FaultyDisk, compaction_settings: CompactionSettings = ALWAYS) -> Any:
    numbers = iter(range(1000))
    return compact(
        disk, FOLDER, compaction_settings, lambda: compaction_settings.now_ms, lambda: f"{next(numbers):08x}"
    )


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def test_compact_keeps_newest_record_of_each_key_at_its_offset(disk: FaultyDisk) -> None:
    write_files(
        disk,
        [
            [plain_batch(("a", "1"), ("b", "1"), ("a", "2")), plain_batch(("c", "1"))],
            [plain_batch(("b", "2")), plain_batch(("d", "1"), ("d", "2"))],
            OPEN,
        ],
    )
    state_before = by_manifest(disk)
    result = compact_log(disk)
    assert by_manifest(disk) == state_before
    assert offsets(disk) == [2, 3, 4, 6, 7]
    assert (result.records_before, result.records_after) == (7, 4)


def test_compact_copies_batch_without_dropped_records_unchanged(disk: FaultyDisk) -> None:
    """A batch that loses records keeps its first and last offset, so that readers find the next offset."""
    write_files(disk, [[plain_batch(("a", "1"), ("b", "1")), plain_batch(("c", "1"), ("a", "2"), ("a", "3"))], OPEN])
    source_batches = list(scan(disk, FOLDER / f"{0:020d}.log"))
    compact_log(disk)
    shortened, unchanged = list(scan(disk, log_files(disk, FOLDER).files[0].path))[:2]
    assert (shortened.base_offset, shortened.last_offset, shortened.record_count) == (0, 1, 1)
    assert (unchanged.base_offset, unchanged.last_offset, unchanged.record_count) == (2, 4, 2)
    assert list(shortened.records()) == [list(source_batches[0].records())[1]]


def test_compact_keeps_last_batch_of_file_even_if_empty(disk: FaultyDisk) -> None:
    write_files(
        disk,
        [[plain_batch(("a", "1")), plain_batch(("b", "1"), ("b", "2"))], [plain_batch(("b", "3"), ("a", "2"))], OPEN],
    )
    compact_log(disk)
    clean, _ = log_files(disk, FOLDER).files
    batches = [(batch.base_offset, batch.last_offset, batch.record_count) for batch in scan(disk, clean.path)]
    assert batches == [(1, 2, 0), (3, 4, 2)]
    write_files(disk, [[plain_batch(("open", "other"))]], base=6)
    write_files(disk, [OPEN], base=7)
    compact_log(disk, at(NOW_MS + 1))
    counts = [batch.record_count for batch in scan(disk, log_files(disk, FOLDER).files[0].path)]
    assert counts == [2, 0, 1], "the empty batch of the previous run is now in the middle of a file and is removed"


def test_compact_ignores_open_segment(disk: FaultyDisk) -> None:
    write_files(disk, [[plain_batch(("a", "1"), ("a", "2"))]])
    assert compact_log(disk) is None
    assert offsets(disk) == [0, 1]


def test_compact_drops_record_without_key(disk: FaultyDisk) -> None:
    write_files(disk, [[BatchSpec((RecordSpec(None, b"x"), RecordSpec(b"a", b"1"), RecordSpec(b"", b"empty")))], OPEN])
    compact_log(disk)
    assert offsets(disk) == [1, 2, 3]


def test_compact_drops_tombstone_after_delete_retention(disk: FaultyDisk) -> None:
    """KIP-534: the batch gets a delete horizon, and its records keep their timestamps."""
    write_files(
        disk, [[plain_batch(("a", "1")), BatchSpec((RecordSpec(b"a", None, 3), RecordSpec(b"b", b"1", 5)))], OPEN]
    )
    end = START_MS + 1
    compact_log(disk)
    batch_with_horizon = next(iter(scan(disk, log_files(disk, FOLDER).files[0].path)))
    assert batch_with_horizon.attributes & DELETE_HORIZON_BIT
    assert batch_with_horizon.base_timestamp_ms == NOW_MS + DAY_MS
    assert list(batch_with_horizon.records()) == [(1, end + 3, b"a", None), (2, end + 5, b"b", b"1")]
    assert compact_log(disk, at(NOW_MS + DAY_MS - 1)) is None, "nothing is dirty, and the tombstone has not expired"
    state_before = by_manifest(disk)
    compact_log(disk, at(NOW_MS + DAY_MS))
    assert by_manifest(disk) == state_before
    assert offsets(disk) == [2, 3]
    assert not make_plan(disk, FOLDER).has_expired(NOW_MS + 10 * DAY_MS)


def test_compact_again_keeps_delete_horizon_of_tombstone(disk: FaultyDisk) -> None:
    write_files(disk, [[plain_batch(("a", None))], OPEN])
    compact_log(disk)
    write_files(disk, [OPEN], base=2)
    compact_log(disk, at(NOW_MS + 5))
    assert log_files(disk, FOLDER).manifest.segments[0].delete_horizon_ms == NOW_MS + DAY_MS


def transaction(key: str, value: str, producer: int = 7) -> BatchSpec:
    return plain_batch((key, value))._replace(kind="transaction", producer=producer)


def end(kind: str, producer: int = 7) -> BatchSpec:
    return BatchSpec((), kind, producer)


def test_compact_drops_aborted_records_and_keeps_older_values(disk: FaultyDisk) -> None:
    write_files(disk, [[plain_batch(("a", "1")), transaction("a", "2"), end("abort"), plain_batch(("b", "1"))], OPEN])
    state_before = by_manifest(disk)
    compact_log(disk)
    assert by_manifest(disk) == state_before
    assert offsets(disk) == [0, 2, 3, 4]


def test_compact_drops_marker_a_day_after_its_last_record(disk: FaultyDisk) -> None:
    write_files(disk, [[transaction("a", "1"), end("commit"), plain_batch(("z", "1"))], OPEN])
    compact_log(disk)
    assert offsets(disk) == [0, 1, 2, 3]
    write_files(disk, [[plain_batch(("a", "2"))]], base=4)
    write_files(disk, [OPEN], base=5)
    compact_log(disk, at(NOW_MS + DAY_MS))
    assert offsets(disk) == [1, 2, 3, 4, 5], "the marker's retention begins when its transaction has no records"
    state = by_manifest(disk)
    compact_log(disk, at(NOW_MS + 2 * DAY_MS))
    assert offsets(disk) == [2, 3, 4, 5]
    assert by_manifest(disk) == state


def test_compact_stops_at_first_open_transaction(disk: FaultyDisk) -> None:
    """Transactions whose markers follow later are applied by the next run."""
    write_files(
        disk,
        [
            [transaction("a", "1", 1), plain_batch(("a", "0"), ("b", "1")), transaction("b", "2", 2)],
            [transaction("c", "1", 3), plain_batch(("b", "3"))],
            [end("commit", 1), end("abort", 2), plain_batch(("c", "0"), ("c", "1"))],
            OPEN,
        ],
    )
    state_before = by_manifest(disk)
    result = compact_log(disk)
    assert result.manifest.clean_end == 4
    assert by_manifest(disk) == state_before
    assert offsets(disk) == [1, 2, *range(4, 11)]
    write_files(disk, [[end("abort", 3)], OPEN], base=11)
    state_before = by_manifest(disk)
    compact_log(disk, at(NOW_MS + 1))
    assert by_manifest(disk) == state_before
    assert log_files(disk, FOLDER).manifest.clean_end == 12


def test_compact_of_damaged_log_raises_with_file_and_position(disk: FaultyDisk) -> None:
    write_files(disk, [[plain_batch(("a", "1")), plain_batch(("b", "1"))], [plain_batch(("c", "1"))], OPEN])
    path = FOLDER / f"{0:020d}.log"
    fd = disk.open(path, 2)
    second_position = next(iter(scan(disk, path))).size
    disk.write(fd, b"\xff", second_position + 65)
    with pytest.raises(DamagedBatch, match=rf"{path}: damaged batch at byte {second_position}: checksum"):
        compact_log(disk)
    assert disk.names(segments_folder(FOLDER)) == []
    disk.write(fd, b"\x7f\xff\xff\xff", 8)
    with pytest.raises(DamagedBatch, match=rf"{path}: damaged batch at byte 0: cut off"):
        compact_log(disk)


def compress_batch(batch: bytes, codec: int, compress: Callable[[bytes], bytes]) -> bytes:
    content = batch[:HEADER_BYTES] + compress(batch[HEADER_BYTES:])
    return with_attributes(content[:8] + (len(content) - 12).to_bytes(4, "big") + content[12:], codec)


@pytest.mark.parametrize("fast", [True, False])
def test_compact_of_compressed_batches_writes_uncompressed_ones(disk: FaultyDisk, fast: bool) -> None:
    """Kafka writes such batches with ``offsets.topic.compression.codec``; the output is not compressed."""
    batches = [
        plain_batch(("a", "1"), ("b", "1")),
        plain_batch(("b", "2"), ("c", "1"), ("a", None)),
        plain_batch(("d", "1")),
    ]
    first_batch, second_batch, third_batch = (
        encoded(batch, base, START_MS) for batch, base in zip(batches, (0, 2, 5), strict=True)
    )
    disk.make_folder(FOLDER)
    write_file(
        disk, FOLDER / f"{0:020d}.log", first_batch + compress_batch(second_batch, 1, gzip.compress) + third_batch
    )
    write_files(disk, [OPEN], base=6)
    state_before = by_manifest(disk)
    compact_log(disk, ALWAYS._replace(fast=fast))
    assert by_manifest(disk) == state_before
    assert offsets(disk) == [2, 3, 4, 5, 6]
    assert all(not batch.attributes & 7 for batch in scan(disk, log_files(disk, FOLDER).files[0].path))


def test_compact_of_unknown_codec_is_refused(disk: FaultyDisk) -> None:
    write_files(disk, [[plain_batch(("a", "1"))], OPEN])
    path = FOLDER / f"{0:020d}.log"
    data = contents(disk, FOLDER)[path.name]
    disk.write(disk.open(path, 2), with_attributes(data, 5), 0)
    with pytest.raises(UnsupportedCompression, match=f"{path}: batch at byte 0 is compressed with codec 5"):
        compact_log(disk)


def test_compact_splits_output_at_source_file_boundaries(disk: FaultyDisk) -> None:
    files = [[plain_batch(*((f"{file} {number}", "x" * 50) for number in range(5)))] for file in range(4)]
    write_files(disk, [*files, OPEN])
    size = len(contents(disk, FOLDER)[f"{0:020d}.log"])
    compact_log(disk, ALWAYS._replace(segment_bytes=2 * size))
    assert [(segment.base, segment.end) for segment in log_files(disk, FOLDER).manifest.segments] == [(0, 10), (10, 20)]


@settings(max_examples=examples(48))
@given(rounds=st.lists(logs, min_size=1, max_size=3), pauses_h=st.lists(st.sampled_from([0, 1, 30]), min_size=3))
def test_repeated_compaction_of_any_log_keeps_its_state(
    rounds: list[list[list[BatchSpec]]], pauses_h: list[int]
) -> None:
    """With and without numpy, and with chunks as small as a batch, the output is the same bytes."""
    with_numpy, without_numpy = FaultyDisk(), FaultyDisk()
    base, now_ms = 0, NOW_MS
    for files, pause_h in zip(rounds, pauses_h, strict=False):
        now_ms += pause_h * 3_600_000
        for disk in (with_numpy, without_numpy):
            end_offset = write_files(disk, files, base=base)
        base = end_offset
        state_before = by_manifest(with_numpy)
        compact_log(with_numpy, at(now_ms, fast=True, segment_bytes=300))
        compact_log(without_numpy, at(now_ms, fast=False, segment_bytes=300, chunk_bytes=64))
        assert by_manifest(with_numpy) == state_before
        assert contents(with_numpy, segments_folder(FOLDER)) == contents(without_numpy, segments_folder(FOLDER))


@settings(max_examples=examples(24))
@given(files=logs)
def test_second_compaction_changes_nothing(files: list[list[BatchSpec]]) -> None:
    disk = FaultyDisk()
    end_offset = write_files(disk, files)
    compact_log(disk)
    offsets_after_first = offsets(disk)
    if compact_log(disk, at(NOW_MS + DAY_MS - 1)) is None:
        assert offsets(disk) == offsets_after_first
    assert by_manifest(disk).end == end_offset


def test_kafka_python_reads_compacted_files(disk: FaultyDisk) -> None:
    """Another implementation checks checksums, offsets, and timestamps in a batch with a delete horizon."""
    tombstones = BatchSpec((RecordSpec(b"a", None, 3), RecordSpec(b"b", b"1", 5), RecordSpec(b"c", None, 250)))
    write_files(disk, [[plain_batch(("a", "1"), ("b", "0"), ("d", "1")), tombstones, plain_batch(("c", None))], OPEN])
    records_before = [
        record for batch in read_batches(contents(disk, FOLDER)[f"{0:020d}.log"]) for record in batch.records()
    ]
    compact_log(disk)
    [compacted_file] = contents(disk, segments_folder(FOLDER)).values()
    records_read = [
        (record.offset, record.timestamp, record.key, record.value)
        for batch in kafka_python_batches(compacted_file)
        for record in batch
    ]
    assert records_read == [records_before[index] for index in (2, 3, 4, 6)]


@pytest.mark.parametrize("fast", [True, False])
def test_compaction_memory_is_bounded_by_keys_and_chunk(tmp_path: Path, fast: bool) -> None:
    """It does not depend on the length of the log or the size of a file."""
    folder, value = tmp_path / "__consumer_offsets-0", b"x" * 60
    batches = [
        BatchSpec(tuple(RecordSpec(b"key %d" % (number % 50), value) for _ in range(100))) for number in range(400)
    ]
    write_files(Disk(), [batches, OPEN], folder)
    compaction_settings = ALWAYS._replace(fast=fast, chunk_bytes=32 * 1024)
    warm_up = tmp_path / "warm-up"  # imports and caches are not measured
    write_files(Disk(), [batches[:10], OPEN], warm_up)
    compact(Disk(), warm_up, compaction_settings, on_bytes_read=lambda size: None)
    size = (folder / f"{0:020d}.log").stat().st_size
    assert size > 2_900_000
    tracemalloc.start()
    try:
        draft = compact(Disk(), folder, compaction_settings)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert draft is not None and draft.records_after == 50
    assert peak < size / 4
