"""Validation of producers' batches: accepted batches, refused batches, and Kafka's error codes.

The codes are those of Kafka 4.3 for the same bytes, except where a comment says otherwise.
"""

from __future__ import annotations

from struct import pack, pack_into
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topics_helpers import CONTROL_BIT, MESSAGE_MAX_BYTES, producer_batch

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.runtime.log.format.batch import HEADER_BYTES
from callboard.runtime.topics.batch import check_batch, read_batch_info


def error_code_of_invalid_batch(records: bytes | None, max_bytes: int = MESSAGE_MAX_BYTES) -> ErrorCode:
    with pytest.raises(CoordinatorError) as caught:
        check_batch(records, max_bytes)
    return caught.value.code


def batch_with_field(position: int, layout: str, value: int) -> bytes:
    records = bytearray(producer_batch())
    pack_into(layout, records, position, value)
    return bytes(records)


REFUSED: dict[str, tuple[bytes | None, ErrorCode]] = {
    "null": (None, ErrorCode.INVALID_RECORD),  # differs: Kafka does not respond
    "no bytes": (b"", ErrorCode.INVALID_RECORD),
    "half a header": (producer_batch()[:30], ErrorCode.INVALID_RECORD),
    "cut off": (producer_batch()[:-3], ErrorCode.INVALID_RECORD),
    "two batches": (producer_batch() + producer_batch(), ErrorCode.INVALID_RECORD),
    "a length that is too large": (batch_with_field(8, ">i", 10**6), ErrorCode.INVALID_RECORD),
    "a negative length": (batch_with_field(8, ">i", -3), ErrorCode.CORRUPT_MESSAGE),
    "a wrong checksum": (producer_batch(crc_change=1), ErrorCode.CORRUPT_MESSAGE),
    "magic 0": (producer_batch(magic=0), ErrorCode.INVALID_RECORD),
    "magic 1": (producer_batch(magic=1), ErrorCode.INVALID_RECORD),
    "magic 3": (producer_batch(magic=3), ErrorCode.CORRUPT_MESSAGE),
    # Differs: Kafka returns UNKNOWN_SERVER_ERROR.
    "an unknown codec": (producer_batch(attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "a control batch": (producer_batch(attributes=CONTROL_BIT), ErrorCode.INVALID_RECORD),
    "no records": (producer_batch(0, timestamps=[1], claimed=0, last_delta=0), ErrorCode.INVALID_RECORD),
    "a negative count": (producer_batch(claimed=-1), ErrorCode.INVALID_RECORD),
    "a negative delta": (producer_batch(last_delta=-1), ErrorCode.INVALID_RECORD),
    "a gap inside": (producer_batch(2, last_delta=5), ErrorCode.INVALID_RECORD),
    "more records than bytes": (producer_batch(claimed=2**31 - 1, last_delta=2**31 - 2), ErrorCode.INVALID_RECORD),
    "a base offset": (producer_batch(base_offset=77), ErrorCode.INVALID_RECORD),
    "a producer without sequence": (producer_batch(producer=(7, 0, -1)), ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize(("records", "code"), REFUSED.values(), ids=REFUSED)
def test_check_batch_of_invalid_batch_raises_kafkas_error_code(records: bytes | None, code: ErrorCode) -> None:
    assert error_code_of_invalid_batch(records) == code


def test_check_batch_above_message_max_bytes_raises_message_too_large() -> None:
    records = producer_batch(value=b"x" * 500)
    assert check_batch(records, len(records)).record_count == 1
    assert error_code_of_invalid_batch(records, len(records) - 1) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", range(1, 5))
def test_check_batch_of_compressed_batch_does_not_read_records(codec: int) -> None:
    """Nothing is decompressed, so the record count of the header is accepted for any bytes."""
    batch = check_batch(producer_batch(1000, attributes=codec, records=b"not really compressed"), MESSAGE_MAX_BYTES)
    assert batch.record_count == 1000


@given(base_offset=st.integers(0, 2**62), count=st.integers(1, 5))
def test_with_base_offset_changes_only_offset_and_leader_epoch(base_offset: int, count: int) -> None:
    """The checksum does not cover these fields, so consumers can still verify the producer's checksum."""
    records = producer_batch(count)
    placed = check_batch(records, MESSAGE_MAX_BYTES).with_base_offset(base_offset)
    assert placed[:16] == pack(">qii", base_offset, len(records) - 12, 0)
    assert placed[16:] == records[16:]
    assert read_batch_info(placed)[:2] == (base_offset, count)


@given(position=st.integers(0, HEADER_BYTES + 10), change=st.integers(1, 255))
def test_check_batch_with_changed_byte_is_refused_or_returns_other_batch(position: int, change: int) -> None:
    records = bytearray(producer_batch(3, value=b"some more bytes"))
    records[position] ^= change
    if 12 <= position < 16:  # the leader epoch: outside of the checksum, and overwritten
        assert check_batch(bytes(records), MESSAGE_MAX_BYTES).record_count == 3
    else:
        error_code_of_invalid_batch(bytes(records))


@given(st.binary(max_size=200))
def test_check_batch_of_random_bytes_raises_only_coordinator_error(records: Any) -> None:
    error_code_of_invalid_batch(records)
