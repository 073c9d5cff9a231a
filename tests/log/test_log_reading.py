"""Reading of a partition from another process: all complete batches, no torn ones, and no byte is changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_helpers import TRANSACTIONAL, LazyDisk, TraceDisk, append, entry, offset, with_attributes
from structlog.testing import capture_logs

from callboard.actors.ports import Entry
from callboard.actors.records import GroupRecord, GroupValue, MarkerRecord, OffsetRecord, OffsetValue, Record
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.format.batch import Producer, encode_batch, frame_record
from callboard.runtime.log.format.errors import Damage, UnsupportedCompression
from callboard.runtime.log.format.records import encode
from callboard.runtime.log.format.transaction_records import encode_marker
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.partition import Partition
from callboard.runtime.log.reading.partition_reader import (
    live_groups,
    live_offsets,
    partition_folders,
    read_partition,
)

FIRST_SEGMENT = "00000000000000000000.log"


def batch(number: int) -> bytes:
    """A batch with one record at offset ``number``."""
    return encode_batch(number, 1, 1, [frame_record(0, 0, *encode(offset("g", number)))])


BATCH_BYTES = len(batch(0))


def write_partition(root: Path, count: int, batches_per_segment: int = 10**6) -> Path:
    """The folder of a closed partition with ``count`` batches, ``a_segment`` of them in each segment."""
    partition = Partition(LazyDisk(), root, 7, batches_per_segment * BATCH_BYTES)
    partition.open(None)
    partition.append([batch(number) for number in range(count)])
    partition.close()
    return partition.folder


def offsets(folder: Path, disk: Disk | None = None) -> list[int]:
    """The records of a folder without damage."""
    actual, damages = offsets_and_damages(folder, disk)
    assert damages == []
    return actual


def offsets_and_damages(folder: Path, disk: Disk | None = None) -> tuple[list[int], list[Damage]]:
    damages: list[Damage] = []
    return [log_offset for log_offset, _, _ in read_partition(folder, disk, damages.append)], damages


def flip_byte(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def test_read_partition_equals_partition_read(tmp_path: Path) -> None:
    folder = write_partition(tmp_path, 10, batches_per_segment=3)
    assert len(list(folder.iterdir())) == 4
    partition = Partition(Disk(), tmp_path, 7, 1)
    partition.open(None)
    expected = list(partition.read())
    partition.close()
    assert list(read_partition(folder)) == expected
    assert [log_offset for log_offset, _, _ in expected] == list(range(10))


def test_folder_in_use_is_read_without_changes(tmp_path: Path) -> None:
    """Acknowledged records are read once they are flushed, and no file is changed."""
    with DataFolder(tmp_path, 5):
        log = OffsetsLog(tmp_path, 5, disk=LazyDisk())
        log.open()
        append(log, [entry(2, 1), entry(2, 2), entry(4, 3)])
        log.read(2)  # waits for the flush
        files_before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        disk = TraceDisk()
        offsets_by_partition = {
            number: offsets(path, disk) for number, path in partition_folders(tmp_path, disk).items()
        }
        assert offsets_by_partition == {2: [0, 1], 4: [0]}
        assert disk.trace == []
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files_before
        log.close()


@given(size=st.integers(0, 3 * BATCH_BYTES))
def test_read_ends_at_a_torn_end(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    folder = write_partition(tmp_path_factory.mktemp("torn"), 5, batches_per_segment=2)
    last_segment = folder / "00000000000000000004.log"
    last_segment.write_bytes((batch(4) + batch(5) + batch(6))[:size])
    assert offsets(folder) == list(range(4 + size // BATCH_BYTES))
    assert last_segment.stat().st_size == size


@given(position=st.integers(0, 3 * BATCH_BYTES - 1))
def test_wrong_byte_loses_its_batch_and_is_reported(tmp_path_factory: pytest.TempPathFactory, position: int) -> None:
    """Kafka's checksum does not cover base offset and leader epoch; a wrong offset shows when later ones are lower."""
    folder = write_partition(tmp_path_factory.mktemp("flipped"), 3)
    flip_byte(folder / FIRST_SEGMENT, position)
    number, at = divmod(position, BATCH_BYTES)
    actual, damages = offsets_and_damages(folder)
    if at in range(12, 16):
        assert (actual, damages) == ([0, 1, 2], [])
    elif number == 2:
        assert actual[:2] == [0, 1] and damages == []
        assert at < 8 or len(actual) == 2
    else:
        assert actual == [value for value in range(3) if value != number]
        (damage,) = damages
        assert damage[:3] == (folder / FIRST_SEGMENT, number * BATCH_BYTES, BATCH_BYTES)
        assert damage.lost == f"{number} to {number}"


