"""What compaction keeps of a log: the newest record of each key, as it was, and what readers need besides."""

from __future__ import annotations

import gzip
import shutil
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
    Bat,
    Rec,
    at,
    by_manifest,
    contents,
    encoded,
    logs,
    offsets,
    plain,
    write_files,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import kafka_python_batches, with_attributes

from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.faulty import FaultyDisk
from callboard.runtime.log.compaction.plan import make_plan
from callboard.runtime.log.compaction.rewrite import DELETE_HORIZON_BIT
from callboard.runtime.log.compaction.swap import CompactionSettings, compact
from callboard.runtime.log.format.batch import HEADER_BYTES, read_batches
from callboard.runtime.log.format.errors import DamagedBatch, UnsupportedCompression
from callboard.runtime.log.manifest import log_files, manifest_folder, segments_folder, write_file
from callboard.runtime.log.reading.segment import scan


def run(disk: FaultyDisk, how: CompactionSettings = ALWAYS) -> Any:
    numbers = iter(range(1000))
    return compact(disk, FOLDER, how, lambda: how.now_ms, lambda: f"{next(numbers):08x}")


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def test_the_newest_record_of_each_key_stays_where_it_was(disk: FaultyDisk) -> None:
    write_files(
        disk,
        [
            [plain(("a", "1"), ("b", "1"), ("a", "2")), plain(("c", "1"))],
            [plain(("b", "2")), plain(("d", "1"), ("d", "2"))],
            OPEN,
        ],
    )
    before = by_manifest(disk)
    draft = run(disk)
    assert by_manifest(disk) == before
    assert offsets(disk) == [2, 3, 4, 6, 7]
    assert (draft.records_before, draft.records_after) == (7, 4)


def test_a_batch_of_which_all_stays_is_not_touched(disk: FaultyDisk) -> None:
    """And one of which less stays keeps its first and last offset, so that readers know which comes next."""
    write_files(disk, [[plain(("a", "1"), ("b", "1")), plain(("c", "1"), ("a", "2"), ("a", "3"))], OPEN])
    old = list(scan(disk, FOLDER / f"{0:020d}.log"))
    run(disk)
    cut, whole = list(scan(disk, log_files(disk, FOLDER).files[0].path))[:2]
    assert (cut.base_offset, cut.last_offset, cut.record_count) == (0, 1, 1)
    assert (whole.base_offset, whole.last_offset, whole.record_count) == (2, 4, 2)
    assert list(cut.records()) == [list(old[0].records())[1]]


def test_the_last_batch_of_a_file_stays_even_when_it_is_empty(disk: FaultyDisk) -> None:
    write_files(disk, [[plain(("a", "1")), plain(("b", "1"), ("b", "2"))], [plain(("b", "3"), ("a", "2"))], OPEN])
    run(disk)
    clean, _ = log_files(disk, FOLDER).files
    batches = [(batch.base_offset, batch.last_offset, batch.record_count) for batch in scan(disk, clean.path)]
    assert batches == [(1, 2, 0), (3, 4, 2)]
    write_files(disk, [[plain(("open", "other"))]], base=6)
    write_files(disk, [OPEN], base=7)
    run(disk, at(NOW_MS + 1))
    counts = [batch.record_count for batch in scan(disk, log_files(disk, FOLDER).files[0].path)]
    assert counts == [2, 0, 1], "what was kept for the round before is in the middle of a file now"


def test_the_open_segment_is_left_alone(disk: FaultyDisk) -> None:
    write_files(disk, [[plain(("a", "1"), ("a", "2"))]])
    assert run(disk) is None
    assert offsets(disk) == [0, 1]


def test_a_record_without_a_key_goes(disk: FaultyDisk) -> None:
    write_files(disk, [[Bat((Rec(None, b"x"), Rec(b"a", b"1"), Rec(b"", b"empty")))], OPEN])
    run(disk)
    assert offsets(disk) == [1, 2, 3]


def test_a_tombstone_stays_for_a_time_after_it_was_met(disk: FaultyDisk) -> None:
    """KIP-534: the batch says from when on it may go, and its records keep their times nevertheless."""
    write_files(disk, [[plain(("a", "1")), Bat((Rec(b"a", None, 3), Rec(b"b", b"1", 5)))], OPEN])
    end = START_MS + 1
    run(disk)
    marked = next(iter(scan(disk, log_files(disk, FOLDER).files[0].path)))
    assert marked.attributes & DELETE_HORIZON_BIT
    assert marked.base_timestamp_ms == NOW_MS + DAY_MS
    assert list(marked.records()) == [(1, end + 3, b"a", None), (2, end + 5, b"b", b"1")]
    assert run(disk, at(NOW_MS + DAY_MS - 1)) is None, "nothing is new, and the tombstone has its time"
    before = by_manifest(disk)
    run(disk, at(NOW_MS + DAY_MS))
    assert by_manifest(disk) == before
    assert offsets(disk) == [2, 3]
    assert not make_plan(disk, FOLDER).has_expired(NOW_MS + 10 * DAY_MS)


