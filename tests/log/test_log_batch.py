"""Encoding and decoding of RecordBatch v2: the same bytes as Kafka's coordinator, and detection of any damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_helpers import TRANSACTIONAL, kafka_python_batches, with_attributes

from callboard.actors.records import GroupRecord, OffsetRecord, OffsetValue
from callboard.runtime.disk.crc import crc32c
from callboard.runtime.log.format.batch import (
    CRC_FROM,
    Batch,
    encode_batch,
    frame_record,
    offsets_of,
    read_batch,
    read_batches,
)
from callboard.runtime.log.format.errors import DamagedBatch
from callboard.runtime.log.format.records import decode, encode
from callboard.runtime.log.format.varint import (
    decode_signed,
    decode_unsigned,
    encode_length,
    encode_signed,
    encode_unsigned,
)

TIME_MS = 1700000000000
COMMIT = OffsetRecord("g", "t", 0, OffsetValue(42, 3, "x", TIME_MS))
# Written by Kafka's own record builder: an offset commit and a group's tombstone; a transactional commit; two markers.
PLAIN = bytes.fromhex(
    "000000000000000000000069ffffffff022f094a600000000000010000018bcfe568000000018bcfe56803ffffffffffffffffffff0000"
    "0000000000025600000018000100016700017400000000320003000000000000002a000000030001780000018bcfe56800001600060"
    "20a00020001670100"
)
MARKER = bytes.fromhex(
    "000000000000000000000042ffffffff02a7d9b82a0030000000000000018bcfe568000000018bcfe5680000000000000003e80002"
    "ffffffff000000012000000008000000010c00000000000500"
)


def encoded(base_offset: int, *values: int) -> bytes:
    records = [
        frame_record(0, delta, *encode(OffsetRecord("g", "t", value, OffsetValue(value))))
        for delta, value in enumerate(values)
    ]
    return encode_batch(base_offset, TIME_MS, TIME_MS, records)


def test_encoded_batch_equals_kafkas_bytes() -> None:
    """Except for the leader epoch, which the log sets and no checksum covers."""
    first_record = frame_record(0, 0, *encode(COMMIT))
    second_record = frame_record(3, 1, *encode(GroupRecord("g", None)))
    batch = encode_batch(0, TIME_MS, TIME_MS + 3, [first_record, second_record])
    assert batch[:12] == PLAIN[:12]
    assert batch[12:16] == b"\0\0\0\0"
    assert batch[16:] == PLAIN[16:]


def test_batch_written_by_kafka_is_decoded() -> None:
    (batch,) = read_batches(PLAIN)
    actual = [(offset, timestamp_ms, decode(key, value)) for offset, timestamp_ms, key, value in batch.records()]
    assert actual == [(0, TIME_MS, COMMIT), (1, TIME_MS + 3, GroupRecord("g", None))]
    assert not batch.is_transactional and not batch.is_control and batch.size == len(PLAIN) and batch.last_offset == 1


@pytest.mark.parametrize("data", [TRANSACTIONAL, MARKER])
def test_transactional_and_control_batches_are_distinguished(data: bytes) -> None:
    (batch,) = read_batches(data)
    assert batch.is_transactional


def test_encoded_batches_are_read_by_kafka_python() -> None:
    """An independent reader, with its own checksum."""
    actual = [
        (record.offset, record.timestamp, decode(record.key, record.value))
        for batch in kafka_python_batches(encoded(7, 1, 2, 3) + encoded(10, 4))
        for record in batch
    ]
    assert actual == [(6 + value, TIME_MS, OffsetRecord("g", "t", value, OffsetValue(value))) for value in (1, 2, 3, 4)]


@given(
    st.integers(0, 2**61),
    st.lists(
        st.tuples(st.integers(0, 10**6), st.binary(max_size=200), st.none() | st.binary(max_size=200)), min_size=1
    ),
)
def test_encoded_records_are_decoded_unchanged(base: int, records: list[tuple[int, bytes, bytes | None]]) -> None:
    framed_records = [frame_record(delta_ms, index, key, value) for index, (delta_ms, key, value) in enumerate(records)]
    (batch,) = read_batches(encode_batch(base, TIME_MS, TIME_MS + 10**6, framed_records))
    expected = [(base + index, TIME_MS + ms, key, value) for index, (ms, key, value) in enumerate(records)]
    assert list(batch.records()) == expected
    assert offsets_of(batch.data) == (base, base + len(records) - 1)


def test_log_append_time_applies_to_all_records_of_the_batch() -> None:
    records = [frame_record(delta_ms, delta_ms, b"k", None) for delta_ms in range(3)]
    (batch,) = read_batches(with_attributes(encode_batch(0, TIME_MS, TIME_MS + 9, records), 8))
    assert [timestamp_ms for _, timestamp_ms, _, _ in batch.records()] == [TIME_MS + 9] * 3


def test_batch_truncated_at_any_byte_is_damaged() -> None:
    batch = encoded(0, 1, 2)
    for size in range(1, len(batch)):
        batches = read_batches(batch + batch[:size])
        next(batches)
        with pytest.raises(DamagedBatch, match="cut off") as error:
            next(batches)
        assert error.value.position == len(batch)


def test_batch_with_any_flipped_bit_is_damaged() -> None:
    """Except for bits of base offset and leader epoch, which Kafka's checksum does not cover."""
    batch = encoded(0, 1, 2)
    for bit in range(8 * 8, len(batch) * 8):
        if 12 * 8 <= bit < 16 * 8:
            continue
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedBatch):
            list(read_batches(bytes(flipped)))


