"""Columns of record positions equal reading record by record, with and without numpy, for any batch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import TRANSACTIONAL, with_attributes
from property_examples import examples

from callboard.runtime.log.format.batch import HEADER_BYTES, LOG_APPEND_TIME_BIT, Producer, encode_batch, read_batches
from callboard.runtime.log.format.errors import DamagedBatch, UnsupportedCompression
from callboard.runtime.log.format.varint import encode_length, encode_signed
from callboard.runtime.log.reading.columns import RecordSpans, has_numpy
from callboard.runtime.log.reading.spans import read_spans, whole_batches

NUMPY_OPTIONS = [False, True] if has_numpy() else [False]
TIMES = st.integers(-(2**40), 2**40)

RecordTuple = tuple[int, int, bytes | None, bytes | None]


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """One batch of a coordinator or a compaction: gaps, no records, null keys, long keys and values."""
    base = draw(st.integers(0, 2**40))
    deltas = sorted(draw(st.sets(st.integers(0, 40_000), max_size=12)))
    records = [
        frame(draw(TIMES), delta, draw(st.none() | st.binary(max_size=200)), draw(st.none() | st.binary(max_size=200)))
        for delta in deltas
    ]
    producer = draw(st.none() | st.builds(Producer, st.integers(0, 2**62), st.integers(0, 2**15 - 1), st.booleans()))
    batch = encode_batch(base, draw(st.integers(-1, 2**62)), draw(st.integers(-1, 2**62)), records, producer)
    last_delta = max(deltas, default=0) + draw(st.integers(0, 3))
    attributes = int.from_bytes(batch[21:23], "big") | draw(st.sampled_from((0, LOG_APPEND_TIME_BIT)))
    return with_attributes(batch[:23] + last_delta.to_bytes(4, "big") + batch[27:], attributes)


def frame(timestamp_delta_ms: int, offset_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    """A record with a key that may be null, which no coordinator writes."""
    fields = [b"\1" if field is None else encode_length(len(field)) + field for field in (key, value)]
    body = b"\0" + encode_signed(timestamp_delta_ms) + encode_length(offset_delta) + b"".join(fields) + b"\0"
    return encode_length(len(body)) + body


def tuples_of_spans(data: bytes, spans: RecordSpans) -> list[RecordTuple]:
    columns = (spans.offset, spans.timestamp_ms, spans.key_at, spans.key_size, spans.value_at, spans.value_size)
    return [
        (
            int(offset),
            int(time_ms),
            bytes_at(data, int(key_at), int(key_size)),
            bytes_at(data, int(value_at), int(size)),
        )
        for offset, time_ms, key_at, key_size, value_at, size in zip(*columns, strict=True)
    ]


def bytes_at(data: bytes, at: int, size: int) -> bytes | None:
    return None if size < 0 else data[at : at + size]


def tuples_of_records(data: bytes) -> list[RecordTuple]:
    return [record for batch in read_batches(data) for record in batch.records()]


@pytest.mark.parametrize("fast", NUMPY_OPTIONS)
@settings(max_examples=examples(40))
@given(encoded=st.lists(batches(), max_size=6))
def test_columns_equal_decoded_records(fast: bool, encoded: Sequence[bytes]) -> None:
    data = b"".join(encoded)
    starts, end = whole_batches(data)
    assert end == len(data)
    spans = read_spans(data, starts, fast=fast)
    actual = list(read_batches(data))
    assert tuples_of_spans(data, spans) == tuples_of_records(data)
    assert [int(index) for index in spans.batch] == [
        index for index, batch in enumerate(actual) for _ in range(batch.record_count)
    ]
    headers = [tuple(map(int, row)) for row in zip(*spans.headers, strict=True)]
    assert headers == [
        (
            span.position, span.position + span.size, span.base_offset, span.last_offset, span.attributes,
            span.base_timestamp_ms, span.max_timestamp_ms, span.producer_id, span.producer_epoch, span.record_count,
        )
        for span in actual
    ]  # fmt: skip


@pytest.mark.parametrize("fast", NUMPY_OPTIONS)
@settings(max_examples=examples(40))
@given(encoded=st.lists(batches(), min_size=1, max_size=3))
def test_record_spans_can_be_copied(fast: bool, encoded: Sequence[bytes]) -> None:
    """The ranges from ``start`` to ``end`` cover the batch: a compaction copies complete records."""
    data = b"".join(encoded)
    spans = read_spans(data, whole_batches(data)[0], fast=fast)
    for index, (at, end) in enumerate(zip(spans.headers.at, spans.headers.end, strict=True)):
        records = [
            data[start:stop]
            for start, stop, batch_index in zip(spans.start, spans.end, spans.batch, strict=True)
            if batch_index == index
        ]
        assert b"".join(records) == data[int(at) + HEADER_BYTES : int(end)]


@pytest.mark.parametrize("fast", NUMPY_OPTIONS)
@pytest.mark.parametrize("count", [1, 3, 700])
def test_many_batches_are_decoded_together(fast: bool, count: int) -> None:
    """Long and short ones together; numpy decodes many batches on another path than few."""
    encoded, base = [], 0
    for number in range(150):
        size = 1 + number % count
        encoded.append(
            encode_batch(base, 5, 5, [frame(0, delta, b"k%d" % delta, b"v" * (number % 90)) for delta in range(size)])
        )
        base += size
    data = b"".join(encoded)
    assert tuples_of_spans(data, read_spans(data, whole_batches(data)[0], fast=fast)) == tuples_of_records(data)


@pytest.mark.parametrize("fast", NUMPY_OPTIONS)
@settings(max_examples=examples(40))
@given(body=st.binary(max_size=60), count=st.integers(0, 5), attributes=st.sampled_from((0, 8, 16, 48)))
def test_mismatched_records_are_refused_by_both_decoders(fast: bool, body: bytes, count: int, attributes: int) -> None:
    """Invalid bytes with a correct checksum: both decoders raise the same error with the same text."""
    batch = encode_batch(7, 1, 2, [body])
    batch = with_attributes(batch[:57] + count.to_bytes(4, "big") + batch[61:], attributes)
    try:
        expected: list[RecordTuple] | str = tuples_of_records(batch)
    except DamagedBatch as error:
        expected = str(error)
    try:
        actual: list[RecordTuple] | str = tuples_of_spans(batch, read_spans(batch, [0], fast=fast))
    except DamagedBatch as error:
        actual = str(error)
    assert actual == expected


@pytest.mark.parametrize("fast", NUMPY_OPTIONS)
def test_compressed_batch_is_refused_with_its_codec(fast: bool) -> None:
    data = TRANSACTIONAL + with_attributes(TRANSACTIONAL, 1)
    with pytest.raises(UnsupportedCompression, match=f"segment: batch at byte {100 + len(TRANSACTIONAL)} .* gzip"):
        read_spans(data, whole_batches(data)[0], fast=fast, source="segment", position=100)


@settings(max_examples=examples(40))
@given(encoded=st.lists(batches(), min_size=1, max_size=3), damage=st.data())
def test_buffer_ends_at_a_truncated_or_damaged_batch(encoded: Sequence[bytes], damage: st.DataObject) -> None:
    *intact, last_batch = encoded
    data = bytearray(b"".join(encoded))
    intact_bytes = len(data) - len(last_batch)
    if damage.draw(st.booleans()):
        del data[damage.draw(st.integers(intact_bytes, len(data) - 1)) :]
    else:
        data[damage.draw(st.integers(intact_bytes + 16, len(data) - 1))] ^= 1 << damage.draw(st.integers(0, 7))
    starts, end = whole_batches(bytes(data))
    assert (len(starts), end) == (len(intact), intact_bytes)
