"""Loading newest first equals loading oldest first, for any commits, deletions, open transactions and damage."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_examples import examples

from callboard.actors.group.offsets import GroupData
from callboard.actors.records import (
    GroupRecord,
    GroupValue,
    MarkerRecord,
    MemberValue,
    OffsetRecord,
    OffsetValue,
    UnknownRecord,
)
from callboard.runtime.loading.loader import PartitionReplay
from callboard.runtime.log.format.batch import Producer, encode_batch, frame_record, read_batches
from callboard.runtime.log.format.records import encode
from callboard.runtime.log.format.transaction_records import decode_batch, encode_marker
from callboard.runtime.log.reading import newest
from callboard.runtime.log.reading.columns import has_numpy
from callboard.runtime.log.reading.newest import LoadedPartition, load_partition
from callboard.runtime.log.reading.segment import segment_name

NUMPY_OPTIONS = [False, True] if has_numpy() else [False]
MEMBER = MemberValue("m", None, "c", "h", 5, 6, b"sub", b"assigned")
GROUPS, PRODUCERS = st.sampled_from(("a", "b", "ü")), st.integers(1, 3)

Pair = tuple[bytes, bytes | None]
Batch = tuple[Producer | None, list[Pair]]

values = st.none() | st.builds(
    OffsetValue,
    offset=st.integers(0, 9),
    leader_epoch=st.integers(-1, 3),
    metadata=st.sampled_from(("", "", "x", "é")),
    commit_timestamp_ms=st.integers(-1, 50),
    expire_timestamp_ms=st.sampled_from((-1, -1, 70)),
)
offsets = st.builds(OffsetRecord, GROUPS, st.sampled_from(("t", "u")), st.integers(0, 1), values)
group_values = st.none() | st.builds(
    GroupValue,
    protocol_type=st.sampled_from(("", "consumer")),
    generation=st.integers(0, 9),
    protocol=st.sampled_from((None, "range")),
    leader=st.sampled_from((None, "m")),
    current_state_timestamp_ms=st.integers(-1, 50),
    members=st.sampled_from(((), (MEMBER,))),
)
groups = st.builds(GroupRecord, GROUPS, group_values)
unknown = st.builds(UnknownRecord, st.just(10), st.just(b"\0\x0a\0\1a"), st.just(b"?"))


def in_other_version(pair: Pair, key_form: int) -> Pair:
    """The same key as an older or newer version may write it: type 0, or one more byte."""
    key, value = pair
    if key_form == 1 and key[:2] == b"\0\1":
        return b"\0\0" + key[2:], value
    return (key + b"!" if key_form == 2 else key), value


pairs = st.builds(
    in_other_version, (offsets | offsets | groups | unknown).map(encode), st.sampled_from((0, 0, 0, 1, 2))
)
plain: st.SearchStrategy[Batch] = st.tuples(st.none(), st.lists(pairs, max_size=5))
producers = st.builds(Producer, PRODUCERS, st.integers(0, 1), st.just(False))
in_transactions = st.tuples(producers, st.lists(pairs, min_size=1, max_size=3))


@st.composite
def markers(draw: st.DrawFn) -> Batch:
    record = MarkerRecord(draw(PRODUCERS), draw(st.integers(0, 1)), draw(st.booleans()))
    return Producer(record.producer_id, record.producer_epoch, True), [encode_marker(record)]


logs = st.lists(plain | plain | in_transactions | in_transactions | markers(), max_size=14)


def encode_log(log: Iterable[Batch]) -> list[bytes]:
    actual, base = [], 0
    for producer, records in log:
        if records:
            frames = [frame_record(0, delta, *pair) for delta, pair in enumerate(records)]
            actual.append(encode_batch(base, 5, 5, frames, producer))
            base += len(records)
    return actual


def write_segments(folder: Path, batches: Sequence[bytes], segment_starts: Iterable[int] = ()) -> Path:
    """The batches as segments; a segment begins at each of ``cuts``, which are indices of batches."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.log"):
        path.unlink()
    bounds = sorted({0, *segment_starts, len(batches)})
    for start, stop in pairwise(bounds):
        base = int.from_bytes(batches[start][:8], "big")
        (folder / segment_name(base)).write_bytes(b"".join(batches[start:stop]))
    return folder


def replay_batches(batches: Iterable[bytes]) -> dict[str, GroupData]:
    loading = PartitionReplay()
    for batch in read_batches(b"".join(batches)):
        for _offset, _timestamp_ms, record in decode_batch(batch):
            loading.replay(record)
    return {group_id: data for group_id, data in loading.groups.items() if not data.is_empty()}


