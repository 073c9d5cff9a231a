"""Tests of the readings that ``callboard log verify`` compares: a fault planted in one is found by another."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from log_helpers import offset
from partition_helpers import plain, transactional, write

from callboard.actors.records import MarkerRecord, OffsetRecord, PendingOffsetRecord, Record
from callboard.bench.loggen import LogShape, write_log
from callboard.runtime.cli.log import forward, verify
from callboard.runtime.cli.log.forward import ForwardReading, LogReplay
from callboard.runtime.cli.log.newest import NewestContent, load_newest
from callboard.runtime.cli.log.scan import (
    LoggedRecord,
    LogPartition,
    Unreadable,
    find_partitions,
    scan_batches,
    scan_files,
)
from callboard.runtime.cli.log.verify import PartitionCheck
from callboard.runtime.disk.disk import Disk
from callboard.runtime.engine.clock import wall_clock_ms
from callboard.runtime.log.compaction.swap import CompactionSettings, compact
from callboard.runtime.log.format.batch import Batch, encode_batch, frame_record, read_batch, with_records
from callboard.runtime.log.format.records import encode_key, encode_value
from callboard.runtime.log.format.varint import encode_signed
from callboard.runtime.log.manifest import log_files

SEEDS = range(4)
TOMBSTONE = OffsetRecord("g", "t", 0, None)
DAMAGED_BATCHES = 300

Check = Callable[[], PartitionCheck]


def read_forward(partition: LogPartition) -> tuple[dict[str, object], int, list[str]]:
    """State, number of records and problems, in the forward reading of ``verify``."""
    reading, problems = ForwardReading(partition), list[str]()
    for file, item in scan_batches(partition, Disk()):
        assert isinstance(item, Batch), item
        problems += map(str, reading.add(file, item))
    return reading.state(), reading.records, problems


def read_each_record(partition: LogPartition) -> tuple[dict[str, object], int, list[str]]:
    """The same with each record decoded and applied alone."""
    replay, records, problems = LogReplay(), 0, []
    for item in scan_files(partition, Disk()):
        if isinstance(item, LoggedRecord):
            replay.apply(item.record)
            records += 1
        else:
            assert isinstance(item, Unreadable)
            problems.append(str(item))
    return replay.state(), records, problems


def only_partition(data: Path) -> LogPartition:
    [partition] = find_partitions(data)
    return partition


@pytest.mark.parametrize("seed", SEEDS)
def test_forward_reading_of_generated_log_gives_state_of_each_record_applied(tmp_path: Path, seed: int) -> None:
    shape = LogShape(3000, groups=30, death_rate=0.05, transaction_rate=0.1, group_record_rate=0.05, burst_rate=0.1)
    write_log(tmp_path, shape, seed)
    partition = only_partition(tmp_path)
    assert read_forward(partition) == read_each_record(partition)


def with_key_type_0(record: OffsetRecord) -> bytes:
    return frame_record(0, 0, b"\0\0" + encode_key(record)[2:], encode_value(record))


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param([plain(0, offset("g", 1)), plain(1, offset("g", 2)), plain(2, TOMBSTONE)], id="tombstone"),
        pytest.param(
            [
                plain(0, offset("g", 1)),
                plain(1, offset("g", 2)),
                encode_batch(2, 1, 1, [with_key_type_0(offset("g", 3))]),
                plain(3, offset("g", 4)),
                encode_batch(4, 1, 1, [with_key_type_0(offset("g", 5))]),
            ],
            id="other form of the key",
        ),
        pytest.param(
            [
                plain(0, offset("g", 1)),
                plain(1, offset("g", 2)),
                transactional(2, PendingOffsetRecord("g", "t", 0, offset("g", 7).value, 9, 1)),
                plain(3, offset("g", 3)),
                plain(4, offset("g", 4)),
                transactional(5, MarkerRecord(9, 1, True)),
                plain(6, offset("g", 5)),
            ],
            id="superseded in a transaction",
        ),
        pytest.param(
            [
                plain(0, offset("g", 1)),
                transactional(1, PendingOffsetRecord("g", "t", 0, offset("g", 7).value, 9, 1)),
                plain(2, TOMBSTONE),
                plain(3, offset("g", 3)),
                plain(4, offset("g", 4)),
            ],
            id="tombstone in an open transaction",
        ),
    ],
)
def test_forward_reading_gives_state_of_each_record_applied(tmp_path: Path, batches: list[bytes]) -> None:
    write(tmp_path, 0, batches)
    assert read_forward(only_partition(tmp_path)) == read_each_record(only_partition(tmp_path))


def test_forward_reading_decodes_only_first_and_newest_record_of_each_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits, keys = 50, 20
    rows = [[offset(f"g{key}", commit) for key in range(keys)] for commit in range(commits)]
    write(tmp_path, 0, [plain(at * keys, *row) for at, row in enumerate(rows)])
    decoded = 0

    def count(replay: LogReplay, record: Record | None, apply: Any = LogReplay.apply) -> None:
        nonlocal decoded
        decoded += 1
        apply(replay, record)

    monkeypatch.setattr(forward.LogReplay, "apply", count)
    _, records, problems = read_forward(only_partition(tmp_path))
    assert (records, decoded, problems) == (commits * keys, 2 * keys, [])


def damaged_batches(rng: random.Random) -> Iterator[bytes]:
    """A valid batch, and batches with changed bytes in their records and a checksum that fits."""
    whole = plain(0, *(offset("group", number) for number in (300, 5, 2**40)))
    yield whole
    for number in range(1, DAMAGED_BATCHES):
        batch = read_batch(memoryview(plain(number * 3, *(offset("group", at) for at in (300, 5, 2**40)))))
        records = bytearray(batch.data[61:])
        for _ in range(rng.randint(1, 3)):
            records[rng.randrange(len(records))] = rng.choice((rng.randrange(256), 0xFF, 0x80, 0x7F, 1, 0))
        yield with_records(batch, 0, bytes(records))


@pytest.mark.parametrize("seed", SEEDS)
def test_forward_reading_of_unreadable_records_reports_what_each_record_reports(tmp_path: Path, seed: int) -> None:
    write(tmp_path, 0, list(damaged_batches(random.Random(seed))))
    partition = only_partition(tmp_path)
    state, records, problems = read_forward(partition)
    assert (state, records, problems) == read_each_record(partition)
    assert len(problems) > DAMAGED_BATCHES // 10


def test_forward_reading_of_varint_that_is_too_long_reports_it(tmp_path: Path) -> None:
    record = offset("g", 1)
    [usual] = [frame_record(0, 0, encode_key(record), encode_value(record))]
    body = usual[1:2] + b"\x80" * 10 + b"\0" + usual[3:]
    write(tmp_path, 0, [plain(0, record), encode_batch(1, 1, 1, [encode_signed(len(body)) + body])])
    partition = only_partition(tmp_path)
    assert read_forward(partition) == read_each_record(partition)
    assert len(read_forward(partition)[2]) == 1


# Planted faults ------------------------------------------------------------------------------------------------------


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Runs ``verify`` on a log of commits and tombstones."""
    write_log(tmp_path / "data", LogShape(2000, groups=20, death_rate=0.05))
    partition, number = only_partition(tmp_path / "data"), iter(range(9))
    return lambda: verify.verify(partition, tmp_path / f"scratch{next(number)}", Disk())


