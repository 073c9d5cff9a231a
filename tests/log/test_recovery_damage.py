"""A start with any changed byte, any truncated file or any removed file.

The log is small and has closed segments, an open one, two journal files, and batches that only the journal has. After
any damage, a start serves no record that was not written, loses no record elsewhere, and reports what is lost; or it is
refused with advice.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from log_helpers import LazyDisk, TraceDisk, append, entry
from structlog.testing import capture_logs

from callboard.actors.records import OffsetRecord
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log import journal
from callboard.runtime.log.format.batch import read_batches
from callboard.runtime.log.journal import journal_salt, read_rounds, scan_journal
from callboard.runtime.log.journal_frames import FRAME_HEAD_BYTES
from callboard.runtime.log.offsets_log import OffsetsLog

PARTITIONS = 2
SEGMENT_BYTES = 330  # three batches

RecordId = tuple[int, int]
"""A record: its partition and its committed value."""


@pytest.fixture(autouse=True)
def _short_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ZEROS", bytes(512))


def open_log(root: Path) -> OffsetsLog:
    log = OffsetsLog(
        root,
        PARTITIONS,
        disk=LazyDisk(),
        segment_bytes=SEGMENT_BYTES,
        checkpoint_bytes=10**9,
        threads=InlineThreads(),
    )
    log.open()
    return log


class DamagedLog(NamedTuple):
    """A killed log. ``ranges``: for each file, the start and end of its batches or rounds, and their records."""

    root: Path
    values: dict[int, list[int]]
    ranges: dict[str, list[tuple[int, int, list[RecordId]]]]

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file())

    def closed(self) -> set[str]:
        """The segments that are not the last of their partition."""
        segments = [name for name in self.ranges if name.endswith(".log")]
        return {
            name
            for name in segments
            if any(name[:-25] == other_name[:-25] and name < other_name for other_name in segments)
        }

    def is_in_another_file(self, record: RecordId, name: str) -> bool:
        """Whether a start also reads the record from another file. Closed segments are not replayed."""
        return name not in self.closed() and any(
            record in records_of_batch
            for file, ranges in self.ranges.items()
            if file != name
            for *_, records_of_batch in ranges
        )


@pytest.fixture(scope="module")
def killed_log(tmp_path_factory: pytest.TempPathFactory) -> DamagedLog:
    """Rounds 0 to 6 are only in the partitions, 7 to 9 in both, 10 and 11 only in the journal.

    7 and 8 are in a closed segment of partition 0, which is not replayed, because it was synced when it was closed.
    """
    root = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "ZEROS", bytes(512))
        log = open_log(root / "live")
        appended: dict[int, list[int]] = {0: [], 1: []}
        for number in range(7):
            append_round(log, number, appended)
        log.close()
        log = open_log(root / "live")
        for number in range(7, 10):
            append_round(log, number, appended)
        for partition in appended:
            list(log.read(partition))  # flushes everything to the partition files
        shutil.copytree(root / "live", root / "earlier")
        for number in range(10, 12):
            append_round(log, number, appended)
        shutil.copytree(root / "live" / "journal", root / "earlier" / "journal", dirs_exist_ok=True)
        log.close()
    return DamagedLog(root / "earlier", appended, find_ranges(root / "earlier"))


def append_round(log: OffsetsLog, number: int, appended: dict[int, list[int]]) -> None:
    partitions = [partition for partition in (0, 1) if partition == 0 or number % 2]
    append(log, [entry(partition, number) for partition in partitions])
    for partition in partitions:
        appended[partition].append(number)


def find_ranges(root: Path) -> dict[str, list[tuple[int, int, list[RecordId]]]]:
    actual: dict[str, list[tuple[int, int, list[RecordId]]]] = {}
    for path in sorted(root.glob("__consumer_offsets-*/*.log")):
        partition = int(path.parent.name[-1])
        actual[str(path.relative_to(root))] = [
            (batch.position, batch.position + batch.size, records_of_batch(partition, bytes(batch.data)))
            for batch in read_batches(path.read_bytes())
        ]
    for path in sorted(root.glob("journal/*.journal")):
        data = path.read_bytes()
        scan = scan_journal(data, journal_salt(path.name))
        rounds = zip(scan.rounds, read_rounds(data, scan), strict=True)
        actual[str(path.relative_to(root))] = [
            (
                position - FRAME_HEAD_BYTES,
                end,
                [
                    record
                    for partition_and_batch in batches
                    for record in records_of_batch(partition_and_batch[0], bytes(partition_and_batch[1]))
                ],
            )
            for (position, end), batches in rounds
        ]
    return actual


def records_of_batch(partition: int, batch: bytes) -> list[RecordId]:
    """The records of a batch; the committed offset is 8 bytes after the value's version."""
    actual = []
    for decoded in read_batches(batch):
        for *_, value in decoded.records():
            assert value is not None
            actual.append((partition, int.from_bytes(value[2:10], "big")))
    return actual


