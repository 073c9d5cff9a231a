"""``cleanup.policy`` and ``retention.ms`` of records in memory. The tests count steps and have a clock of their own."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest
from topics_helpers import TRANSACTIONAL_BIT, delete, open_catalogue, producer_batch

from callboard.actors.records import MarkerRecord
from callboard.actors.steps import ITEMS_PER_STEP, Steps, run_steps
from callboard.runtime.disk.group_commit import immediate_outcome
from callboard.runtime.log.format.batch import HEADER_BYTES, Batch, frame_record, read_batch, read_batches
from callboard.runtime.node.environment import Environment
from callboard.runtime.node.topic_cleaning import BlockingCalls, run_in_slices
from callboard.runtime.settings.table import Settings
from callboard.runtime.topics import compaction
from callboard.runtime.topics.catalogue import TopicCatalogue
from callboard.runtime.topics.cleaning import TopicCleaner
from callboard.runtime.topics.keyed_records import BYTES_PER_STEP, KeyedRecord, decompressed, keyed_records, pieces_of
from callboard.runtime.topics.partition_log import PartitionLog
from callboard.runtime.topics.setting_values import check_overrides
from callboard.runtime.topics.store import NewTopic
from callboard.runtime.topics.topic import Topic

NOW_MS = 1_000_000
DAY_MS = 86_400_000

KeyValue = tuple[bytes, bytes | None]

T = TypeVar("T")


class Bench:
    """A catalogue with one topic, its cleaner, and the time."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.now_ms = NOW_MS
        self.catalogue: TopicCatalogue = open_catalogue(folder)
        self.cleaner = TopicCleaner(self.catalogue, Settings(), lambda: self.now_ms)
        given = {name.replace("_", "."): text for name, text in settings.items()}
        [topic] = immediate_outcome(partial(self.catalogue.create_many, [NewTopic("t", 1, check_overrides(given))]))
        assert isinstance(topic, Topic)
        self.topic = topic

    @property
    def log(self) -> PartitionLog:
        return self.topic.partitions[0]

    def add(self, *records: KeyValue, at_ms: int = NOW_MS, producer: int = -1) -> None:
        framed = b"".join(frame_record(0, index, *record) for index, record in enumerate(records))
        batch = producer_batch(
            len(records),
            records=framed,
            timestamps=[at_ms] * len(records),
            attributes=TRANSACTIONAL_BIT if producer >= 0 else 0,
            producer=(producer, 0, 0) if producer >= 0 else (-1, -1, -1),
        )
        self.topic.append(0, batch)

    def end_transaction(self, producer: int, *, committed: bool) -> None:
        self.topic.end_transaction(0, MarkerRecord(producer, 0, committed), self.now_ms)

    def compact(self) -> None:
        run_steps(self.cleaner.compact())
        assert self.topic.held_bytes == self.log.size_bytes == sum(map(len, self.batches()))

    def batches(self) -> list[bytes]:
        return list(self.log.read(self.log.start_offset, 2**31).parts)

    def records(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of the records that are not markers."""
        return [
            (offset, key, value)
            for batch in read_batches(b"".join(self.batches()))
            if not batch.is_control
            for offset, _, key, value in batch.records()
        ]


def consumed(log: PartitionLog, max_bytes: int) -> Iterable[int]:
    """The offsets that a consumer reads which asks for the offset after the last batch that it got."""
    offset = log.start_offset
    while offset < log.end_offset:
        batches = list(read_batches(b"".join(log.read(offset, max_bytes).parts)))
        assert batches, "the consumer makes no progress"
        for batch in batches:
            yield from (record[0] for record in batch.records() if record[0] >= offset)
        assert batches[-1].last_offset >= offset
        offset = batches[-1].last_offset + 1


# Retention by time ---------------------------------------------------------------------------------------------------


def test_records_older_than_retention_ms_are_dropped(tmp_path: Path) -> None:
    bench = Bench(tmp_path, retention_ms="1000")
    for at_ms in (NOW_MS - 2000, NOW_MS - 1001, NOW_MS - 1000, NOW_MS - 5000):
        bench.add((b"k", b"v"), at_ms=at_ms)
    run_steps(bench.cleaner.expire())
    assert (bench.log.start_offset, bench.log.end_offset) == (2, 4), "the third batch is young enough, so it stays"
    bench.now_ms += 1
    run_steps(bench.cleaner.expire())
    assert (bench.log.start_offset, bench.log.end_offset, bench.topic.held_bytes) == (4, 4, 0)


@pytest.mark.parametrize("settings", [{"retention_ms": "-1"}, {"cleanup_policy": "compact", "retention_ms": "1"}, {}])
def test_records_stay_without_retention_by_time(tmp_path: Path, settings: dict[str, str]) -> None:
    bench = Bench(tmp_path, **settings)
    bench.add((b"k", b"v"), at_ms=NOW_MS - 5000)
    run_steps(bench.cleaner.expire())
    assert bench.log.start_offset == 0


def test_records_of_a_week_ago_are_dropped_by_default(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add((b"k", b"v"))
    bench.now_ms += 7 * DAY_MS + 1
    run_steps(bench.cleaner.expire())
    assert bench.log.start_offset == 1


def test_expiry_drops_few_batches_in_one_step(tmp_path: Path) -> None:
    bench = Bench(tmp_path, retention_ms="1")
    for _ in range(10 * ITEMS_PER_STEP):
        bench.add((b"k", b"v"), at_ms=1)
    counts = [bench.log.batch_count for _ in bench.cleaner.expire()]
    assert max(before - after for before, after in pairwise(counts)) <= ITEMS_PER_STEP
    assert bench.log.batch_count == 0


# Compaction ----------------------------------------------------------------------------------------------------------


def test_compaction_keeps_newest_record_of_each_key(tmp_path: Path) -> None:
    bench = Bench(tmp_path, cleanup_policy="compact")
    bench.add((b"a", b"1"), (b"b", b"1"))
    bench.add((b"a", b"2"))
    bench.add((b"c", b"1"), (b"a", b"3"))
    bench.add((b"c", b"2"))
    bench.compact()
    assert bench.records() == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3"), (5, b"c", b"2")]
    assert (bench.log.start_offset, bench.log.end_offset) == (0, 6), "compaction does not change the offsets"


@pytest.mark.parametrize("max_bytes", [1, 100, 2**31])
def test_consumer_reads_over_gaps_of_compaction(tmp_path: Path, max_bytes: int) -> None:
    bench = Bench(tmp_path, cleanup_policy="compact")
    for number in range(6):
        bench.add((b"a", b"%d" % number), (b"only-%d" % (number % 2), b"v"))
    bench.compact()
    assert list(consumed(bench.log, max_bytes)) == [7, 8, 9, 10, 11]
    assert next(read_batches(b"".join(bench.log.read(3, 1).parts))).last_offset >= 3


def test_topic_that_is_not_compacted_keeps_all_records(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for _ in range(3):
        bench.add((b"a", b"1"))
    bench.compact()
    assert len(bench.records()) == 3


def test_tombstone_stays_for_delete_retention_ms(tmp_path: Path) -> None:
    bench = Bench(tmp_path, cleanup_policy="compact", delete_retention_ms="1000")
    bench.add((b"a", b"1"))
    bench.add((b"a", None))
    bench.add((b"last", b"1"))
    bench.compact()
    assert bench.records() == [(1, b"a", None), (2, b"last", b"1")]
    bench.now_ms += 1000
    bench.add((b"last", b"2"))
    bench.add((b"last", b"3"))
    bench.compact()
    assert bench.records() == [(3, b"last", b"2"), (4, b"last", b"3")]


def test_compaction_leaves_records_younger_than_min_compaction_lag(tmp_path: Path) -> None:
    bench = Bench(tmp_path, cleanup_policy="compact", min_compaction_lag_ms="1000")
    for at_ms in (NOW_MS - 2000, NOW_MS - 1500, NOW_MS - 500, NOW_MS):
        bench.add((b"a", b"%d" % at_ms), at_ms=at_ms)
    bench.compact()
    assert [offset for offset, _, _ in bench.records()] == [1, 2, 3]


def test_compaction_waits_until_enough_is_new(tmp_path: Path) -> None:
    bench = Bench(tmp_path, cleanup_policy="compact", min_cleanable_dirty_ratio="0.5")
    for number in range(20):
        bench.add((b"key-%02d" % number, b"1"))
    bench.compact()
    bench.add((b"key-00", b"2"))
    bench.add((b"key-00", b"3"))
    bench.compact()
    assert len(bench.records()) == 22
    for number in range(30):
        bench.add((b"key-00", b"%d" % number))
    bench.compact()
    assert len(bench.records()) == 21, "one of each key, and the newest batch"


def test_compaction_drops_aborted_records_and_keeps_committed_ones(tmp_path: Path) -> None:
    """The aborted value is newer. If it counted, the committed one would be lost."""
    bench = Bench(tmp_path, cleanup_policy="compact")
    bench.add((b"a", b"committed"), producer=1)
    bench.end_transaction(1, committed=True)
    bench.add((b"a", b"aborted"), producer=2)
    bench.end_transaction(2, committed=False)
    bench.add((b"b", b"1"))
    bench.compact()
    assert bench.records() == [(0, b"a", b"committed"), (4, b"b", b"1")]
    assert [each and each.last_offset for each in bench.log.transactions.find_aborted(0, 9)] == [3]
    bench.now_ms += DAY_MS
    bench.add((b"b", b"2"), (b"c", b"x" * 100))
    bench.add((b"b", b"3"), (b"c", b"x" * 100))
    bench.compact()
    assert [record[:2] for record in bench.records()] == [(0, b"a"), (5, b"b"), (6, b"c"), (7, b"b"), (8, b"c")]
    assert list(bench.log.transactions.find_aborted(0, 9)) == [], "a reader would wait for the marker, which is gone"


def test_compaction_stops_at_open_transaction(tmp_path: Path) -> None:
    bench = Bench(tmp_path, cleanup_policy="compact")
    bench.add((b"a", b"1"))
    bench.add((b"a", b"2"))
    bench.add((b"a", b"open"), producer=1)
    bench.add((b"a", b"3"))
    bench.add((b"a", b"4"))
    bench.compact()
    assert [offset for offset, _, _ in bench.records()] == [1, 2, 3, 4]


def test_compaction_reads_compressed_batches(tmp_path: Path) -> None:
    bench = Bench(tmp_path, cleanup_policy="compact")
    framed = frame_record(0, 0, b"a", b"1") + frame_record(0, 1, b"b", b"1")
    batch = producer_batch(2, records=gzip.compress(framed), attributes=1, timestamps=[NOW_MS, NOW_MS])
    bench.topic.append(0, batch)
    bench.add((b"a", b"2"))
    bench.add((b"c", b"1"))
    bench.compact()
    assert bench.records() == [(1, b"b", b"1"), (2, b"a", b"2"), (3, b"c", b"1")]


class CallsNoted:
    """Runs blocking calls and notes how many run now. ``inflated``: that number at each decompression."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running = 0
        self.inflated: list[int] = []
        monkeypatch.setattr(compaction, "decompressed", self._decompressed)

    def _decompressed(self, data: bytes, bytes_max: int) -> Batch:
        self.inflated.append(self.running)
        return decompressed(data, bytes_max)

    def run(self, call: Callable[[], T]) -> Steps[T]:
        yield
        self.running += 1
        result = call()
        self.running -= 1
        return result


def test_compaction_decompresses_in_blocking_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = CallsNoted(monkeypatch)
    bench = Bench(tmp_path, cleanup_policy="compact")
    bench.cleaner = TopicCleaner(bench.catalogue, Settings(), lambda: bench.now_ms, calls.run)
    framed = frame_record(0, 0, b"a", b"1") + frame_record(0, 1, b"b", b"1")
    bench.topic.append(0, producer_batch(2, records=gzip.compress(framed), attributes=1, timestamps=[NOW_MS, NOW_MS]))
    bench.add((b"large", bytes(BYTES_PER_STEP)))
    bench.add((b"a", b"2"))
    bench.add((b"c", b"1"))
    bench.compact()
    assert calls.inflated == [1, 1, 0] * 2, "a compressed, a large and a small batch, each read twice"
    assert [offset for offset, _, _ in bench.records()] == [1, 2, 3, 4]


def test_compaction_keeps_compressed_batch_with_too_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "INFLATED_MAX", 1000)
    bench = Bench(tmp_path, cleanup_policy="compact")
    for size in (900, 1100):
        records = gzip.compress(frame_record(0, 0, b"a", bytes(size)))
        bench.topic.append(0, producer_batch(1, records=records, attributes=1, timestamps=[NOW_MS]))
    bench.add((b"a", b"2"))
    bench.add((b"c", b"1"))
    bench.compact()
    assert [offset for offset, _, _ in bench.records()] == [1, 2, 3]


