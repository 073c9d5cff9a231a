"""Keys and values of ``__consumer_offsets``: Kafka's bytes in both directions, and errors for invalid bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callboard.actors.records import GroupRecord, GroupValue, MemberValue, OffsetRecord, OffsetValue, UnknownRecord
from callboard.runtime.log.format import encoder
from callboard.runtime.log.format.batch import frame_record
from callboard.runtime.log.format.encoder import RecordEncoder
from callboard.runtime.log.format.errors import DamagedRecord, UnwritableRecord
from callboard.runtime.log.format.fields import MAX_STRING_BYTES
from callboard.runtime.log.format.records import decode, encode

COMMITTED_MS = 1700000000000
OFFSET_KEY = bytes.fromhex("000100016700017400000000")
GROUP_KEY = bytes.fromhex("0002000167")

# Bytes written by Kafka's generated classes, and their records.
OFFSET_VALUES = {
    "0000000000000000002a0001780000018bcfe56800": OffsetValue(42, -1, "x", COMMITTED_MS),
    "0001000000000000002a0001780000018bcfe568000000018bcfe56be8": OffsetValue(42, -1, "x", COMMITTED_MS, 1700000001000),
    "0002000000000000002a0001780000018bcfe56800": OffsetValue(42, -1, "x", COMMITTED_MS),
    "0003000000000000002a000000030001780000018bcfe56800": OffsetValue(42, 3, "x", COMMITTED_MS),
    "0004000000000000002a0000000302780000018bcfe5680000": OffsetValue(42, 3, "x", COMMITTED_MS),
}


def group(timestamp_ms: int, instance: str | None, rebalance_timeout_ms: int) -> GroupValue:
    member = MemberValue("m1", instance, "c1", "/127.0.0.1", rebalance_timeout_ms, 45000, b"\1\2", b"\3")
    return GroupValue("consumer", 1, "range", "m1", timestamp_ms, (member,))


GROUP_VALUES = {
    "00000008636f6e73756d657200000001000572616e676500026d310000000100026d3100026331000a2f3132372e302e302e31"
    "0000afc80000000201020000000103": group(-1, None, -1),
    "00010008636f6e73756d657200000001000572616e676500026d310000000100026d3100026331000a2f3132372e302e302e31"
    "000493e00000afc80000000201020000000103": group(-1, None, 300000),
    "00020008636f6e73756d657200000001000572616e676500026d310000018bcfe568000000000100026d3100026331000a2f31"
    "32372e302e302e31000493e00000afc80000000201020000000103": group(COMMITTED_MS, None, 300000),
    "00030008636f6e73756d657200000001000572616e676500026d310000018bcfe568000000000100026d310002693100026331"
    "000a2f3132372e302e302e31000493e00000afc80000000201020000000103": group(COMMITTED_MS, "i1", 300000),
    "0003000000000000ffffffff0000018bcfe5680000000000": GroupValue("", 0, None, None, COMMITTED_MS, ()),
    # v4 by its schema: compact strings, bytes and arrays, and tagged fields at the ends. The member has an unknown one.
    "000409636f6e73756d6572000000010672616e6765036d310000018bcfe5680002036d31036931036331"
    "0b2f3132372e302e302e31000493e00000afc80301020203" + "010702aabb" + "00": group(COMMITTED_MS, "i1", 300000),
}
ALL_VALUES = [(OFFSET_KEY, text) for text in OFFSET_VALUES] + [(GROUP_KEY, text) for text in GROUP_VALUES]

texts = st.text(st.characters(codec="utf-8"), max_size=40)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
offset_values = st.builds(OffsetValue, int64s, int32s, texts, int64s, st.just(-1))
offset_records = st.builds(OffsetRecord, texts, texts, int32s, st.none() | offset_values)
members = st.builds(
    MemberValue, texts, st.none() | texts, texts, texts, int32s, int32s, st.binary(max_size=9), st.binary(max_size=9)
)
group_values = st.builds(
    GroupValue, texts, int32s, st.none() | texts, st.none() | texts, int64s, st.lists(members, max_size=3).map(tuple)
)
group_records = st.builds(GroupRecord, texts, st.none() | group_values)


@pytest.mark.parametrize(("text", "value"), OFFSET_VALUES.items())
def test_offset_values_of_every_version_are_decoded(text: str, value: OffsetValue) -> None:
    assert decode(OFFSET_KEY, bytes.fromhex(text)) == OffsetRecord("g", "t", 0, value)


@pytest.mark.parametrize(("text", "value"), GROUP_VALUES.items())
def test_group_values_of_every_version_are_decoded(text: str, value: GroupValue) -> None:
    assert decode(GROUP_KEY, bytes.fromhex(text)) == GroupRecord("g", value)


@pytest.mark.parametrize("text", [text for text in OFFSET_VALUES if text[:4] in ("0001", "0003")])
def test_encoded_offset_equals_kafkas_bytes(text: str) -> None:
    """Version 3, and version 1 when there is an expire timestamp."""
    assert encode(OffsetRecord("g", "t", 0, OFFSET_VALUES[text])) == (OFFSET_KEY, bytes.fromhex(text))


@pytest.mark.parametrize("text", [text for text in GROUP_VALUES if text[:4] == "0003"])
def test_encoded_group_equals_kafkas_bytes(text: str) -> None:
    assert encode(GroupRecord("g", GROUP_VALUES[text])) == (GROUP_KEY, bytes.fromhex(text))


def test_tombstones_have_no_value() -> None:
    assert encode(OffsetRecord("g", "t", 0, None)) == (OFFSET_KEY, None)
    assert decode(GROUP_KEY, None) == GroupRecord("g", None)


def test_key_type_0_is_decoded_as_type_1() -> None:
    assert decode(b"\0\0" + OFFSET_KEY[2:], None) == OffsetRecord("g", "t", 0, None)


@pytest.mark.parametrize("key_type", [9, 15, 17, 32767, -1])
def test_unknown_key_types_are_kept_unchanged(key_type: int) -> None:
    """Such a record is kept unchanged, so that partitions of a newer Kafka can be used."""
    key = key_type.to_bytes(2, "big", signed=True) + b"\0\1g"
    assert decode(key, b"\0\0\1") == UnknownRecord(key_type, key, b"\0\0\1")
    assert encode(UnknownRecord(key_type, key, b"\0\0\1")) == (key, b"\0\0\1")


@given(offset_records | group_records)
def test_encoded_records_are_decoded_unchanged(record: OffsetRecord | GroupRecord) -> None:
    assert decode(*encode(record)) == record


@given(texts, int64s, int64s.filter(lambda time_ms: time_ms != -1))
def test_offset_with_expiry_has_no_leader_epoch(metadata: str, offset: int, expire_ms: int) -> None:
    """Kafka's version 1 has no such field."""
    _, value = encode(OffsetRecord("g", "t", 0, OffsetValue(offset, 7, metadata, 5, expire_ms)))
    assert decode(OFFSET_KEY, value) == OffsetRecord("g", "t", 0, OffsetValue(offset, -1, metadata, 5, expire_ms))