def test_a_tombstone_that_is_met_again_keeps_its_horizon(disk: FaultyDisk) -> None:
    write_files(disk, [[plain(("a", None))], OPEN])
    run(disk)
    write_files(disk, [OPEN], base=2)
    run(disk, at(NOW_MS + 5))
    assert log_files(disk, FOLDER).manifest.segments[0].delete_horizon_ms == NOW_MS + DAY_MS


def transaction(key: str, value: str, producer: int = 7) -> Bat:
    return plain((key, value))._replace(kind="transaction", producer=producer)


def end(kind: str, producer: int = 7) -> Bat:
    return Bat((), kind, producer)


def test_what_was_aborted_goes_and_does_not_hide_what_came_before(disk: FaultyDisk) -> None:
    write_files(disk, [[plain(("a", "1")), transaction("a", "2"), end("abort"), plain(("b", "1"))], OPEN])
    before = by_manifest(disk)
    run(disk)
    assert by_manifest(disk) == before
    assert offsets(disk) == [0, 2, 3, 4]


def test_a_marker_stays_as_long_as_its_transaction_does_and_a_day(disk: FaultyDisk) -> None:
    write_files(disk, [[transaction("a", "1"), end("commit"), plain(("z", "1"))], OPEN])
    run(disk)
    assert offsets(disk) == [0, 1, 2, 3]
    write_files(disk, [[plain(("a", "2"))]], base=4)
    write_files(disk, [OPEN], base=5)
    run(disk, at(NOW_MS + DAY_MS))
    assert offsets(disk) == [1, 2, 3, 4, 5], "without data its day begins"
    state = by_manifest(disk)
    run(disk, at(NOW_MS + 2 * DAY_MS))
    assert offsets(disk) == [2, 3, 4, 5]
    assert by_manifest(disk) == state


def test_nothing_is_compacted_from_an_open_transaction_on(disk: FaultyDisk) -> None:
    """How others ended whose marker lies behind that is known all the same."""
    write_files(
        disk,
        [
            [transaction("a", "1", 1), plain(("a", "0"), ("b", "1")), transaction("b", "2", 2)],
            [transaction("c", "1", 3), plain(("b", "3"))],
            [end("commit", 1), end("abort", 2), plain(("c", "0"), ("c", "1"))],
            OPEN,
        ],
    )
    before = by_manifest(disk)
    draft = run(disk)
    assert draft.manifest.clean_end == 4
    assert by_manifest(disk) == before
    assert offsets(disk) == [1, 2, *range(4, 11)]
    write_files(disk, [[end("abort", 3)], OPEN], base=11)
    before = by_manifest(disk)
    run(disk, at(NOW_MS + 1))
    assert by_manifest(disk) == before
    assert log_files(disk, FOLDER).manifest.clean_end == 12


def test_damage_stops_the_run_and_names_file_and_byte(disk: FaultyDisk) -> None:
    write_files(disk, [[plain(("a", "1")), plain(("b", "1"))], [plain(("c", "1"))], OPEN])
    path = FOLDER / f"{0:020d}.log"
    fd = disk.open(path, 2)
    second = next(iter(scan(disk, path))).size
    disk.write(fd, b"\xff", second + 65)
    with pytest.raises(DamagedBatch, match=rf"{path}: damaged batch at byte {second}: checksum"):
        run(disk)
    assert disk.names(segments_folder(FOLDER)) == []
    disk.write(fd, b"\x7f\xff\xff\xff", 8)
    with pytest.raises(DamagedBatch, match=rf"{path}: damaged batch at byte 0: cut off"):
        run(disk)


def compressed(batch: bytes, codec: int, compress: Callable[[bytes], bytes]) -> bytes:
    content = batch[:HEADER_BYTES] + compress(batch[HEADER_BYTES:])
    return with_attributes(content[:8] + (len(content) - 12).to_bytes(4, "big") + content[12:], codec)


@pytest.mark.parametrize("fast", [True, False])
def test_what_was_compressed_is_compacted_like_all_else(disk: FaultyDisk, fast: bool) -> None:
    """As a Kafka with ``offsets.topic.compression.codec`` has left it; the output is not compressed."""
    batches = [plain(("a", "1"), ("b", "1")), plain(("b", "2"), ("c", "1"), ("a", None)), plain(("d", "1"))]
    first, second, third = (encoded(batch, base, START_MS) for batch, base in zip(batches, (0, 2, 5), strict=True))
    disk.make_folder(FOLDER)
    write_file(disk, FOLDER / f"{0:020d}.log", first + compressed(second, 1, gzip.compress) + third)
    write_files(disk, [OPEN], base=6)
    before = by_manifest(disk)
    run(disk, ALWAYS._replace(fast=fast))
    assert by_manifest(disk) == before
    assert offsets(disk) == [2, 3, 4, 5, 6]
    assert all(not batch.attributes & 7 for batch in scan(disk, log_files(disk, FOLDER).files[0].path))


