"""Decoding of records: by columns compared with the log's decoder, newest first compared with a replay."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compaction_helpers import BatchSpec, RecordSpec, write_files
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import LazyDisk
from spark_helpers import I16, I64, START_MS, Row, read_rows, text

from callboard.actors.records import GroupRecord, GroupValue, MarkerRecord, MemberValue
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.format.batch import Batch
from callboard.runtime.log.format.errors import DamagedRecord
from callboard.runtime.log.format.records import decode, encode, encode_key
from callboard.runtime.log.format.transaction_records import decode_record
from callboard.runtime.log.manifest import log_files
from callboard.runtime.log.reading.segment import scan
from callboard.spark.columns import ALL_COLUMNS
from callboard.spark.rows import record_row


def batches_of(folder: Path) -> Iterator[Batch]:
    for file in log_files(Disk(), folder).files:
        yield from scan(Disk(), file.path)


def one_by_one(folder: Path, number: int = 0) -> Iterator[Row]:
    """The same rows by the log's own decoder; None for records that it cannot decode."""
    for batch in batches_of(folder):
        for log_offset, time_ms, key, value in batch.records():
            try:
                record = None if key is None else decode_record(batch, key, value)
            except DamagedRecord:
                yield {"log_offset": log_offset, "kind": "damage"}
                continue
            yield record_row(number, batch, log_offset, time_ms, (key, value), record)


def same(row: Row, expected: Row) -> bool:
    if expected["kind"] == "damage":
        return bool(row["kind"] == "damage" and row["log_offset"] == expected["log_offset"])
    filled = {**dict.fromkeys(ALL_COLUMNS), **expected}
    if filled["members"]:
        filled["members"] = [dict(member) for member in filled["members"]]
    return row == filled


# Keys and values in every version of Kafka, and invalid ones --------------------------------------------------

TEXTS = st.sampled_from(["", "g", "Gruppe-ü", "グループ", "😀" * 5, "x" * 300])


@st.composite
def offset_keys(draw: st.DrawFn) -> bytes:
    kind, suffix = draw(st.sampled_from([0, 1, 1, 1])), draw(st.sampled_from([b"", b"", b"", b"more"]))
    group, topic = draw(st.sampled_from(["a", "b", "Gruppe-ü"])), draw(st.sampled_from(["t", "ü"]))
    return I16.pack(kind) + text(group) + text(topic) + draw(st.integers(0, 1)).to_bytes(4, "big") + suffix


@st.composite
def offset_values(draw: st.DrawFn) -> bytes:
    version = draw(st.integers(0, 4))
    number, time_ms = draw(st.integers(-(2**63), 2**63 - 1)), draw(st.sampled_from([-1, 0, START_MS, 2**62]))
    metadata, suffix = draw(TEXTS).encode(), draw(st.sampled_from([b"", b"", b"more"]))
    head = I16.pack(version) + I64.pack(number)
    if version >= 3:
        head += draw(st.sampled_from([-1, 0, 7])).to_bytes(4, "big", signed=True)
    if version == 4:
        size = len(metadata) + 1
        varint = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
        return head + varint + metadata + I64.pack(time_ms) + b"\0"
    times = I64.pack(time_ms) + (I64.pack(time_ms) if version == 1 else b"")
    return head + text(metadata) + times + suffix