def start_and_check(
    killed_log: DamagedLog, root: Path, name: str, damaged_records: list[RecordId], is_detectable: bool = True
) -> None:
    """Start on a damaged copy. ``damaged_records``: records whose bytes in that file were changed or removed."""
    try:
        with capture_logs() as lines:
            log = open_log(root)
            actual = {partition: values(log, partition) for partition in killed_log.values}
            damages = log.damages()
            outcome = append(log, [entry(0, 99)])[0]
            assert outcome.error == 0
            assert values(log, 0) == [*actual[0], 99]
            log.close()
    except StartError as error:
        assert str(root) in str(error) and "expected" in str(error) and ";" in str(error)
        return
    lost = {(partition, value) for partition, appended in killed_log.values.items() for value in appended}
    lost -= {(partition, value) for partition, read_values in actual.items() for value in read_values}
    assert lost <= {record for record in damaged_records if not killed_log.is_in_another_file(record, name)}
    for partition, read_values in actual.items():
        assert read_values == sorted(set(read_values) & set(killed_log.values[partition]))
    assert not (lost and is_detectable) or damages or any(line["log_level"] == "warning" for line in lines)


def values(log: OffsetsLog, partition: int) -> list[int]:
    records = [record for _, _, record in log.read(partition)]
    return [record.value.offset for record in records if isinstance(record, OffsetRecord) and record.value is not None]


def copies_of(killed_log: DamagedLog, tmp_path: Path) -> Iterator[Path]:
    number = 0
    while True:
        root = tmp_path / str(number)
        shutil.copytree(killed_log.root, root)
        yield root
        shutil.rmtree(root)
        number += 1


def data_files(killed_log: DamagedLog) -> list[str]:
    return list(killed_log.ranges)


def test_damaged_folder_has_files_of_all_kinds(killed_log: DamagedLog) -> None:
    names = data_files(killed_log)
    assert sum(name.endswith(".log") for name in names) == 6
    assert sum(name.endswith(".journal") for name in names) == 1
    in_one_file = [
        record
        for name in names
        for *_, records in killed_log.ranges[name]
        for record in records
        if not killed_log.is_in_another_file(record, name)
    ]
    assert {value for _, value in in_one_file} == {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))])
def test_start_with_any_changed_byte_loses_only_reported_records(
    killed_log: DamagedLog, tmp_path: Path, seed: int
) -> None:
    """Flips one bit, or all bits, at every 13th byte of every file, beginning at another byte for each seed."""
    source = random.Random(seed)
    roots = copies_of(killed_log, tmp_path)
    for name in data_files(killed_log):
        size = killed_log.ranges[name][-1][1]
        for position in range(seed, size, 13):
            root = next(roots)
            flip_bits(root / name, position, source.choice((0xFF, 1 << source.randrange(8))))
            damaged_records = [
                record
                for start, end, records in killed_log.ranges[name]
                if start <= position < end
                for record in records
            ]
            start_and_check(killed_log, root, name, damaged_records)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_start_with_any_truncated_file_loses_only_reported_records(
    killed_log: DamagedLog, tmp_path: Path, seed: int
) -> None:
    roots = copies_of(killed_log, tmp_path)
    for name in data_files(killed_log):
        for size in range(seed * 7, killed_log.ranges[name][-1][1], 17):
            root = next(roots)
            path = root / name
            path.write_bytes(path.read_bytes()[:size])
            damaged_records = [
                record for start, end, records in killed_log.ranges[name] if end > size for record in records
            ]
            valid_bytes = max((end for _, end, _ in killed_log.ranges[name] if end <= size), default=0)
            looks_complete = name.endswith(".journal") and not any(
                path.read_bytes()[valid_bytes:]
            )  # cannot be detected
            start_and_check(killed_log, root, name, damaged_records, is_detectable=not looks_complete)


