"""A producer's batch at the door of a topic: what is taken, what is refused, and with which of Kafka's codes.

The codes are those that Kafka 4.3 answered to the same kind of bytes, but for those marked as ours.
"""

from __future__ import annotations

from struct import pack, pack_into
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topics_helpers import CONTROL_BIT, MESSAGE_MAX_BYTES, sent

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.runtime.log.format.batch import HEADER_BYTES
from callboard.runtime.topics.batch import check_batch, read_batch_info


def refusal(records: bytes | None, max_bytes: int = MESSAGE_MAX_BYTES) -> ErrorCode:
    with pytest.raises(CoordinatorError) as caught:
        check_batch(records, max_bytes)
    return caught.value.code


def bent(position: int, layout: str, value: int) -> bytes:
    records = bytearray(sent())
    pack_into(layout, records, position, value)
    return bytes(records)


REFUSED: dict[str, tuple[bytes | None, ErrorCode]] = {
    "null": (None, ErrorCode.INVALID_RECORD),  # ours: Kafka never answers this
    "no bytes": (b"", ErrorCode.INVALID_RECORD),
    "half a header": (sent()[:30], ErrorCode.INVALID_RECORD),
    "cut off": (sent()[:-3], ErrorCode.INVALID_RECORD),
    "two batches": (sent() + sent(), ErrorCode.INVALID_RECORD),
    "a length that is too large": (bent(8, ">i", 10**6), ErrorCode.INVALID_RECORD),
    "a negative length": (bent(8, ">i", -3), ErrorCode.CORRUPT_MESSAGE),
    "a wrong checksum": (sent(crc_change=1), ErrorCode.CORRUPT_MESSAGE),
    "magic 0": (sent(magic=0), ErrorCode.INVALID_RECORD),
    "magic 1": (sent(magic=1), ErrorCode.INVALID_RECORD),
    "magic 3": (sent(magic=3), ErrorCode.CORRUPT_MESSAGE),
    # Ours: Kafka says UNKNOWN_SERVER_ERROR.
    "an unknown codec": (sent(attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "a control batch": (sent(attributes=CONTROL_BIT), ErrorCode.INVALID_RECORD),
    "no records": (sent(0, timestamps=[1], claimed=0, last_delta=0), ErrorCode.INVALID_RECORD),
    "a negative count": (sent(claimed=-1), ErrorCode.INVALID_RECORD),
    "a negative delta": (sent(last_delta=-1), ErrorCode.INVALID_RECORD),
    "a gap inside": (sent(2, last_delta=5), ErrorCode.INVALID_RECORD),
    "more records than bytes": (sent(claimed=2**31 - 1, last_delta=2**31 - 2), ErrorCode.INVALID_RECORD),
    "a base offset": (sent(base_offset=77), ErrorCode.INVALID_RECORD),
    "a producer without sequence": (sent(producer=(7, 0, -1)), ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize(("records", "code"), REFUSED.values(), ids=REFUSED)
def test_what_kafka_refuses_is_refused_with_its_code(records: bytes | None, code: ErrorCode) -> None:
    assert refusal(records) == code


def test_a_batch_may_be_as_large_as_the_setting_and_no_larger() -> None:
    records = sent(value=b"x" * 500)
    assert check_batch(records, len(records)).record_count == 1
    assert refusal(records, len(records) - 1) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", range(1, 5))
def test_compressed_records_are_taken_unseen(codec: int) -> None:
    """Nothing is decompressed, so the header's count stands, whatever the bytes are."""
    batch = check_batch(sent(1000, attributes=codec, records=b"not really compressed"), MESSAGE_MAX_BYTES)
    assert batch.record_count == 1000


@given(base_offset=st.integers(0, 2**62), count=st.integers(1, 5))
def test_a_placed_batch_differs_in_offset_and_leader_epoch_alone(base_offset: int, count: int) -> None:
    """The checksum does not cover them, so the consumer can still check what the producer sent."""
    records = sent(count)
    placed = check_batch(records, MESSAGE_MAX_BYTES).with_base_offset(base_offset)
    assert placed[:16] == pack(">qii", base_offset, len(records) - 12, 0)
    assert placed[16:] == records[16:]
    assert read_batch_info(placed)[:2] == (base_offset, count)


@given(position=st.integers(0, HEADER_BYTES + 10), change=st.integers(1, 255))
def test_no_changed_byte_is_taken_for_the_batch_that_was_sent(position: int, change: int) -> None:
    records = bytearray(sent(3, value=b"some more bytes"))
    records[position] ^= change
    if 12 <= position < 16:  # the leader epoch: outside of the checksum, and overwritten
        assert check_batch(bytes(records), MESSAGE_MAX_BYTES).record_count == 3
    else:
        refusal(bytes(records))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_and_nothing_worse(records: Any) -> None:
    refusal(records)
