"""Reading a partition from outside: all that is whole, nothing that is torn, and not a byte changed."""

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


def written(root: Path, count: int, a_segment: int = 10**6) -> Path:
    """The folder of a closed partition with ``count`` batches, ``a_segment`` of them in each segment."""
    partition = Partition(LazyDisk(), root, 7, a_segment * BATCH_BYTES)
    partition.open(None)
    partition.append([batch(number) for number in range(count)])
    partition.close()
    return partition.folder


def offsets(folder: Path, disk: Disk | None = None) -> list[int]:
    """What is read of a folder in which nothing is damaged."""
    found, damages = offsets_and_damages(folder, disk)
    assert damages == []
    return found


def offsets_and_damages(folder: Path, disk: Disk | None = None) -> tuple[list[int], list[Damage]]:
    damages: list[Damage] = []
    return [log_offset for log_offset, _, _ in read_partition(folder, disk, damages.append)], damages


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def test_it_reads_what_the_partition_itself_reads(tmp_path: Path) -> None:
    folder = written(tmp_path, 10, a_segment=3)
    assert len(list(folder.iterdir())) == 4
    partition = Partition(Disk(), tmp_path, 7, 1)
    partition.open(None)
    expected = list(partition.read())
    partition.close()
    assert list(read_partition(folder)) == expected
    assert [log_offset for log_offset, _, _ in expected] == list(range(10))


def test_a_folder_that_a_server_holds_is_read_without_a_change(tmp_path: Path) -> None:
    """What the server has acknowledged is there once it is laid into the files, whose names and bytes stay."""
    with DataFolder(tmp_path, 5):
        log = OffsetsLog(tmp_path, 5, disk=LazyDisk())
        log.open()
        append(log, [entry(2, 1), entry(2, 2), entry(4, 3)])
        log.read(2)  # waits until everything is in the files
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        disk = TraceDisk()
        read = {number: offsets(path, disk) for number, path in partition_folders(tmp_path, disk).items()}
        assert read == {2: [0, 1], 4: [0]}
        assert disk.trace == []
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        log.close()