GROUP = GroupValue(
    "consumer", 3, "range", "m", START_MS, (MemberValue("m", None, "c", "/h", 1, 2, b"\0\0\0\0\0\1\0\1t", b""),)
)
GROUPS = st.sampled_from(
    [
        encode(GroupRecord("a", GROUP)),
        encode(GroupRecord("b", None)),
        encode(GroupRecord("a", GROUP._replace(members=()))),
    ]
)
ODD_KEYS = st.sampled_from([None, b"", b"\0", b"\0\x05later", b"\xff\xff"])
BAD_KEYS = st.sampled_from(
    [
        b"\0\1\0\1a",
        b"\0\1" + text(b"\xff") + text("t") + bytes(4),
        b"\0\1\0\x05" + bytes(8),  # lengths that go beyond the end
        b"\0\1" + text("a") + b"\0\x09t" + bytes(4),
    ]
)
BAD_VALUES = st.sampled_from(
    [b"", b"\0\3", b"\0\7" + bytes(40), b"\0\3" + bytes(12) + b"\x7f\xff", b"\0\3" + bytes(12) + b"\x7f\xff" + bytes(8)]
)
RECORDS = st.one_of(
    st.tuples(offset_keys(), st.one_of(st.none(), offset_values())),
    st.tuples(offset_keys(), offset_values()),
    GROUPS,
    st.tuples(ODD_KEYS, st.sampled_from([None, b"", b"v"])),
    st.tuples(offset_keys(), BAD_VALUES),
    st.tuples(BAD_KEYS, offset_values()),
).map(lambda pair: RecordSpec(*pair))
BATCHES = st.builds(
    BatchSpec,
    st.lists(RECORDS, min_size=1, max_size=6).map(tuple),
    st.sampled_from(["plain", "plain", "plain", "transaction", "commit", "abort"]),
    st.integers(1, 2),
)
LOGS = st.lists(st.lists(BATCHES, min_size=1, max_size=6), min_size=1, max_size=3)


@settings(max_examples=150)
@given(LOGS, st.sampled_from([100, 300, 8 << 20]))
def test_decode_equals_log_decoder_for_every_record(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[BatchSpec]], chunk_bytes: int
) -> None:
    """By columns or one by one, for every version and for undecodable records."""
    root = tmp_path_factory.mktemp("log")
    write_files(LazyDisk(), files, root / "__consumer_offsets-0")
    rows = read_rows(root, chunk_bytes=chunk_bytes, damage="permissive")
    expected = list(one_by_one(root / "__consumer_offsets-0"))
    assert len(rows) == len(expected)
    for row, expected_row in zip(rows, expected, strict=True):
        assert same(row, expected_row), (row, expected_row)
    shutil.rmtree(root)


def replay(folder: Path) -> dict[Any, int]:
    """Log offsets of live records, by key, from a forward replay."""
    live: dict[Any, int] = {}
    pending: dict[int, list[tuple[Any, int, bool]]] = {}
    for batch in batches_of(folder):
        for log_offset, _, key, value in batch.records():
            if key is None:
                continue
            if batch.is_control:
                marker = decode_record(batch, key, value)
                assert isinstance(marker, MarkerRecord)
                for name, offset, lives in pending.pop(batch.producer_id, []):
                    if marker.committed and offset > abs(live.get(name, 0)):
                        live[name] = offset if lives else -offset
                continue
            name = key_of(key)
            if batch.is_transactional:
                pending.setdefault(batch.producer_id, []).append((name, log_offset, value is not None))
            else:
                live[name] = log_offset if value is not None else -log_offset
    return {name: offset for name, offset in live.items() if offset > 0}


def key_of(key: bytes) -> Any:
    try:
        return encode_key(decode(key, None))
    except DamagedRecord:
        return key


@settings(max_examples=150)
@given(LOGS, st.sampled_from([100, 300, 8 << 20]))
def test_live_records_equal_replay(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[BatchSpec]], chunk_bytes: int
) -> None:
    """Newest first with a set of keys, compared with a dictionary filled from the beginning."""
    root = tmp_path_factory.mktemp("log")
    folder = root / "__consumer_offsets-0"
    write_files(LazyDisk(), [[BatchSpec((RecordSpec(b"\0\x09", b"first"),))], *files], folder)
    expected = set(replay(folder).values())
    offsets = [row["log_offset"] for row in read_rows(root, chunk_bytes=chunk_bytes, mode="live", damage="permissive")]
    assert sorted(offsets) == sorted(expected | {0} & set(offsets))
    shutil.rmtree(root)