def test_torn_closed_segment_reports_offsets_up_to_the_next(tmp_path: Path) -> None:
    folder = write_partition(tmp_path, 3, batches_per_segment=2)
    (folder / FIRST_SEGMENT).write_bytes(batch(0) + batch(1)[:-1])
    actual, (damage,) = offsets_and_damages(folder)
    assert (actual, damage.path, damage.position) == ([0, 2], folder / FIRST_SEGMENT, BATCH_BYTES)
    assert damage.lost == "1 to 1"


def test_damaged_partition_reads_as_in_the_server(tmp_path: Path) -> None:
    folder = write_partition(tmp_path, 9, batches_per_segment=3)
    for path, position in zip(sorted(folder.iterdir()), (30, BATCH_BYTES + 30, 40), strict=True):
        flip_byte(path, position)
    partition = Partition(Disk(), tmp_path, 7, 1)
    partition.open(None)
    expected = [log_offset for log_offset, _, _ in partition.read()]
    partition.close()
    actual, damages = offsets_and_damages(folder)
    assert actual == expected == [1, 2, 3, 5, 7, 8]
    assert damages == partition.damage_registry.damages()


def test_decreasing_offsets_are_damage(tmp_path: Path) -> None:
    folder = write_partition(tmp_path, 3)
    (folder / FIRST_SEGMENT).write_bytes(batch(0) + batch(1) + batch(1) + batch(2))
    actual, (damage,) = offsets_and_damages(folder)
    assert (actual, damage.position, damage.lost) == ([0, 1, 2], 2 * BATCH_BYTES, "none")
    assert damage.reason == "offset 1, expected 2 or more"


def test_malformed_record_error_names_file_and_byte(tmp_path: Path) -> None:
    folder = write_partition(tmp_path, 1)
    invalid_batch = encode_batch(
        1, 1, 1, [frame_record(0, 0, b"\0\1", b""), frame_record(0, 1, *encode(offset("g", 2)))]
    )
    (folder / FIRST_SEGMENT).write_bytes(batch(0) + invalid_batch)
    actual, (damage,) = offsets_and_damages(folder)
    assert (actual, damage.position, damage.lost) == ([0, 2], BATCH_BYTES, "1 to 1")
    assert damage.reason.startswith("record at offset 1: ")


def test_records_that_do_not_match_their_batch_are_damage(tmp_path: Path) -> None:
    """The checksum is correct, so the disk returned the bytes that were written."""
    folder = write_partition(tmp_path, 1)
    mismatched_batch = encode_batch(1, 1, 1, [frame_record(0, 0, *encode(offset("g", 1))), b"\x7f"])
    (folder / FIRST_SEGMENT).write_bytes(batch(0) + mismatched_batch + batch(3))
    actual, (damage,) = offsets_and_damages(folder)
    assert (actual, damage.position, damage.lost) == ([0, 1, 3], BATCH_BYTES, "2 to 2")


def test_read_without_damage_list_logs_damage(tmp_path: Path) -> None:
    folder = write_partition(tmp_path, 3)
    flip_byte(folder / FIRST_SEGMENT, 30)
    with capture_logs() as lines:
        assert {key: log_offset for key, (log_offset, _) in live_offsets(folder).items()} == {("g", "t", 0): 2}
        assert live_groups(folder) == {}
    actual = [(line["event"], line["file"], line["byte"], line["lost_offsets"]) for line in lines]
    assert actual == [("damage in the log", str(folder / FIRST_SEGMENT), 0, "0 to 0")] * 2


def test_batch_of_unknown_codec_is_refused_with_its_name(tmp_path: Path) -> None:
    folder = write_partition(tmp_path, 1)
    (folder / FIRST_SEGMENT).write_bytes(with_attributes(batch(0), 5))
    with pytest.raises(UnsupportedCompression, match="codec 5"):
        offsets(folder)


@pytest.mark.parametrize(
    ("endings", "expected"),
    [
        ((), {}),  # the transaction is open
        (("commit",), {("g", "t", 0): (0, 42)}),
        (("abort",), {}),
        (("abort", "commit"), {}),  # an ended transaction cannot end again
        (("plain",), {("g", "t", 0): (1, 60)}),
        (("plain", "commit"), {("g", "t", 0): (1, 60)}),  # the commit without a transaction is later in the log
        (("plain", "abort"), {("g", "t", 0): (1, 60)}),
        (("tombstone", "commit"), {}),
    ],
)
def test_transactional_offsets_count_after_the_commit(
    tmp_path: Path, endings: tuple[str, ...], expected: dict[object, object]
) -> None:
    folder = write_partition(tmp_path, 1)
    batches = [bytes(8) + TRANSACTIONAL[8:]]  # at offset 0
    batches += [batch_after_transaction(kind, number) for number, kind in enumerate(endings, 1)]
    (folder / FIRST_SEGMENT).write_bytes(b"".join(batches))
    actual = {key: (log_offset, value.offset) for key, (log_offset, value) in live_offsets(folder).items()}
    assert actual == expected