def test_compaction_copies_few_bytes_in_one_step() -> None:
    framed = b"".join(frame_record(0, number, b"k", bytes(BYTES_PER_STEP // 4)) for number in range(40))
    batch = read_batch(memoryview(producer_batch(40, records=framed, timestamps=[NOW_MS] * 40)))
    assert [len(piece) for piece in pieces_of(keyed_records(batch))] == [4] * 10
    small = b"".join(frame_record(0, number, b"k", b"v") for number in range(100))
    batch = read_batch(memoryview(producer_batch(100, records=small, timestamps=[NOW_MS] * 100)))
    assert [len(piece) for piece in pieces_of(keyed_records(batch))] == [ITEMS_PER_STEP, 100 - ITEMS_PER_STEP]


def test_blocking_call_runs_in_thread_before_next_step() -> None:
    """Meanwhile the event loop goes on: the call waits for it."""
    calls, went_on, result = BlockingCalls(), threading.Event(), list[bool]()

    def work() -> Steps[None]:
        result.append((yield from calls.run(partial(went_on.wait, 60))))

    async def run() -> None:
        asyncio.get_running_loop().call_later(0.01, went_on.set)
        await run_in_slices(work(), calls, Environment())

    asyncio.run(run())
    assert result == [True]


def test_compaction_keeps_batch_that_cannot_be_read(tmp_path: Path) -> None:
    bench = Bench(tmp_path, cleanup_policy="compact")
    damaged = producer_batch(2, records=b"\x7f" * 40, timestamps=[NOW_MS, NOW_MS])
    bench.topic.append(0, damaged)
    bench.add((b"a", b"1"))
    bench.add((b"a", b"2"))
    bench.add((b"a", b"3"))
    bench.compact()
    assert bench.batches()[0][HEADER_BYTES:] == damaged[HEADER_BYTES:]
    assert len(bench.batches()) == 3


def test_compacted_batch_keeps_headers_of_records_and_has_valid_checksum(tmp_path: Path) -> None:
    bench = Bench(tmp_path, cleanup_policy="compact")
    body = b"\0\0\2\2k\2v\2\2h\2x"  # attributes, time, offset 1, key k, value v, one header h=x
    framed = frame_record(0, 0, b"gone", b"1") + bytes((len(body) * 2,)) + body
    bench.topic.append(0, producer_batch(2, records=framed, timestamps=[NOW_MS, NOW_MS]))
    bench.add((b"gone", b"2"))
    bench.add((b"gone", b"3"))
    bench.compact()
    batch = read_batch(memoryview(bench.batches()[0]))
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (0, 1, 1)
    [record] = keyed_records(batch)
    assert (record.offset, record.key, bytes(record.data[1:])) == (1, b"k", body)


def interrupted(bench: Bench, after: int) -> Steps[None]:
    steps = bench.cleaner.compact()
    for _ in range(after):
        next(steps)
    return steps


@pytest.mark.parametrize("after", range(1, 40, 3))
def test_changes_during_compaction_are_kept(tmp_path: Path, after: int) -> None:
    """Records are appended, and the oldest are deleted, at any step of the compaction."""
    bench = Bench(tmp_path, cleanup_policy="compact")
    for number in range(200):
        bench.add((b"key-%d" % (number % 7), b"%d" % number), at_ms=NOW_MS - 200 + number)
    expected_keys = {b"key-%d" % number for number in range(7)}
    steps = interrupted(bench, after)
    run_steps(bench.topic.delete_records(0, 50))
    bench.add((b"new", b"1"))
    run_steps(steps)
    assert bench.topic.held_bytes == bench.log.size_bytes
    assert (bench.log.start_offset, bench.log.end_offset) == (50, 201)
    assert {key for _, key, _ in bench.records()} == {*expected_keys, b"new"}
    assert list(consumed(bench.log, 1)) == [offset for offset, _, _ in bench.records()]


@pytest.mark.parametrize("searched", range(1, 12, 2))
def test_search_by_time_goes_on_after_compaction(tmp_path: Path, searched: int) -> None:
    """The headers claim a later time than the records have, so the search reads one batch in each step."""
    bench = Bench(tmp_path, cleanup_policy="compact")
    later_ms = NOW_MS + 1000
    for number in range(10):
        record = frame_record(0, 0, b"key-%d" % (number % 3), b"v")
        bench.topic.append(0, producer_batch(records=record, timestamps=[NOW_MS, later_ms]))
    bench.add((b"found", b"v"), at_ms=later_ms)
    search = bench.log.find_first_since(later_ms)
    for _ in range(min(searched, 10)):
        next(search)
    bench.now_ms = later_ms
    bench.compact()
    assert len(bench.records()) == 4
    assert run_steps(search) == (later_ms, 10)


def test_topic_deleted_during_compaction_releases_its_memory_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, cleanup_policy="compact")
    for number in range(200):
        bench.add((b"key", b"%d" % number))
    steps = interrupted(bench, 3)
    delete(bench.catalogue, "t")
    before = bench.catalogue.memory_bytes
    run_steps(steps)
    assert bench.catalogue.memory_bytes == before


def test_compaction_reads_few_records_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, cleanup_policy="compact")
    for _ in range(3):
        bench.add(*((b"key-%d" % number, b"v") for number in range(1000)))
    bench.add((b"last", b"v"))
    read: list[int] = []

    def counted(batch: Batch) -> Iterator[KeyedRecord]:
        for record in keyed_records(batch):
            read.append(record.offset)
            yield record

    monkeypatch.setattr(compaction, "keyed_records", counted)
    counts = [0]
    for _ in bench.cleaner.compact():
        counts.append(len(read))
    assert len(read) == 6000
    assert max(after - before for before, after in pairwise(counts)) <= 2 * ITEMS_PER_STEP
    assert len(bench.records()) == 1001