def test_start_with_any_removed_file_loses_only_reported_records(killed_log: DamagedLog, tmp_path: Path) -> None:
    roots = copies_of(killed_log, tmp_path)
    for name in data_files(killed_log):
        root = next(roots)
        (root / name).unlink()
        start_and_check(
            killed_log, root, name, [record for *_, records in killed_log.ranges[name] for record in records]
        )


def test_start_with_any_removed_folder_is_refused_or_reports_losses(killed_log: DamagedLog, tmp_path: Path) -> None:
    """A missing partition folder is refused, because it can be put back. A missing journal is reported."""
    roots = copies_of(killed_log, tmp_path)
    for partition in (0, 1):
        root = next(roots)
        shutil.rmtree(root / f"__consumer_offsets-{partition}")
        with pytest.raises(StartError, match=r"put back the partition's files .* create the empty file .*\.log"):
            open_log(root)
    root = next(roots)
    shutil.rmtree(root / "journal")
    with capture_logs() as lines:
        log = open_log(root)
    assert [(line["event"], line["file"]) for line in lines] == [("damage in the log", str(root / "journal"))]
    assert values(log, 0) == list(range(10))
    log.close()


def test_advice_of_a_refused_start_works(killed_log: DamagedLog, tmp_path: Path) -> None:
    """The advice is to create an empty file with the name in the error. The log then starts after the lost records."""
    root = next(copies_of(killed_log, tmp_path))
    shutil.rmtree(root / "__consumer_offsets-0")
    with pytest.raises(StartError) as error:
        open_log(root)
    path = Path(str(error.value).rpartition(" ")[2])
    path.parent.mkdir()
    path.touch()
    log = open_log(root)
    assert values(log, 0) == [7, 8, 9, 10, 11]
    assert [damage.lost for damage in log.damages()] == ["0 to 6"]
    log.close()


def test_each_start_after_removal_of_a_partition_folder_is_refused(killed_log: DamagedLog, tmp_path: Path) -> None:
    root = next(copies_of(killed_log, tmp_path))
    open_log(root).close()
    shutil.rmtree(root / "__consumer_offsets-1")
    for _ in range(2):
        with pytest.raises(StartError, match=r"__consumer_offsets-1: ends at offset 0, expected 6 or more by .*clean"):
            open_log(root)


def test_file_truncated_after_a_clean_stop_is_reported(killed_log: DamagedLog, tmp_path: Path) -> None:
    """After a clean stop there is no journal, but the clean-stop note has the partition's end."""
    root = next(copies_of(killed_log, tmp_path))
    open_log(root).close()
    path = max((root / "__consumer_offsets-0").glob("*.log"))
    for size in (path.stat().st_size - 5, 0):
        path.write_bytes(path.read_bytes()[:size])
        log = open_log(root)
        assert log.end_offset(0) == 12
        assert len(log.damages()) == 1
        list(log.read(0))
        assert log.damages()[0].offset_after == 12
        log.close()
        shutil.rmtree(root)
        shutil.copytree(killed_log.root, root)
        open_log(root).close()


def test_damage_of_partition_and_journal_loses_only_common_records(killed_log: DamagedLog, tmp_path: Path) -> None:
    """Damages the same round in both, before a valid batch that only the partition has and that is cut."""
    roots = copies_of(killed_log, tmp_path)
    segment = max(name for name in data_files(killed_log) if name.startswith("__consumer_offsets-0"))
    rounds = next(name for name in data_files(killed_log) if name.endswith(".journal"))
    for segment_index in range(len(killed_log.ranges[segment])):
        for journal_index in range(len(killed_log.ranges[rounds])):
            root = next(roots)
            flip_bits(root / segment, killed_log.ranges[segment][segment_index][0] + 50, 4)
            flip_bits(root / rounds, killed_log.ranges[rounds][journal_index][0] + 60, 4)
            segment_records, journal_records = (
                killed_log.ranges[segment][segment_index][2],
                killed_log.ranges[rounds][journal_index][2],
            )
            lost = {
                record
                for record in (*segment_records, *journal_records)
                if (record in segment_records or not killed_log.is_in_another_file(record, rounds))
                and (record in journal_records or not killed_log.is_in_another_file(record, segment))
            }
            with capture_logs():
                log = open_log(root)
                actual = {(0, value) for value in values(log, 0)} | {(1, value) for value in values(log, 1)}
                written = {
                    (partition, value) for partition, appended in killed_log.values.items() for value in appended
                }
                assert written - actual == lost
                log.close()