def comparable_groups(groups: dict[str, GroupData]) -> dict[str, Any]:
    """The content of groups in comparable form; the order of producers matters."""
    return {
        group_id: (
            data.value,
            sorted(data.offsets),
            {partition: list(producers.items()) for partition, producers in data.pending.by_partition.items()},
        )
        for group_id, data in groups.items()
    }


def unpack_groups(loaded: LoadedPartition) -> dict[str, GroupData]:
    assert not loaded.packed_groups.keys() & loaded.unpacked_groups.keys()
    assert not any(data.is_packable() for data in loaded.unpacked_groups.values())
    return {
        group_id: GroupData.unpack(packed) for group_id, packed in loaded.packed_groups.items()
    } | loaded.unpacked_groups


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("newest")


@pytest.mark.parametrize("fast", NUMPY_OPTIONS)
@settings(max_examples=examples(60))
@given(
    log=logs,
    segment_starts=st.sets(st.integers(1, 13)),
    chunk_bytes=st.sampled_from((64, 200, 1 << 20)),
    bulk_min_records=st.sampled_from((1, 2, newest.BULK_MIN_RECORDS)),
)
def test_loading_newest_first_equals_oldest_first(
    folder: Path, fast: bool, log: list[Batch], segment_starts: set[int], chunk_bytes: int, bulk_min_records: int
) -> None:
    """With at least ``bulk_min_records`` records, their keys are looked up in bulk."""
    batches = encode_log(log)
    write_segments(folder / "p", batches, {start for start in segment_starts if start < len(batches)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newest, "BULK_MIN_RECORDS", bulk_min_records)
        loaded = load_partition(folder / "p", fast=fast, chunk_bytes=chunk_bytes)
    assert comparable_groups(unpack_groups(loaded)) == comparable_groups(replay_batches(batches))
    assert not loaded.quarantined and not loaded.problems and not loaded.damages
    assert loaded.records == sum(len(records) for _, records in log)


@pytest.mark.parametrize("fast", NUMPY_OPTIONS)
@settings(max_examples=examples(30))
@given(log=st.lists(plain | in_transactions | markers(), min_size=3, max_size=8), data=st.data())
def test_damaged_batch_loses_only_its_records(folder: Path, fast: bool, log: list[Batch], data: st.DataObject) -> None:
    """Records before and after it are loaded, and its position is reported."""
    batches = encode_log(log)
    index = data.draw(st.integers(0, max(0, len(batches) - 2)))
    if len(batches) < 2:
        return
    damaged = bytearray(batches[index])
    damaged[data.draw(st.integers(17, len(damaged) - 1))] ^= 0x10
    write_segments(folder / "d", [*batches[:index], bytes(damaged), *batches[index + 1 :]])
    loaded = load_partition(folder / "d", fast=fast)
    assert comparable_groups(unpack_groups(loaded)) == comparable_groups(
        replay_batches(batches[:index] + batches[index + 1 :])
    )
    [damage] = loaded.damages
    assert (damage.position, damage.size) == (sum(map(len, batches[:index])), len(damaged))


def committed(group_id: str, number: int, topic: str = "t") -> Pair:
    return encode(OffsetRecord(group_id, topic, 0, OffsetValue(number)))


EMPTY_GROUP = encode(GroupRecord("a", GroupValue("consumer", 1, None, None, 5, ())))


def invalid_value(group_id: str) -> Pair:
    """A value of an unknown version."""
    return committed(group_id, 1)[0], b"\0\x63what"


@pytest.mark.parametrize("fast", NUMPY_OPTIONS)
def test_malformed_record_quarantines_only_its_group(tmp_path: Path, fast: bool) -> None:
    log: list[Batch] = [
        (None, [committed("good", 1), committed("bad", 2, "other"), invalid_value("bad"), committed("late", 3)]),
        (None, [committed("late", 4, "other")]),
    ]
    loaded = load_partition(write_segments(tmp_path / "p", encode_log(log)), fast=fast)
    assert unpack_groups(loaded).keys() == {"good", "late"}
    assert loaded.quarantined.keys() == {"bad"}
    message = loaded.quarantined["bad"].reason
    assert "at offset 2" in message and f"{0:020d}.log" in message and "bad" in message and "version 99" in message


@pytest.mark.parametrize("fast", NUMPY_OPTIONS)
def test_superseded_malformed_record_is_ignored(tmp_path: Path, fast: bool) -> None:
    """The record is never decoded, because the group has a newer record."""
    log: list[Batch] = [(None, [invalid_value("a"), committed("a", 2)])]
    loaded = load_partition(write_segments(tmp_path / "p", encode_log(log)), fast=fast)
    assert comparable_groups(unpack_groups(loaded)) == {"a": (None, [("t", 0, OffsetValue(2))], {})}
    assert not loaded.quarantined


@pytest.mark.parametrize("fast", NUMPY_OPTIONS)
@pytest.mark.parametrize("key", [b"", b"\0", b"\0\1\0\x09short", b"\0\2\0\2\xff\xff"])
def test_malformed_key_quarantines_no_group(tmp_path: Path, fast: bool, key: bytes) -> None:
    """The record's group is unknown, so the error contains the record's position."""
    log: list[Batch] = [(None, [committed("a", 1), (key, b"v")])]
    loaded = load_partition(write_segments(tmp_path / "p", encode_log(log)), fast=fast)
    assert unpack_groups(loaded).keys() == {"a"} and not loaded.quarantined
    [problem] = loaded.problems
    assert "at offset 1" in problem and repr(key) in problem


@pytest.mark.parametrize("fast", NUMPY_OPTIONS)
def test_malformed_name_of_a_group_is_a_problem_and_changes_no_end(tmp_path: Path, fast: bool) -> None:
    """Its topic's partition is known from a newer record, so all but its key looks as usual."""
    key, value = committed("bad", 9)
    log: list[Batch] = [(None, [(key.replace(b"bad", b"\xff\xff\xff"), value), committed("a", 1)])]
    loaded = load_partition(write_segments(tmp_path / "p", encode_log(log)), fast=fast)
    assert unpack_groups(loaded).keys() == {"a"} and not loaded.quarantined
    assert len(loaded.problems) == 1
    assert loaded.committed_ends == {("t", 0): 1}


@pytest.mark.parametrize("fast", NUMPY_OPTIONS)
@pytest.mark.parametrize("others", [[], [committed("a", 3, "u")], [EMPTY_GROUP]])
@pytest.mark.parametrize("producer", [None, Producer(7, 0, False)])
def test_group_with_one_plain_offset_and_other_records(
    tmp_path: Path, fast: bool, others: list[Pair], producer: Producer | None
) -> None:
    last: Batch = producer, [committed("a", 4, "v")]
    batches = encode_log([(None, [*others, committed("a", 1), committed("b", 2)]), last])
    loaded = load_partition(write_segments(tmp_path / "p", batches), fast=fast)
    assert comparable_groups(unpack_groups(loaded)) == comparable_groups(replay_batches(batches))


@pytest.mark.parametrize("fast", NUMPY_OPTIONS)
def test_ends_are_the_largest_committed_offsets(tmp_path: Path, fast: bool) -> None:
    log: list[Batch] = [
        (None, [committed("a", 9), committed("b", 5), committed("c", 7, "u")]),
        (None, [committed("a", 3)]),
    ]
    loaded = load_partition(write_segments(tmp_path / "p", encode_log(log)), fast=fast)
    assert loaded.committed_ends == {("t", 0): 5, ("u", 0): 7}


@pytest.mark.parametrize("fast", NUMPY_OPTIONS)
def test_empty_partition_loads_nothing(tmp_path: Path, fast: bool) -> None:
    loaded = load_partition(tmp_path / "none", fast=fast)
    assert loaded == LoadedPartition({}, {}, {}, {}, 0, 0, 0, [], [])


MEASURE = """
import sys, tracemalloc
from pathlib import Path
from callboard.runtime.log.reading.newest import load_partition
fast = sys.argv[2] == "True"
load_partition(Path(sys.argv[1]) / "warm", fast=fast)
tracemalloc.start()
loaded = load_partition(Path(sys.argv[1]) / "log", fast=fast, chunk_bytes=65536)
print(loaded.records, tracemalloc.get_traced_memory()[1])
"""


@pytest.mark.parametrize("fast", NUMPY_OPTIONS)
def test_memory_of_loading_depends_on_keys_not_on_log_size(tmp_path: Path, fast: bool) -> None:
    """A log ten times as large with the same keys needs the same peak memory."""

    pairs = [committed(f"group-{number}", number) for number in range(500)]
    encoded = encode_log([(None, pairs)])

    def measure_peak(rounds: int) -> tuple[int, int]:
        batches = [batch for number in range(rounds) for batch in rebased(encoded, number * len(pairs))]
        write_segments(tmp_path / "log", batches, range(0, rounds, 5))
        write_segments(tmp_path / "warm", batches[:1])
        command = [sys.executable, "-c", MEASURE, str(tmp_path), str(fast)]
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout.split()
        return int(output[0]), int(output[1])

    (few_records, small_peak), (many_records, large_peak) = measure_peak(10), measure_peak(100)
    assert many_records == 10 * few_records
    assert large_peak < small_peak * 1.25


def rebased(batches: Iterable[bytes], base: int) -> Iterator[bytes]:
    """The same batches with other base offsets, which no checksum covers."""
    for batch in batches:
        yield (int.from_bytes(batch[:8], "big") + base).to_bytes(8, "big") + batch[8:]