def test_verify_of_whole_log_finds_nothing(check: Check) -> None:
    assert check().is_valid


def test_verify_finds_forward_reading_that_keeps_oldest_value(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    class Oldest(dict[bytes, bytes]):
        def __setitem__(self, key: bytes, value: bytes) -> None:
            self.setdefault(key, value)

    class Faulty(ForwardReading):
        def __init__(self, partition: LogPartition) -> None:
            super().__init__(partition)
            self._newest = Oldest()

    monkeypatch.setattr(verify, "ForwardReading", Faulty)
    assert any("newest first" in difference for difference in check().differences)


def test_verify_finds_forward_reading_that_loses_values(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward.ForwardReading, "_apply_newest", lambda reading: reading._newest.clear())
    assert any("newest first" in difference for difference in check().differences)


def test_verify_finds_loading_that_loses_group(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_group(partition: LogPartition, disk: Disk) -> NewestContent:
        content = load_newest(partition, disk)
        lost = min(content.state)
        return content._replace(state={name: value for name, value in content.state.items() if name != lost})

    monkeypatch.setattr(verify, "load_newest", lose_group)
    assert any("and None newest first" in difference for difference in check().differences)


def test_verify_finds_compaction_that_loses_records(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_records(disk: Disk, folder: Path, settings: CompactionSettings) -> None:
        compact(disk, folder, settings)
        for file in log_files(disk, folder).files:
            if file.is_compacted and settings.now_ms > wall_clock_ms():
                file.path.write_bytes(b"")

    monkeypatch.setattr(verify, "compact", lose_records)
    differences = check().differences
    assert differences and all("after compaction 2" in difference for difference in differences)