@pytest.mark.parametrize(("key", "text"), ALL_VALUES)
def test_value_truncated_at_any_byte_is_damaged(key: bytes, text: str) -> None:
    value = bytes.fromhex(text)
    for size in range(len(value)):
        with pytest.raises(DamagedRecord, match="damaged record value at byte") as error:
            decode(key, value[:size])
        assert 0 <= error.value.position <= size


@pytest.mark.parametrize("key", [OFFSET_KEY, GROUP_KEY])
def test_key_truncated_at_any_byte_is_damaged(key: bytes) -> None:
    for size in range(len(key)):
        with pytest.raises(DamagedRecord, match="damaged record key at byte"):
            decode(key[:size], None)


@pytest.mark.parametrize(
    ("key", "value", "part", "position", "reason"),
    [
        (None, None, "key", 0, "null"),
        ("0001fffe6700017400000000", None, "key", 2, "-2 bytes"),
        ("0001ffff00017400000000", None, "key", 2, "null string"),
        ("0001000167ff9c7400000000", None, "key", 5, "-100 bytes"),
        ("00027fff67", None, "key", 2, "32767 bytes, 1 left"),
        ("00020001ff", None, "key", 2, "not UTF-8"),
        ("000100016700017400000000", "0005", "value", 0, "value version 5"),
        ("000100016700017400000000", "ffff", "value", 0, "value version -1"),
        ("000100016700017400000000", "0003000000000000002a00000003ffff0000018bcfe56800", "value", 14, "null string"),
        ("000100016700017400000000", "0003000000000000002a00000003fff00000018bcfe56800", "value", 14, "-16 bytes"),
        ("000100016700017400000000", "0003000000000000002a000000030001ff0000018bcfe56800", "value", 14, "not UTF-8"),
        ("000100016700017400000000", "0004000000000000002a00000003ffffffffffffffffffffff", "value", 14, "more than 10"),
        ("0002000167", "0003000000000000ffffffff0000018bcfe56800fffffffe", "value", 20, "array of -2"),
        ("0002000167", "0003000000000000ffffffff0000018bcfe568007fffffff", "value", 24, "2 bytes expected, 0 left"),
    ],
)
def test_damaged_record_error_names_part_and_byte(
    key: str | None, value: str | None, part: str, position: int, reason: str
) -> None:
    with pytest.raises(DamagedRecord, match=reason) as error:
        decode(None if key is None else bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    assert (error.value.part, error.value.position) == (part, position)


@given(st.binary(max_size=60), st.none() | st.binary(max_size=60))
@example(b"\0\1\x7f\xff", b"\0\3")
def test_arbitrary_bytes_decode_or_are_damaged(key: bytes, value: bytes | None) -> None:
    try:
        decode(key, value)
    except DamagedRecord as error:
        assert error.position >= 0


@given(st.sampled_from(ALL_VALUES), st.data())
def test_value_with_changed_byte_decodes_or_is_damaged(vector: tuple[bytes, str], data: st.DataObject) -> None:
    key, value = vector[0], bytearray.fromhex(vector[1])
    value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(key, bytes(value))
    except DamagedRecord as error:
        assert error.part == "value"


def test_bytes_after_the_last_field_are_ignored() -> None:
    """Kafka ignores them, too. This also covers the slow path of the decoder."""
    value = bytes.fromhex("0003000000000000002a000000030001780000018bcfe56800")
    assert decode(OFFSET_KEY + b"\7", value + b"\7") == decode(OFFSET_KEY, value)


@pytest.mark.parametrize(
    "record",
    [
        OffsetRecord("g" * (MAX_STRING_BYTES + 1), "t", 0, OffsetValue(1)),
        OffsetRecord("g", "t" * (MAX_STRING_BYTES + 1), 0, None),
        OffsetRecord("g", "t", 0, OffsetValue(1, -1, "é" * (MAX_STRING_BYTES // 2 + 1))),
        OffsetRecord("g", "t", 2**31, OffsetValue(1)),
        OffsetRecord("g", "t", 0, OffsetValue(2**63)),
        OffsetRecord("\ud800", "t", 0, OffsetValue(1)),
        OffsetRecord("g", "t", 0, OffsetValue(1, -1, "\ud800")),
        GroupRecord("g", GroupValue("consumer", 2**31, None, None, -1, ())),
    ],
)
def test_values_beyond_the_schema_are_refused(record: Any) -> None:
    with pytest.raises(UnwritableRecord):
        encode(record)
    with pytest.raises(UnwritableRecord):
        RecordEncoder().frame(record, 0)


@given(st.lists(offset_records | group_records, max_size=4), st.sampled_from([0, 1, 63, 64, 8191, 8192, 10**6]))
def test_fast_encoder_writes_the_same_bytes(records: list[OffsetRecord | GroupRecord], delta: int) -> None:
    """Compares the fast and the plain encoder, twice so that the table of keys is used."""
    record_encoder = RecordEncoder()
    for record in records + records:
        assert record_encoder.frame(record, delta) == frame_record(0, delta, *encode(record))


@given(st.sampled_from([0, 1, 38, 39, 40, 8166, 8167, 8168, 20000, MAX_STRING_BYTES]))
def test_fast_encoder_is_right_at_varint_boundaries(size: int) -> None:
    record = OffsetRecord("g", "t", 0, OffsetValue(1, 2, "m" * size, 3))
    assert RecordEncoder().frame(record, 0) == frame_record(0, 0, *encode(record))


def test_key_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more groups than its limit it does not grow, and keys are not confused."""
    monkeypatch.setattr(encoder, "KEY_TABLE_LIMIT", 3)
    record_encoder = RecordEncoder()
    for number in [*range(10), *range(10)]:
        record = OffsetRecord(f"g{number}", "t", number, OffsetValue(1))
        assert record_encoder.frame(record, 0) == frame_record(0, 0, *encode(record))
        assert len(record_encoder._keys) <= 3
