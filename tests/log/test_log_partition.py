"""Segments of one partition: appends, rolls, reads, and the cut of torn tails."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_helpers import TRANSACTIONAL, LazyDisk, TraceDisk, offset, with_attributes
from structlog.testing import capture_logs

from callboard.actors.records import OffsetRecord, OffsetValue, PendingOffsetRecord
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.format.batch import encode_batch, frame_record
from callboard.runtime.log.format.errors import DamagedBatch
from callboard.runtime.log.format.records import encode
from callboard.runtime.log.partition import Partition
from callboard.runtime.log.partitions import Partitions
from callboard.runtime.log.reading.segment import scan, segment_base, segment_name

BATCH_BYTES = len(encode_batch(0, 1, 1, [frame_record(0, 0, *encode(offset("g", 0)))]))


def batch(number: int, metadata: str = "") -> bytes:
    """A batch with one record at offset ``number``."""
    return encode_batch(number, 1, 1, [frame_record(0, 0, *encode(offset("g", number, metadata)))])


def open_partition(
    root: Path, segment_bytes: int = 10**6, disk: Disk | None = None, journal_from: int | None = None
) -> Partition:
    opened = Partition(disk or LazyDisk(), root, 7, segment_bytes)
    opened.open(journal_from)
    return opened


def write_partition(root: Path, count: int, segment_bytes: int = 10**6) -> Path:
    """A partition with ``count`` batches, closed; its last segment."""
    log = open_partition(root, segment_bytes)
    log.append([batch(number) for number in range(count)])
    log.close()
    return max(log.folder.iterdir())


def offsets(log: Partition) -> list[int]:
    actual = list(log.read())
    for log_offset, timestamp_ms, record in actual:
        assert isinstance(record, OffsetRecord) and record.value is not None
        assert (record.value.offset, timestamp_ms) == (log_offset, 1)
    return [log_offset for log_offset, _, _ in actual]


def test_partition_without_batches_has_no_folder(tmp_path: Path) -> None:
    """An empty data folder starts without fifty folders."""
    log = open_partition(tmp_path)
    assert (list(log.read()), log.end_offset, list(tmp_path.iterdir())) == ([], 0, [])


def test_segments_have_kafkas_names(tmp_path: Path) -> None:
    last_segment = write_partition(tmp_path, 3, segment_bytes=2 * BATCH_BYTES)
    assert sorted(str(path.relative_to(tmp_path)) for path in last_segment.parent.iterdir()) == [
        "__consumer_offsets-7/00000000000000000000.log",
        "__consumer_offsets-7/00000000000000000002.log",
    ]


@pytest.mark.parametrize(
    "name", ["0.log", "00000000000000000000.index", "x00000000000000000000.log", "0" * 20 + ".log.deleted"]
)
def test_other_names_are_not_segments(name: str) -> None:
    assert segment_base(name) is None


def test_segment_names_are_parsed() -> None:
    assert segment_base(segment_name(184478)) == 184478


def test_roll_syncs_the_old_segment_before_it_creates_the_next(tmp_path: Path) -> None:
    """Compaction relies on this: if a higher base exists, this segment is complete."""
    disk = TraceDisk()
    log = open_partition(tmp_path, 2 * BATCH_BYTES, disk)
    log.append([batch(0)])
    log.append([batch(1)])
    disk.trace.clear()
    log.append([batch(2)])
    first_name, second_name = segment_name(0), segment_name(2)
    folder = "__consumer_offsets-7"
    assert disk.trace == [
        ("sync", first_name),
        ("sync_folder", folder),
        ("create", second_name),
        ("sync_folder", folder),
        ("write", second_name),
    ]
    assert offsets(log) == [0, 1, 2]


def test_roll_splits_one_append(tmp_path: Path) -> None:
    log = open_partition(tmp_path, 2 * BATCH_BYTES)
    log.append([batch(number) for number in range(7)])
    log.close()
    assert [path.stat().st_size for path in sorted(log.folder.iterdir())] == [2 * BATCH_BYTES] * 3 + [BATCH_BYTES]
    reopened = open_partition(tmp_path, 2 * BATCH_BYTES)
    assert (offsets(reopened), reopened.end_offset) == (list(range(7)), 7)


def test_batch_larger_than_a_segment_gets_its_own_segment(tmp_path: Path) -> None:
    log = open_partition(tmp_path, 10)
    log.append([batch(0), batch(1)])
    assert offsets(log) == [0, 1]
    assert len(list(log.folder.iterdir())) == 2


def test_short_writes_are_continued(tmp_path: Path) -> None:
    disk = TraceDisk()
    disk.most_bytes = 5
    log = open_partition(tmp_path, disk=disk)
    log.append([batch(0), batch(1)])
    assert offsets(log) == [0, 1]


def test_write_of_no_bytes_raises(tmp_path: Path) -> None:
    disk = TraceDisk()
    disk.most_bytes = 0
    with pytest.raises(OSError, match="wrote none"):
        open_partition(tmp_path, disk=disk).append([batch(0)])


@pytest.mark.parametrize("tail_bytes", range(1, BATCH_BYTES))
def test_torn_tail_is_cut(tmp_path: Path, tail_bytes: int) -> None:
    """The last batch is incomplete: the file is cut after the one before, and appends continue there."""
    path = write_partition(tmp_path, 3)
    path.write_bytes(path.read_bytes()[: 2 * BATCH_BYTES + tail_bytes])
    with capture_logs() as lines:
        log = open_partition(tmp_path)
    assert [(line["event"], line["bytes"], line["log_level"]) for line in lines] == [
        ("torn tail cut", tail_bytes, "warning")
    ]
    if any(batch(2)[:tail_bytes]):
        assert Path(lines[0]["kept"]).read_bytes() == batch(2)[:tail_bytes]
    else:
        assert lines[0]["kept"] == "no, all zeros"
    assert (path.stat().st_size, log.end_offset) == (2 * BATCH_BYTES, 2)
    log.append([batch(2)])
    assert offsets(log) == [0, 1, 2]


def test_open_of_complete_log_logs_nothing(tmp_path: Path) -> None:
    write_partition(tmp_path, 3)
    with capture_logs() as lines:
        assert open_partition(tmp_path).end_offset == 3
    assert lines == []


@pytest.mark.parametrize("tail", [b"\0" * 300, b"\xff" * 300, b"\2" * 300, b"\0\0\0\0\0\0\0\3\0\0\0\x50"])
def test_arbitrary_tail_is_cut(tmp_path: Path, tail: bytes) -> None:
    """A file system leaves zeros if it had extended the file but not written the data."""
    path = write_partition(tmp_path, 3)
    path.write_bytes(path.read_bytes() + tail)
    with capture_logs():
        assert open_partition(tmp_path).end_offset == 3
    assert path.stat().st_size == 3 * BATCH_BYTES


@pytest.mark.parametrize("position", [8, 11, 16, 17, 30, BATCH_BYTES - 1])
def test_damage_in_the_middle_is_kept_and_reported(tmp_path: Path, position: int) -> None:
    """Later batches are valid, so the bytes were overwritten or lost: they are reported, and later batches are used."""
    path = write_partition(tmp_path, 3)
    damaged = bytearray(path.read_bytes())
    damaged[BATCH_BYTES + position] ^= 0x40
    path.write_bytes(damaged)
    log = open_partition(tmp_path)
    damages = log.damage_registry.damages()
    assert [damage[:3] + damage[4:6] for damage in damages] == [(path, BATCH_BYTES, BATCH_BYTES, 1, 2)]
    log.append([batch(3)])
    assert offsets(log) == [0, 2, 3]
    assert log.damage_registry.damages() == damages
    assert path.read_bytes() == damaged + batch(3)


@pytest.mark.parametrize(("journal_from", "is_cut"), [(0, True), (1, True), (2, False), (3, False)])
def test_damage_in_the_journals_zone_is_cut(tmp_path: Path, journal_from: int, is_cut: bool) -> None:
    """Batch 1 is damaged. Valid batches may follow in the unsynced zone only, which is written in any order."""
    path = write_partition(tmp_path, 3)
    damaged = bytearray(path.read_bytes())
    damaged[BATCH_BYTES + 40] ^= 1
    path.write_bytes(damaged)
    log = open_partition(tmp_path, journal_from=journal_from)
    assert log.end_offset == (1 if is_cut else 3)
    assert path.stat().st_size == (1 if is_cut else 3) * BATCH_BYTES
    assert len(log.damage_registry.damages()) == (0 if is_cut else 1)
    quarantined = path.with_name(path.name + ".torn-1")
    assert quarantined.exists() == is_cut
    if is_cut:
        assert quarantined.read_bytes() == damaged[BATCH_BYTES:]


def test_decreasing_offsets_are_damage(tmp_path: Path) -> None:
    path = write_partition(tmp_path, 2)
    path.write_bytes(path.read_bytes() + batch(0))
    with capture_logs() as lines:
        assert open_partition(tmp_path).end_offset == 2
    assert "offset 0, expected 2 or more" in lines[0]["reason"]


def test_empty_segment_is_appended_to(tmp_path: Path) -> None:
    """The process ended between the creation of the next segment and the first write to it."""
    path = write_partition(tmp_path, 3)
    (path.parent / segment_name(3)).touch()
    log = open_partition(tmp_path)
    assert log.end_offset == 3
    log.append([batch(3)])
    assert offsets(log) == [0, 1, 2, 3]


def test_offset_gaps_and_foreign_file_names_are_accepted(tmp_path: Path) -> None:
    """A compacted log has gaps, and Kafka keeps other files beside the segments."""
    path = write_partition(tmp_path, 1)
    path.write_bytes(batch(4) + batch(9))
    (path.parent / "00000000000000000000.index").write_bytes(b"x")
    log = open_partition(tmp_path)
    assert (offsets(log), log.end_offset) == ([4, 9], 10)


def test_read_excludes_later_appends(tmp_path: Path) -> None:
    """An iterator returns the log as of its creation, even across a roll."""
    log = open_partition(tmp_path, 2 * BATCH_BYTES)
    log.append([batch(0)])
    records = log.read()
    log.append([batch(1), batch(2)])
    assert [log_offset for log_offset, _, _ in records] == [0]


def test_transactional_offsets_are_read_as_pending(tmp_path: Path) -> None:
    path = write_partition(tmp_path, 2)
    transactional = (2).to_bytes(8, "big") + TRANSACTIONAL[8:]
    path.write_bytes(path.read_bytes() + transactional + batch(3))
    records = [record for _, _, record in open_partition(tmp_path).read()]
    value = OffsetValue(42, 3, "x", 1_700_000_000_000)
    assert records[2] == PendingOffsetRecord("g", "t", 0, value, 1000, 2)
    assert all(isinstance(records[index], OffsetRecord) for index in (0, 1, 3))


def test_damage_in_a_closed_segment_is_registered_when_read(tmp_path: Path) -> None:
    last_segment = write_partition(tmp_path, 4, 2 * BATCH_BYTES)
    first_segment = last_segment.parent / segment_name(0)
    first_segment.write_bytes(first_segment.read_bytes()[:-1] + b"\xff")
    log = open_partition(tmp_path)
    assert log.damage_registry.damages() == []
    assert offsets(log) == [0, 2, 3]
    assert [damage[:3] + damage[4:] for damage in log.damage_registry.damages()] == [
        (first_segment, BATCH_BYTES, BATCH_BYTES, 1, 2, True)
    ]


def test_batch_of_unknown_codec_opens_but_cannot_be_read(tmp_path: Path) -> None:
    path = write_partition(tmp_path, 1)
    path.write_bytes(path.read_bytes() + with_attributes(batch(1), 5))
    log = open_partition(tmp_path)
    assert log.end_offset == 2
    with pytest.raises(ValueError, match="compressed with codec 5"):
        offsets(log)


@pytest.mark.parametrize("chunk_bytes", [12, 61, BATCH_BYTES - 1, BATCH_BYTES, BATCH_BYTES + 1, 1000])
def test_scan_finds_batches_with_any_chunk_size(tmp_path: Path, chunk_bytes: int) -> None:
    """Small chunks, a batch larger than a chunk, and a truncated end with each chunk size."""
    path = write_partition(tmp_path, 3)
    path.write_bytes(path.read_bytes() + batch(3, "m" * 500) + batch(4))
    actual = [(found_batch.position, found_batch.base_offset) for found_batch in scan(Disk(), path, None, chunk_bytes)]
    last_position = 3 * BATCH_BYTES + len(batch(3, "m" * 500))
    assert actual == [(0, 0), (BATCH_BYTES, 1), (2 * BATCH_BYTES, 2), (3 * BATCH_BYTES, 3), (last_position, 4)]
    content = path.read_bytes()
    for missing in (1, BATCH_BYTES - 5, BATCH_BYTES + 100):
        path.write_bytes(content[:-missing])
        with pytest.raises(DamagedBatch, match="cut off"):
            list(scan(Disk(), path, None, chunk_bytes))


@pytest.mark.parametrize("tail_bytes", [0, 11, 12, 60, BATCH_BYTES - 1])
def test_file_truncated_during_a_scan_raises(tmp_path: Path, tail_bytes: int) -> None:
    path = write_partition(tmp_path, 4)
    path.write_bytes(path.read_bytes()[: 3 * BATCH_BYTES + tail_bytes])
    with pytest.raises(DamagedBatch, match="cut off"):
        list(scan(Disk(), path, 4 * BATCH_BYTES))


def test_open_with_surplus_partition_folder_is_refused(tmp_path: Path) -> None:
    """A server would look for groups in the wrong partitions."""
    write_partition(tmp_path, 1)
    with pytest.raises(StartError, match="found __consumer_offsets-7, expected partitions 0 to 4 only"):
        Partitions(Disk(), tmp_path, 5, 100).open({})