def batch_after_transaction(kind: str, number: int) -> bytes:
    """A batch at offset ``number`` that follows the transaction of producer 1000."""
    if kind in ("commit", "abort"):
        pair = encode_marker(MarkerRecord(1000, 2, kind == "commit"))
        return encode_batch(number, 1, 1, [frame_record(0, 0, *pair)], Producer(1000, 2, is_control=True))
    record = OffsetRecord("g", "t", 0, OffsetValue(60) if kind == "plain" else None)
    return encode_batch(number, 1, 1, [frame_record(0, 0, *encode(record))])


class GrowingDisk(Disk):
    """The real disk with a running server: a write happens before each read of a file."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = list(steps)

    def read(self, fd: int, size: int, position: int) -> bytes:
        if self._steps:
            self._steps.pop(0)()
        return super().read(fd, size, position)


def test_appends_during_a_read_are_not_returned(tmp_path: Path) -> None:
    """The file grows, even by a whole segment, between the check of its size and the read."""
    folder = write_partition(tmp_path, 2)
    path = folder / FIRST_SEGMENT
    path.write_bytes(b"".join(map(batch, range(3))) + batch(3)[:20])
    steps = [
        lambda: path.write_bytes(b"".join(map(batch, range(9)))),
        lambda: (folder / "00000000000000000009.log").write_bytes(batch(9)),
    ]
    assert offsets(folder, GrowingDisk(*steps)) == [0, 1, 2]
    assert offsets(folder) == list(range(10))


def test_batch_completed_during_the_check_is_not_damage(tmp_path: Path) -> None:
    """The batch is first read half written, and complete with a successor a moment later."""
    folder = write_partition(tmp_path, 1)
    path = folder / FIRST_SEGMENT
    complete = b"".join(map(batch, range(3)))
    path.write_bytes(batch(0) + batch(1)[:30] + bytes(len(complete) - BATCH_BYTES - 30))
    assert offsets(folder, GrowingDisk(int, lambda: path.write_bytes(complete))) == [0]
    assert offsets(folder) == [0, 1, 2]


def test_live_records_are_the_newest_of_each_key(tmp_path: Path) -> None:
    group = GroupValue("consumer", 1, "range", None, 5, ())
    records: list[Record] = [
        offset("g", 1),
        offset("g", 2, partition=1),
        GroupRecord("g", group._replace(generation=0)),
        OffsetRecord("g", "t", 0, None),
        offset("dead", 3),
        GroupRecord("dead", group),
        offset("g", 4),
        OffsetRecord("dead", "t", 0, None),
        GroupRecord("dead", None),
        GroupRecord("g", group),
        OffsetRecord("never", "t", 0, None),
    ]
    log = OffsetsLog(tmp_path, 1, disk=LazyDisk())
    log.open()
    for record in records:
        append(log, [Entry(0, (record,))])
    log.close()
    folder = partition_folders(tmp_path)[0]
    assert live_offsets(folder) == {
        ("g", "t", 1): (1, OffsetValue(2, -1, "", 5)),
        ("g", "t", 0): (6, OffsetValue(4, -1, "", 5)),
    }
    assert live_groups(folder) == {"g": (9, group)}


def test_partitions_are_sorted_by_number(tmp_path: Path) -> None:
    for name in ("__consumer_offsets-10", "__consumer_offsets-9", "__consumer_offsets-x", "orders-1", "journal"):
        (tmp_path / name).mkdir()
    assert list(partition_folders(tmp_path)) == [9, 10]


def test_new_data_folder_has_no_partitions(tmp_path: Path) -> None:
    DataFolder(tmp_path).close()
    assert partition_folders(tmp_path) == {}


def test_other_folder_is_not_a_data_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "absent", tmp_path / "file"):
        with pytest.raises(FileNotFoundError, match=f"{path}: found no folder"):
            partition_folders(path)
        with pytest.raises(FileNotFoundError, match=f"{path}: found no folder"):
            offsets(path)
    with pytest.raises(FileNotFoundError, match=r"neither callboard\.json nor a folder __consumer_offsets-N"):
        partition_folders(tmp_path)