@given(size=st.integers(0, 3 * BATCH_BYTES))
def test_a_torn_end_is_where_it_stops(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    folder = written(tmp_path_factory.mktemp("torn"), 5, a_segment=2)
    last = folder / "00000000000000000004.log"
    last.write_bytes((batch(4) + batch(5) + batch(6))[:size])
    assert offsets(folder) == list(range(4 + size // BATCH_BYTES))
    assert last.stat().st_size == size


@given(position=st.integers(0, 3 * BATCH_BYTES - 1))
def test_one_wrong_byte_costs_its_batch_and_is_named(tmp_path_factory: pytest.TempPathFactory, position: int) -> None:
    """Kafka's checksum leaves out base offset and leader epoch; a wrong offset shows when those behind it go back."""
    folder = written(tmp_path_factory.mktemp("flipped"), 3)
    flip(folder / FIRST_SEGMENT, position)
    number, at = divmod(position, BATCH_BYTES)
    found, damages = offsets_and_damages(folder)
    if at in range(12, 16):
        assert (found, damages) == ([0, 1, 2], [])
    elif number == 2:
        assert found[:2] == [0, 1] and damages == []
        assert at < 8 or len(found) == 2
    else:
        assert found == [each for each in range(3) if each != number]
        (damage,) = damages
        assert damage[:3] == (folder / FIRST_SEGMENT, number * BATCH_BYTES, BATCH_BYTES)
        assert damage.lost == f"{number} to {number}"


def test_a_closed_segment_that_is_torn_has_lost_what_the_next_one_does_not_hold(tmp_path: Path) -> None:
    folder = written(tmp_path, 3, a_segment=2)
    (folder / FIRST_SEGMENT).write_bytes(batch(0) + batch(1)[:-1])
    found, (damage,) = offsets_and_damages(folder)
    assert (found, damage.path, damage.position) == ([0, 2], folder / FIRST_SEGMENT, BATCH_BYTES)
    assert damage.lost == "1 to 1"


def test_a_partition_that_is_damaged_reads_as_its_server_reads_it(tmp_path: Path) -> None:
    folder = written(tmp_path, 9, a_segment=3)
    for path, position in zip(sorted(folder.iterdir()), (30, BATCH_BYTES + 30, 40), strict=True):
        flip(path, position)
    partition = Partition(Disk(), tmp_path, 7, 1)
    partition.open(None)
    expected = [log_offset for log_offset, _, _ in partition.read()]
    partition.close()
    found, damages = offsets_and_damages(folder)
    assert found == expected == [1, 2, 3, 5, 7, 8]
    assert damages == partition.quarantine.damages()


def test_offsets_that_go_back_are_damage(tmp_path: Path) -> None:
    folder = written(tmp_path, 3)
    (folder / FIRST_SEGMENT).write_bytes(batch(0) + batch(1) + batch(1) + batch(2))
    found, (damage,) = offsets_and_damages(folder)
    assert (found, damage.position, damage.lost) == ([0, 1, 2], 2 * BATCH_BYTES, "none")
    assert damage.reason == "offset 1, expected 2 or more"


def test_a_record_that_cannot_be_read_is_named_by_file_and_byte(tmp_path: Path) -> None:
    folder = written(tmp_path, 1)
    strange = encode_batch(1, 1, 1, [frame_record(0, 0, b"\0\1", b""), frame_record(0, 1, *encode(offset("g", 2)))])
    (folder / FIRST_SEGMENT).write_bytes(batch(0) + strange)
    found, (damage,) = offsets_and_damages(folder)
    assert (found, damage.position, damage.lost) == ([0, 2], BATCH_BYTES, "1 to 1")
    assert damage.reason.startswith("record at offset 1: ")


def test_records_that_do_not_fit_their_batch_are_damage(tmp_path: Path) -> None:
    """Its checksum is right, so somebody has written it so."""
    folder = written(tmp_path, 1)
    strange = encode_batch(1, 1, 1, [frame_record(0, 0, *encode(offset("g", 1))), b"\x7f"])
    (folder / FIRST_SEGMENT).write_bytes(batch(0) + strange + batch(3))
    found, (damage,) = offsets_and_damages(folder)
    assert (found, damage.position, damage.lost) == ([0, 1, 3], BATCH_BYTES, "2 to 2")


def test_who_does_not_ask_for_the_damages_finds_them_in_the_log(tmp_path: Path) -> None:
    folder = written(tmp_path, 3)
    flip(folder / FIRST_SEGMENT, 30)
    with capture_logs() as lines:
        assert {key: log_offset for key, (log_offset, _) in live_offsets(folder).items()} == {("g", "t", 0): 2}
        assert live_groups(folder) == {}
    told = [(line["event"], line["file"], line["byte"], line["lost_offsets"]) for line in lines]
    assert told == [("damage in the log", str(folder / FIRST_SEGMENT), 0, "0 to 0")] * 2


def test_batches_of_an_unknown_codec_are_refused_by_name(tmp_path: Path) -> None:
    folder = written(tmp_path, 1)
    (folder / FIRST_SEGMENT).write_bytes(with_attributes(batch(0), 5))
    with pytest.raises(UnsupportedCompression, match="codec 5"):
        offsets(folder)


@pytest.mark.parametrize(
    ("endings", "expected"),
    [
        ((), {}),  # the transaction is open
        (("commit",), {("g", "t", 0): (0, 42)}),
        (("abort",), {}),
        (("abort", "commit"), {}),  # what has ended cannot end again
        (("plain",), {("g", "t", 0): (1, 60)}),
        (("plain", "commit"), {("g", "t", 0): (1, 60)}),  # the plain commit lies later in the log
        (("plain", "abort"), {("g", "t", 0): (1, 60)}),
        (("tombstone", "commit"), {}),
    ],
)
def test_offsets_of_a_transaction_count_when_it_has_committed(
    tmp_path: Path, endings: tuple[str, ...], expected: dict[object, object]
) -> None:
    folder = written(tmp_path, 1)
    batches = [bytes(8) + TRANSACTIONAL[8:]]  # at offset 0
    batches += [ending(kind, number) for number, kind in enumerate(endings, 1)]
    (folder / FIRST_SEGMENT).write_bytes(b"".join(batches))
    found = {key: (log_offset, value.offset) for key, (log_offset, value) in live_offsets(folder).items()}
    assert found == expected


def ending(kind: str, number: int) -> bytes:
    """A batch at offset ``number`` that follows the transaction of producer 1000."""
    if kind in ("commit", "abort"):
        pair = encode_marker(MarkerRecord(1000, 2, kind == "commit"))
        return encode_batch(number, 1, 1, [frame_record(0, 0, *pair)], Producer(1000, 2, is_control=True))
    record = OffsetRecord("g", "t", 0, OffsetValue(60) if kind == "plain" else None)
    return encode_batch(number, 1, 1, [frame_record(0, 0, *encode(record))])


class GrowingDisk(Disk):
    """The real disk with a server at work: something is written each time before a file is read."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = list(steps)

    def read(self, fd: int, size: int, position: int) -> bytes:
        if self._steps:
            self._steps.pop(0)()
        return super().read(fd, size, position)


def test_what_comes_while_it_reads_is_left_for_the_next_time(tmp_path: Path) -> None:
    """The file has grown, even by a whole segment, between the look at its size and the reading."""
    folder = written(tmp_path, 2)
    path = folder / FIRST_SEGMENT
    path.write_bytes(b"".join(map(batch, range(3))) + batch(3)[:20])
    steps = [
        lambda: path.write_bytes(b"".join(map(batch, range(9)))),
        lambda: (folder / "00000000000000000009.log").write_bytes(batch(9)),
    ]
    assert offsets(folder, GrowingDisk(*steps)) == [0, 1, 2]
    assert offsets(folder) == list(range(10))


def test_a_batch_that_is_finished_while_it_is_judged_is_no_damage(tmp_path: Path) -> None:
    """First seen half written, with room for what follows; whole, with that behind it, a moment later."""
    folder = written(tmp_path, 1)
    path = folder / FIRST_SEGMENT
    whole = b"".join(map(batch, range(3)))
    path.write_bytes(batch(0) + batch(1)[:30] + bytes(len(whole) - BATCH_BYTES - 30))
    assert offsets(folder, GrowingDisk(int, lambda: path.write_bytes(whole))) == [0]
    assert offsets(folder) == [0, 1, 2]


def test_the_newest_of_each_key_lives_unless_it_is_a_tombstone(tmp_path: Path) -> None:
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


def test_partitions_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("__consumer_offsets-10", "__consumer_offsets-9", "__consumer_offsets-x", "orders-1", "journal"):
        (tmp_path / name).mkdir()
    assert list(partition_folders(tmp_path)) == [9, 10]


def test_a_new_data_folder_has_no_partitions_yet(tmp_path: Path) -> None:
    DataFolder(tmp_path).close()
    assert partition_folders(tmp_path) == {}


def test_what_is_no_data_folder_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "absent", tmp_path / "file"):
        with pytest.raises(FileNotFoundError, match=f"{path}: found no folder"):
            partition_folders(path)
        with pytest.raises(FileNotFoundError, match=f"{path}: found no folder"):
            offsets(path)
    with pytest.raises(FileNotFoundError, match=r"neither callboard\.json nor a folder __consumer_offsets-N"):
        partition_folders(tmp_path)