@pytest.mark.parametrize(
    ("position", "replacement", "reason"),
    [
        (16, "01", "magic 1, expected 2"),
        (8, "00000030", "its length says 60 bytes, expected at least 61"),
        (8, "ffffffff", "its length says 11 bytes"),
        (8, "80000000", "its length says"),
        (0, "ff", "base offset -"),
        (17, "00000000", "checksum 0x"),
    ],
)
def test_damaged_header_error_names_the_field(position: int, replacement: str, reason: str) -> None:
    damaged = bytearray(encoded(0, 1))
    damaged[position : position + len(replacement) // 2] = bytes.fromhex(replacement)
    with pytest.raises(DamagedBatch, match=reason):
        read_batch(memoryview(damaged))


def batch_with_records(batch: bytes, records: bytes, count: int) -> Batch:
    """A batch with these bytes as its records and a correct checksum, as a faulty writer would produce it."""
    checked_bytes = batch[CRC_FROM:57] + count.to_bytes(4, "big") + records
    length = len(checked_bytes) + CRC_FROM - 12
    data = (
        batch[:8] + length.to_bytes(4, "big") + batch[12:17] + crc32c(checked_bytes).to_bytes(4, "big") + checked_bytes
    )
    return read_batch(memoryview(data))


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ("", "record 0 of 1: cut off inside a varint"),
        ("7e", "claims 63 bytes"),
        ("01", "claims -1 bytes"),
        ("0600" + "00" + "00", "cut off|claims"),
        ("0c00" + "00" + "00" + "c801" + "00", "a field of 100 bytes"),
        ("0a00" + "00" + "00" + "03" + "00", "a field of -2 bytes"),
        ("ffffffffffffffffffffff", "more than 10 bytes"),
    ],
)
def test_records_that_do_not_match_their_batch_are_damaged(records: str, reason: str) -> None:
    with pytest.raises(DamagedBatch, match=reason):
        list(batch_with_records(encoded(0, 1), bytes.fromhex(records), 1).records())


@given(st.binary(max_size=80), st.integers(0, 5))
def test_arbitrary_record_bytes_decode_or_are_damaged(records: bytes, count: int) -> None:
    try:
        assert len(list(batch_with_records(encoded(0, 1), records, count).records())) == count
    except DamagedBatch as error:
        assert error.position == 0


def test_lengths_in_the_table_are_encoded_like_any_number() -> None:
    numbers = range(8200)
    assert [encode_length(number) for number in numbers] == [encode_signed(number) for number in numbers]


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_are_decoded_unchanged(number: int) -> None:
    data = encode_signed(number)
    assert decode_signed(data, 0) == (number, len(data))
    if number >= 0:
        assert encode_length(number) == data
        assert decode_unsigned(b"\xff" + encode_unsigned(number), 1) == (number, len(encode_unsigned(number)) + 1)


@pytest.mark.parametrize(
    ("number", "data"), [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (64, "8001"), (150, "ac02")]
)
def test_varints_have_the_expected_bytes(number: int, data: str) -> None:
    assert encode_signed(number) == bytes.fromhex(data)


def test_crc32c_equals_castagnoli_and_can_be_continued() -> None:
    """Uses the standard check value of CRC-32C."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(memoryview(b"6789"), crc32c(bytearray(b"12345"))) == 0xE3069283
