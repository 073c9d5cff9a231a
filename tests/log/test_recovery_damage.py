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
from callboard.runtime.log import journal
from callboard.runtime.log.format.batch import read_batches
from callboard.runtime.log.journal import journal_salt, read_rounds, scan_journal
from callboard.runtime.log.journal_frames import FRAME_HEAD_BYTES
from callboard.runtime.log.offsets_log import OffsetsLog

PARTITIONS = 2
SEGMENT_BYTES = 330  # three batches

Place = tuple[int, int]
"""A record: its partition and its committed value."""


@pytest.fixture(autouse=True)
def _short_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ZEROS", bytes(512))


def opened(root: Path) -> OffsetsLog:
    log = OffsetsLog(root, PARTITIONS, disk=LazyDisk(), segment_bytes=SEGMENT_BYTES, checkpoint_bytes=10**9)
    log.open()
    return log


class Made(NamedTuple):
    """A killed log, and the positions of its records: by file, its ranges and the records in each."""

    root: Path
    written: dict[int, list[int]]
    stretches: dict[str, list[tuple[int, int, list[Place]]]]

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file())

    def closed(self) -> set[str]:
        """The segments that are not the last of their partition."""
        segments = [name for name in self.stretches if name.endswith(".log")]
        return {name for name in segments if any(name[:-25] == other[:-25] and name < other for other in segments)}

    def elsewhere(self, place: Place, name: str) -> bool:
        """Whether another file that a start reads has the record; for a closed segment there is none."""
        return name not in self.closed() and any(
            place in places for file, all_of in self.stretches.items() if file != name for *_, places in all_of
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Rounds 0 to 6 are only in the partitions, 7 to 9 in both, 10 and 11 only in the journal.

    7 and 8 are in a closed segment of partition 0, which is not replayed, because it was synced when it was closed.
    """
    root = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "ZEROS", bytes(512))
        log = opened(root / "live")
        written: dict[int, list[int]] = {0: [], 1: []}
        for number in range(7):
            write(log, number, written)
        log.close()
        log = opened(root / "live")
        for number in range(7, 10):
            write(log, number, written)
        for partition in written:
            list(log.read(partition))  # flushes everything to the partition files
        shutil.copytree(root / "live", root / "earlier")
        for number in range(10, 12):
            write(log, number, written)
        shutil.copytree(root / "live" / "journal", root / "earlier" / "journal", dirs_exist_ok=True)
        log.close()
    return Made(root / "earlier", written, find_stretches(root / "earlier"))


def write(log: OffsetsLog, number: int, written: dict[int, list[int]]) -> None:
    partitions = [partition for partition in (0, 1) if partition == 0 or number % 2]
    append(log, [entry(partition, number) for partition in partitions])
    for partition in partitions:
        written[partition].append(number)


def find_stretches(root: Path) -> dict[str, list[tuple[int, int, list[Place]]]]:
    actual: dict[str, list[tuple[int, int, list[Place]]]] = {}
    for path in sorted(root.glob("__consumer_offsets-*/*.log")):
        partition = int(path.parent.name[-1])
        actual[str(path.relative_to(root))] = [
            (batch.position, batch.position + batch.size, places(partition, bytes(batch.data)))
            for batch in read_batches(path.read_bytes())
        ]
    for path in sorted(root.glob("journal/*.journal")):
        data = path.read_bytes()
        extent = scan_journal(data, journal_salt(path.name))
        rounds = zip(extent.rounds, read_rounds(data, extent), strict=True)
        actual[str(path.relative_to(root))] = [
            (position - FRAME_HEAD_BYTES, end, [place for each in batches for place in places(each[0], bytes(each[1]))])
            for (position, end), batches in rounds
        ]
    return actual


def places(partition: int, batch: bytes) -> list[Place]:
    """The records of a batch; the committed offset is 8 bytes after the value's version."""
    actual = []
    for each in read_batches(batch):
        for *_, value in each.records():
            assert value is not None
            actual.append((partition, int.from_bytes(value[2:10], "big")))
    return actual


def start_and_check(made: Made, root: Path, name: str, hit: list[Place], is_told: bool = True) -> None:
    """Start on a damaged copy. ``hit``: the records whose bytes in that file were changed or removed."""
    try:
        with capture_logs() as lines:
            log = opened(root)
            actual = {partition: values(log, partition) for partition in made.written}
            damages = log.damages()
            again = append(log, [entry(0, 99)])[0]
            assert again.error == 0
            assert values(log, 0) == [*actual[0], 99]
            log.close()
    except StartError as error:
        assert str(root) in str(error) and "expected" in str(error) and ";" in str(error)
        return
    lost = {(partition, value) for partition, wanted in made.written.items() for value in wanted}
    lost -= {(partition, value) for partition, all_of in actual.items() for value in all_of}
    assert lost <= {place for place in hit if not made.elsewhere(place, name)}
    for partition, all_of in actual.items():
        assert all_of == sorted(set(all_of) & set(made.written[partition]))
    assert not (lost and is_told) or damages or any(line["log_level"] == "warning" for line in lines)


def values(log: OffsetsLog, partition: int) -> list[int]:
    records = [record for _, _, record in log.read(partition)]
    return [record.value.offset for record in records if isinstance(record, OffsetRecord) and record.value is not None]


def copies(made: Made, tmp_path: Path) -> Iterator[Path]:
    number = 0
    while True:
        root = tmp_path / str(number)
        shutil.copytree(made.root, root)
        yield root
        shutil.rmtree(root)
        number += 1


def data_files(made: Made) -> list[str]:
    return list(made.stretches)


def test_damaged_folder_has_files_of_all_kinds(made: Made) -> None:
    names = data_files(made)
    assert sum(name.endswith(".log") for name in names) == 6
    assert sum(name.endswith(".journal") for name in names) == 1
    only = [
        place for name in names for *_, hit in made.stretches[name] for place in hit if not made.elsewhere(place, name)
    ]
    assert {value for _, value in only} == {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11}


@pytest.mark.parametrize("seed", range(4))
def test_start_with_any_changed_byte_loses_only_reported_records(made: Made, tmp_path: Path, seed: int) -> None:
    """Flips one bit, or all bits, at every 13th byte of every file, beginning at another byte for each seed."""
    source = random.Random(seed)
    roots = copies(made, tmp_path)
    for name in data_files(made):
        size = made.stretches[name][-1][1]
        for at in range(seed, size, 13):
            root = next(roots)
            flip(root / name, at, source.choice((0xFF, 1 << source.randrange(8))))
            hit = [place for start, end, all_of in made.stretches[name] if start <= at < end for place in all_of]
            start_and_check(made, root, name, hit)


@pytest.mark.parametrize("seed", range(2))
def test_start_with_any_truncated_file_loses_only_reported_records(made: Made, tmp_path: Path, seed: int) -> None:
    roots = copies(made, tmp_path)
    for name in data_files(made):
        for size in range(seed * 7, made.stretches[name][-1][1], 17):
            root = next(roots)
            path = root / name
            path.write_bytes(path.read_bytes()[:size])
            hit = [place for start, end, all_of in made.stretches[name] if end > size for place in all_of]
            whole = max((end for _, end, _ in made.stretches[name] if end <= size), default=0)
            looks_whole = name.endswith(".journal") and not any(path.read_bytes()[whole:])  # cannot be detected
            start_and_check(made, root, name, hit, is_told=not looks_whole)


def test_start_with_any_removed_file_loses_only_reported_records(made: Made, tmp_path: Path) -> None:
    roots = copies(made, tmp_path)
    for name in data_files(made):
        root = next(roots)
        (root / name).unlink()
        start_and_check(made, root, name, [place for *_, all_of in made.stretches[name] for place in all_of])


def test_start_with_any_removed_folder_is_refused_or_reports_losses(made: Made, tmp_path: Path) -> None:
    """A missing partition folder is refused, because it can be put back. A missing journal is reported."""
    roots = copies(made, tmp_path)
    for partition in (0, 1):
        root = next(roots)
        shutil.rmtree(root / f"__consumer_offsets-{partition}")
        with pytest.raises(StartError, match=r"put back the partition's files .* create the empty file .*\.log"):
            opened(root)
    root = next(roots)
    shutil.rmtree(root / "journal")
    with capture_logs() as lines:
        log = opened(root)
    assert [(line["event"], line["file"]) for line in lines] == [("damage in the log", str(root / "journal"))]
    assert values(log, 0) == list(range(10))
    log.close()


def test_advice_of_a_refused_start_works(made: Made, tmp_path: Path) -> None:
    """An empty file with the name in the error: the log goes on after the lost records."""
    root = next(copies(made, tmp_path))
    shutil.rmtree(root / "__consumer_offsets-0")
    with pytest.raises(StartError) as refused:
        opened(root)
    path = Path(str(refused.value).rpartition(" ")[2])
    path.parent.mkdir()
    path.touch()
    log = opened(root)
    assert values(log, 0) == [7, 8, 9, 10, 11]
    assert [damage.lost for damage in log.damages()] == ["0 to 6"]
    log.close()


def test_each_start_after_removal_of_a_partition_folder_is_refused(made: Made, tmp_path: Path) -> None:
    root = next(copies(made, tmp_path))
    opened(root).close()
    shutil.rmtree(root / "__consumer_offsets-1")
    for _ in range(2):
        with pytest.raises(StartError, match=r"__consumer_offsets-1: ends at offset 0, expected 6 or more by .*clean"):
            opened(root)


def test_file_truncated_after_a_clean_stop_is_reported(made: Made, tmp_path: Path) -> None:
    """There is no journal then; the clean-stop note has the partition's end."""
    root = next(copies(made, tmp_path))
    opened(root).close()
    path = max((root / "__consumer_offsets-0").glob("*.log"))
    for size in (path.stat().st_size - 5, 0):
        path.write_bytes(path.read_bytes()[:size])
        log = opened(root)
        assert log.end_offset(0) == 12
        assert len(log.damages()) == 1
        list(log.read(0))
        assert log.damages()[0].offset_after == 12
        log.close()
        shutil.rmtree(root)
        shutil.copytree(made.root, root)
        opened(root).close()


def test_damage_of_partition_and_journal_loses_only_common_records(made: Made, tmp_path: Path) -> None:
    """Damages the same round in both, before a valid batch that only the partition has and that is cut."""
    roots = copies(made, tmp_path)
    segment = max(name for name in data_files(made) if name.startswith("__consumer_offsets-0"))
    rounds = next(name for name in data_files(made) if name.endswith(".journal"))
    for in_segment in range(len(made.stretches[segment])):
        for in_journal in range(len(made.stretches[rounds])):
            root = next(roots)
            flip(root / segment, made.stretches[segment][in_segment][0] + 50, 4)
            flip(root / rounds, made.stretches[rounds][in_journal][0] + 60, 4)
            lost_here, lost_there = made.stretches[segment][in_segment][2], made.stretches[rounds][in_journal][2]
            lost = {
                place
                for place in (*lost_here, *lost_there)
                if (place in lost_here or not made.elsewhere(place, rounds))
                and (place in lost_there or not made.elsewhere(place, segment))
            }
            with capture_logs():
                log = opened(root)
                actual = {(0, value) for value in values(log, 0)} | {(1, value) for value in values(log, 1)}
                everything = {(partition, value) for partition, all_of in made.written.items() for value in all_of}
                assert everything - actual == lost
                log.close()


def flip(path: Path, at: int, mask: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


def test_damaged_journal_is_kept_and_its_valid_rounds_replayed(made: Made, tmp_path: Path) -> None:
    root = next(copies(made, tmp_path))
    name = next(name for name in data_files(made) if name.endswith(".journal"))
    start, end, hit = made.stretches[name][3]
    assert hit == [(0, 10)]
    flip(root / name, start + 60, 1)
    before = (root / name).read_bytes()
    log = opened(root)
    assert (values(log, 0), values(log, 1)) == ([*range(10), 11], [1, 3, 5, 7, 9, 11])
    stretch, hole = log.damages()
    assert (stretch.path, stretch.position, stretch.size, stretch.lost) == (
        root / name, start, end - start, "of several partitions",
    )  # fmt: skip
    assert (hole.path, hole.lost) == (root / name, "10 to 10")
    assert Path(f"{root / name}.damaged").read_bytes() == before
    log.close()
    with capture_logs() as lines:
        again = opened(root)
    assert lines == []
    assert values(again, 0) == [*range(10), 11]
    again.close()


def test_missing_segment_is_reported_at_each_read(made: Made, tmp_path: Path) -> None:
    root = next(copies(made, tmp_path))
    first, second, *_ = sorted((root / "__consumer_offsets-0").glob("*.log"))
    second.unlink()
    for _ in range(2):
        log = opened(root)
        assert values(log, 0) == [0, 1, 2, *range(6, 12)]
        [hole] = log.damages()
        assert (hole.path, hole.size, hole.lost) == (first, 0, "3 to 5")
        log.close()


def test_unrecognized_files_are_kept_and_logged_once(made: Made, tmp_path: Path) -> None:
    root = next(copies(made, tmp_path))
    opened(root).close()
    strange = [root / "journal" / "x", root / "__consumer_offsets-0" / "y.txt", root / "__consumer_offsets-1" / "1.log"]
    for path in strange:
        path.write_text("mine")
    (root / "__consumer_offsets-1" / "leader-epoch-checkpoint").write_text("0\n0\n")
    with capture_logs() as lines:
        log = opened(root)
    assert [(line["event"][:20], line["files"], set(line["first"])) for line in lines] == [
        ("unrecognized files i", 3, {str(path) for path in strange})
    ]
    log.close()
    assert all(path.read_text() == "mine" for path in strange)


def test_quarantined_bytes_are_durable_before_the_cut_and_not_overwritten(made: Made, tmp_path: Path) -> None:
    root = next(copies(made, tmp_path))
    opened(root).close()
    shutil.rmtree(root / "journal")
    path = max((root / "__consumer_offsets-0").glob("*.log"))
    whole = path.read_bytes()
    for tail in (b"first", b"second", b"second"):
        path.write_bytes(whole + tail)
        disk = TraceDisk()
        log = OffsetsLog(root, PARTITIONS, disk=disk)
        log.open()
        log.close()
        assert path.read_bytes() == whole
        kept = [name for operation, name in disk.trace if operation == "sync" and ".torn-" in name]
        if len(kept) == 1:
            assert disk.trace.index(("sync", kept[0])) < disk.trace.index(("sync", path.name))
    names = sorted(each.name for each in path.parent.iterdir() if ".torn-" in each.name)
    assert names == [f"{path.name}.torn-12", f"{path.name}.torn-12.2"]
    assert [(path.parent / name).read_bytes() for name in names] == [b"first", b"second"]