def flip_bits(path: Path, at: int, mask: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


def test_damaged_journal_is_kept_and_its_valid_rounds_replayed(killed_log: DamagedLog, tmp_path: Path) -> None:
    root = next(copies_of(killed_log, tmp_path))
    name = next(name for name in data_files(killed_log) if name.endswith(".journal"))
    start, end, records = killed_log.ranges[name][3]
    assert records == [(0, 10)]
    flip_bits(root / name, start + 60, 1)
    bytes_before = (root / name).read_bytes()
    log = open_log(root)
    assert (values(log, 0), values(log, 1)) == ([*range(10), 11], [1, 3, 5, 7, 9, 11])
    damaged_range, gap = log.damages()
    assert (damaged_range.path, damaged_range.position, damaged_range.size, damaged_range.lost) == (
        root / name, start, end - start, "of several partitions",
    )  # fmt: skip
    assert (gap.path, gap.lost) == (root / name, "10 to 10")
    assert Path(f"{root / name}.damaged").read_bytes() == bytes_before
    log.close()
    with capture_logs() as lines:
        reopened = open_log(root)
    assert lines == []
    assert values(reopened, 0) == [*range(10), 11]
    reopened.close()


def test_missing_segment_is_reported_at_each_read(killed_log: DamagedLog, tmp_path: Path) -> None:
    root = next(copies_of(killed_log, tmp_path))
    first_segment, second_segment, *_ = sorted((root / "__consumer_offsets-0").glob("*.log"))
    second_segment.unlink()
    for _ in range(2):
        log = open_log(root)
        assert values(log, 0) == [0, 1, 2, *range(6, 12)]
        [gap] = log.damages()
        assert (gap.path, gap.size, gap.lost) == (first_segment, 0, "3 to 5")
        log.close()


def test_unrecognized_files_are_kept_and_logged_once(killed_log: DamagedLog, tmp_path: Path) -> None:
    root = next(copies_of(killed_log, tmp_path))
    open_log(root).close()
    unrecognized = [
        root / "journal" / "x",
        root / "__consumer_offsets-0" / "y.txt",
        root / "__consumer_offsets-1" / "1.log",
    ]
    for path in unrecognized:
        path.write_text("mine")
    (root / "__consumer_offsets-1" / "leader-epoch-checkpoint").write_text("0\n0\n")
    with capture_logs() as lines:
        log = open_log(root)
    assert [(line["event"][:20], line["files"], set(line["first"])) for line in lines] == [
        ("unrecognized files i", 3, {str(path) for path in unrecognized})
    ]
    log.close()
    assert all(path.read_text() == "mine" for path in unrecognized)


def test_quarantined_bytes_are_durable_before_the_cut_and_not_overwritten(
    killed_log: DamagedLog, tmp_path: Path
) -> None:
    root = next(copies_of(killed_log, tmp_path))
    open_log(root).close()
    shutil.rmtree(root / "journal")
    path = max((root / "__consumer_offsets-0").glob("*.log"))
    content = path.read_bytes()
    for tail in (b"first", b"second", b"second"):
        path.write_bytes(content + tail)
        disk = TraceDisk()
        log = OffsetsLog(root, PARTITIONS, disk=disk)
        log.open()
        log.close()
        assert path.read_bytes() == content
        quarantined = [name for operation, name in disk.trace if operation == "sync" and ".torn-" in name]
        if len(quarantined) == 1:
            assert disk.trace.index(("sync", quarantined[0])) < disk.trace.index(("sync", path.name))
    names = sorted(
        quarantine_path.name for quarantine_path in path.parent.iterdir() if ".torn-" in quarantine_path.name
    )
    assert names == [f"{path.name}.torn-12", f"{path.name}.torn-12.2"]
    assert [(path.parent / name).read_bytes() for name in names] == [b"first", b"second"]