def test_a_codec_that_nobody_knows_is_refused(disk: FaultyDisk) -> None:
    write_files(disk, [[plain(("a", "1"))], OPEN])
    path = FOLDER / f"{0:020d}.log"
    data = contents(disk, FOLDER)[path.name]
    disk.write(disk.open(path, 2), with_attributes(data, 5), 0)
    with pytest.raises(UnsupportedCompression, match=f"{path}: batch at byte 0 is compressed with codec 5"):
        run(disk)


def test_a_small_log_is_one_file_and_a_large_one_is_split_where_a_source_began(disk: FaultyDisk) -> None:
    files = [[plain(*((f"{file} {number}", "x" * 50) for number in range(5)))] for file in range(4)]
    write_files(disk, [*files, OPEN])
    size = len(contents(disk, FOLDER)[f"{0:020d}.log"])
    run(disk, ALWAYS._replace(segment_bytes=2 * size))
    assert [(one.base, one.end) for one in log_files(disk, FOLDER).manifest.segments] == [(0, 10), (10, 20)]


@settings(max_examples=300)
@given(rounds=st.lists(logs, min_size=1, max_size=3), pauses_h=st.lists(st.sampled_from([0, 1, 30]), min_size=3))
def test_any_log_says_the_same_after_any_number_of_rounds(rounds: list[list[list[Bat]]], pauses_h: list[int]) -> None:
    """With numpy and without it, byte by byte; and by its own chunks, which are as small as a batch."""
    fast, slow = FaultyDisk(), FaultyDisk()
    base, now_ms = 0, NOW_MS
    for files, pause_h in zip(rounds, pauses_h, strict=False):
        now_ms += pause_h * 3_600_000
        for disk in (fast, slow):
            end_offset = write_files(disk, files, base=base)
        base = end_offset
        before = by_manifest(fast)
        run(fast, at(now_ms, fast=True, segment_bytes=300))
        run(slow, at(now_ms, fast=False, segment_bytes=300, chunk_bytes=64))
        assert by_manifest(fast) == before
        assert contents(fast, segments_folder(FOLDER)) == contents(slow, segments_folder(FOLDER))


@settings(max_examples=100)
@given(files=logs)
def test_compacting_twice_changes_nothing_more(files: list[list[Bat]]) -> None:
    disk = FaultyDisk()
    end_offset = write_files(disk, files)
    run(disk)
    once = offsets(disk)
    if run(disk, at(NOW_MS + DAY_MS - 1)) is None:
        assert offsets(disk) == once
    assert by_manifest(disk).end == end_offset


def test_kafka_python_reads_what_was_compacted(disk: FaultyDisk) -> None:
    """Another implementation: checksums, offsets, and the times of a tombstone whose batch has a horizon."""
    tombstones = Bat((Rec(b"a", None, 3), Rec(b"b", b"1", 5), Rec(b"c", None, 250)))
    write_files(disk, [[plain(("a", "1"), ("b", "0"), ("d", "1")), tombstones, plain(("c", None))], OPEN])
    before = [record for batch in read_batches(contents(disk, FOLDER)[f"{0:020d}.log"]) for record in batch.records()]
    run(disk)
    [made] = contents(disk, segments_folder(FOLDER)).values()
    found = [
        (record.offset, record.timestamp, record.key, record.value)
        for batch in kafka_python_batches(made)
        for record in batch
    ]
    assert found == [before[index] for index in (2, 3, 4, 6)]


@pytest.mark.parametrize("fast", [True, False])
def test_memory_is_bound_by_live_keys_and_a_chunk(tmp_path: Path, fast: bool) -> None:
    """Not by the length of the log, and not by the size of a file."""
    folder, value = tmp_path / "__consumer_offsets-0", b"x" * 60
    batches = [Bat(tuple(Rec(b"key %d" % (number % 50), value) for _ in range(100))) for number in range(400)]
    write_files(Disk(), [batches, OPEN], folder)
    how = ALWAYS._replace(fast=fast, chunk_bytes=32 * 1024)
    compact(Disk(), folder, how, on_bytes_read=lambda size: None)  # what is imported and cached is no part of it
    for path in (segments_folder(folder), manifest_folder(folder)):
        shutil.rmtree(path)
    size = (folder / f"{0:020d}.log").stat().st_size
    assert size > 2_900_000
    tracemalloc.start()
    try:
        draft = compact(Disk(), folder, how)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert draft is not None and draft.records_after == 50
    assert peak < size / 4
