"""Records of groups of the consumer protocol, in the bytes of Kafka 4.3.1.

``consumer_group_records.txt`` is the log of one group. The other bytes are from Kafka's classes too, for records of
older versions, which no broker of this version writes.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from toy_kind.records import RECORD_ROWS

from callboard.actors.consumer_group.records import (
    ClassicMember,
    ConsumerRecord,
    CurrentRecord,
    CurrentValue,
    GroupEpochRecord,
    GroupEpochValue,
    MemberRecord,
    MemberState,
    MemberValue,
    RegexRecord,
    RegexValue,
    TargetEpochRecord,
    TargetEpochValue,
    TargetRecord,
    TopicMetadata,
    TopicMetadataRecord,
)
from callboard.actors.consumer_group.state import GroupState
from callboard.actors.ports import Entry
from callboard.actors.records import OffsetRecord, OffsetValue, item_count
from callboard.actors.steps import run_steps
from callboard.runtime.log.format.batch import encode_batch, frame_record
from callboard.runtime.log.format.encoder import RecordEncoder
from callboard.runtime.log.format.errors import DamagedRecord, UnwritableRecord
from callboard.runtime.log.format.fields import MAX_STRING_BYTES
from callboard.runtime.log.format.records import RECORD_TYPES, decode, encode
from callboard.runtime.log.reading.newest import load_partition
from callboard.runtime.log.rounds import RoundEncoder

GROUP = "vectors"
STATIC, REGEX, PLAIN, CLASSIC = (
    "jRb/AtlkQJytziJXEgUSWg",
    "kwgwleRUS8ykEopy/FGMyA",
    "h0c6pRw/Q0OMeCIgSIyyuw",
    "o59mizcgRqiPloeJeqGGvw",
)
ORDERS, ORDERS_EU = (
    bytes.fromhex(text) for text in ("a4606be320d247e883de69c38b5d054e", "0ce41238cd49482c918553bbf730a6e6")
)
SUBSCRIPTION = bytes.fromhex("00030000000100066f72646572730000000000000000ffffffff0000")

Pair = tuple[bytes, bytes | None]


def _log() -> list[Pair]:
    lines = Path(__file__).with_name("consumer_group_records.txt").read_text().splitlines()
    pairs = (line.split() for line in lines if not line.startswith("#"))
    return [(bytes.fromhex(key), None if value == "-" else bytes.fromhex(value)) for key, value in pairs]


LOG = _log()

DECODED: tuple[ConsumerRecord, ...] = (
    MemberRecord(
        GROUP,
        STATIC,
        MemberValue("seat-1", "r1", "rec", "/127.0.0.1", ("orders",), "", 300_000, "range"),
    ),
    MemberRecord(GROUP, REGEX, MemberValue(None, None, "rec", "/127.0.0.1", (), "(^orders-.*)", 300_000, None)),
    MemberRecord(
        GROUP,
        CLASSIC,
        MemberValue(
            *(None, None, "old", "/127.0.0.1", ("orders",), "", 300_000, None),
            classic=ClassicMember(45_000, (("range", SUBSCRIPTION), ("roundrobin", SUBSCRIPTION))),
        ),
    ),
    GroupEpochRecord(GROUP, GroupEpochValue(2, -5734829497332081045)),
    GroupEpochRecord(GROUP, GroupEpochValue(9, 0)),
    TargetEpochRecord(GROUP, TargetEpochValue(2, 1795717467451)),
    TargetRecord(GROUP, STATIC, ((ORDERS, 0), (ORDERS, 1), (ORDERS, 2))),
    TargetRecord(GROUP, REGEX, ()),
    CurrentRecord(
        GROUP,
        STATIC,
        CurrentValue(
            *(3, 3, MemberState.UNREVOKED_PARTITIONS, {(ORDERS, 0): 2, (ORDERS, 1): 2}, {(ORDERS, 2): 2}),
        ),
    ),
    CurrentRecord(GROUP, STATIC, CurrentValue(-2, 5, MemberState.STABLE, {(ORDERS, 0): 0})),
    CurrentRecord(GROUP, PLAIN, CurrentValue(4, 0, MemberState.UNRELEASED_PARTITIONS)),
    CurrentRecord(GROUP, REGEX, CurrentValue(3, 2, MemberState.STABLE, {(ORDERS_EU, 0): 3, (ORDERS_EU, 1): 3})),
    RegexRecord(GROUP, "(^orders-.*)", RegexValue(("orders-eu",), 203, 1795717467317)),
    RegexRecord(GROUP, "(^orders-.*)", None),
    CurrentRecord(GROUP, REGEX, None),
)

TOPIC_ID = bytes(range(1, 17))
GROUP_KEY, MEMBER_KEY = "000167", "000167" + "00016d"  # g, and g with m
OLDER: dict[str, tuple[str, str, ConsumerRecord]] = {
    "topic metadata": (
        "0004" + GROUP_KEY,
        "0000020102030405060708090a0b0c0d0e0f10076f72646572730000000302000000000302610262000000",
        TopicMetadataRecord("g", (TopicMetadata(TOPIC_ID, "orders", 3, ((0, ("a", "b")),)),)),
    ),
    "classic member without fields": (
        "0005" + MEMBER_KEY,
        "000000000263032f680101ffffffff0000",
        MemberRecord("g", "m", MemberValue(None, None, "c", "/h", classic=ClassicMember())),
    ),
    "member of the consumer protocol": (
        "0005" + MEMBER_KEY,
        "000000000263032f680101ffffffff0001000100",
        MemberRecord("g", "m", MemberValue(None, None, "c", "/h", classic=None)),
    ),
}
WITHOUT_EPOCHS = {
    7: (
        "0000000000070000000601020102030405060708090a0b0c0d0e0f1003000000000000000200"
        "020102030405060708090a0b0c0d0e0f1002000000010100010000"
    ),
    -2: (
        "0000fffffffe0000000601020102030405060708090a0b0c0d0e0f1003000000000000000200"
        "020102030405060708090a0b0c0d0e0f1002000000010100010000"
    ),
}
"""By member epoch: assigned partitions have no assignment epochs, those of the pending ones are null."""


@pytest.mark.parametrize("number", range(len(LOG)))
def test_kafkas_records_are_written_with_the_same_bytes(number: int) -> None:
    key, value = LOG[number]
    record = decode(key, value)
    assert isinstance(record, ConsumerRecord)
    assert encode(record) == (key, value)


@pytest.mark.parametrize("record", DECODED, ids=lambda record: f"{record.key_type}-{getattr(record, 'member_id', '')}")
def test_kafkas_records_have_their_fields(record: ConsumerRecord) -> None:
    assert record in [decode(*pair) for pair in LOG]


@pytest.mark.parametrize("name", OLDER)
def test_records_of_older_versions(name: str) -> None:
    key, value, record = OLDER[name]
    pair = bytes.fromhex(key), bytes.fromhex(value)
    assert decode(*pair) == record
    assert encode(record) == pair


@pytest.mark.parametrize("member_epoch", WITHOUT_EPOCHS)
def test_partitions_without_an_epoch_have_that_of_their_member(member_epoch: int) -> None:
    record = decode(bytes.fromhex("0008" + MEMBER_KEY), bytes.fromhex(WITHOUT_EPOCHS[member_epoch]))
    epoch = max(member_epoch, 0)
    assert isinstance(record, CurrentRecord)
    assert record.value is not None
    assert record.value.assigned == {(TOPIC_ID, 0): epoch, (TOPIC_ID, 2): epoch}
    assert record.value.pending_revocation == {(TOPIC_ID, 1): epoch}


def test_a_member_state_of_a_newer_version_is_unknown() -> None:
    key, value = encode(CurrentRecord("g", "m", CurrentValue(3, 2)))
    assert value is not None
    record = decode(key, value[:10] + b"\x09" + value[11:])
    assert record == CurrentRecord("g", "m", CurrentValue(3, 2, MemberState.UNKNOWN))


def test_tags_of_newer_versions_are_ignored() -> None:
    key, value = encode(GroupEpochRecord("g", GroupEpochValue(3, 4)))
    assert value is not None
    newer = value.replace(b"\1\0\x08", b"\2\0\x08") + b"\x05\x02no"
    assert decode(key, newer) == GroupEpochRecord("g", GroupEpochValue(3, 4))


@pytest.mark.parametrize("pair", [pair for pair in LOG if pair[1]] + [encode(row[2]) for row in OLDER.values()])
def test_a_truncated_value_is_damaged(pair: tuple[bytes, bytes]) -> None:
    key, value = pair
    for size in range(len(value)):
        with pytest.raises(DamagedRecord):
            decode(key, value[:size])


@pytest.mark.parametrize("key_type", [3, 4, 5, 6, 7, 8, 16])
def test_a_newer_version_of_a_value_is_damaged(key_type: int) -> None:
    key = key_type.to_bytes(2, "big") + bytes.fromhex(MEMBER_KEY)
    with pytest.raises(DamagedRecord, match="value version 1, expected 0 to 0"):
        decode(key, b"\0\1" + bytes(100))


@pytest.mark.parametrize(
    "record",
    [
        MemberRecord("g", "m", MemberValue(client_id="x" * (MAX_STRING_BYTES + 1))),
        RegexRecord("g", "x" * (MAX_STRING_BYTES + 1), None),
        GroupEpochRecord("g", GroupEpochValue(2**31)),
        TargetRecord("g", "m", ((TOPIC_ID, 2**31),)),
        CurrentRecord("g", "m" * (MAX_STRING_BYTES + 1), None),
    ],
)
def test_fields_that_do_not_fit_are_refused(record: ConsumerRecord) -> None:
    with pytest.raises(UnwritableRecord):
        encode(record)


# Long records --------------------------------------------------------------------------------------------------------

PARTITIONS = tuple((bytes([number // 150]) * 16, number) for number in range(1000))
EPOCHS = {partition: partition[1] % 5 for partition in PARTITIONS}
NAMES = tuple(f"topic-{number:04}" for number in range(1000))
LONG: tuple[ConsumerRecord, ...] = (
    MemberRecord("g", "m", MemberValue(topics=NAMES)),
    TargetRecord("g", "m", PARTITIONS),
    CurrentRecord("g", "m", CurrentValue(assigned=EPOCHS)),
    CurrentRecord("g", "m", CurrentValue(pending_revocation=EPOCHS)),
    RegexRecord("g", ".*", RegexValue(NAMES)),
)


@pytest.mark.parametrize("record", LONG, ids=lambda record: str(record.key_type))
def test_long_records_are_encoded_in_steps(record: ConsumerRecord) -> None:
    assert item_count(record) == 1000
    steps = RecordEncoder().frame_in_steps(record, 3)
    count = 0
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as end:
            assert end.value == RecordEncoder().frame(record, 3)
            break
    assert count > 10
    assert decode(*encode(record)) == record


@pytest.mark.parametrize("record", LONG, ids=lambda record: str(record.key_type))
def test_a_round_with_a_long_record_has_the_same_bytes_in_steps(record: ConsumerRecord) -> None:
    entries = [Entry(0, (record._replace(value=None), record))]
    one, other = (RoundEncoder([0], 10_000_000, "fsync") for _ in range(2))
    assert run_steps(one.encode_in_steps(entries, 0, print)) == other.encode(entries, 0, print)


@pytest.mark.parametrize("record", [LONG[0], GroupEpochRecord("g", None), TargetEpochRecord("g", TargetEpochValue(1))])
def test_tombstones_and_epochs_are_short(record: Any) -> None:
    assert item_count(record._replace(value=None)) == 0
    assert item_count(GroupEpochRecord("g", GroupEpochValue(1))) == 0


# Replay --------------------------------------------------------------------------------------------------------------


def replayed(pairs: list[Pair]) -> GroupState:
    state = GroupState(GROUP)
    for key, value in pairs:
        record = decode(key, value)
        assert isinstance(record, ConsumerRecord)
        state.replay(record)
    return state


def newest_only(pairs: list[Pair]) -> list[Pair]:
    """As loading and compaction leave them: the newest record of each key, without tombstones."""
    positions = {key: position for position, (key, _) in enumerate(pairs)}
    return [pairs[position] for position in sorted(positions.values()) if pairs[position][1] is not None]


@pytest.mark.parametrize("count", range(len(LOG) + 1))
def test_the_newest_records_have_the_whole_state(count: int) -> None:
    newest, whole = replayed(newest_only(LOG[:count])), replayed(LOG[:count])
    assert newest == whole
    indexes = ("owners", "static_members", "regex_members", "subscriptions", "text_bytes")
    assert [getattr(newest, name) for name in indexes] == [getattr(whole, name) for name in indexes]


def test_states_with_different_records_are_different() -> None:
    states = [replayed(LOG[:count]) for count in range(len(LOG) + 1)]
    assert not any(first == second for first, second in pairwise(states))


def test_the_group_of_kafkas_log() -> None:
    """Before the first member leaves: four members have been seen by then, three of them are in the group."""
    until = next(at for at, (key, value) in enumerate(LOG) if value is None)
    state = replayed(LOG[:until])
    assert state.epoch.epoch == state.target.epoch == 4
    assert {member_id: dict.fromkeys(member.current.assigned) for member_id, member in state.members.items()} == {
        STATIC: dict.fromkeys([(ORDERS, 0), (ORDERS, 1)]),
        REGEX: dict.fromkeys([(ORDERS_EU, 0), (ORDERS_EU, 1)]),
        PLAIN: dict.fromkeys([(ORDERS, 2)]),
    }
    assert state.static_members == {"seat-1": STATIC}
    assert state.regexes["(^orders-.*)"].topics == ("orders-eu",)


# Kinds of groups that are not served ---------------------------------------------------------------------------------


def test_loading_skips_records_of_a_kind_that_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their types are known, but there is no row of their kind."""
    for key_type, row in RECORD_ROWS.items():
        monkeypatch.setitem(RECORD_TYPES, key_type, row)
    offset = encode(OffsetRecord("q", "jobs", 0, OffsetValue(7)))
    pairs = [(bytes.fromhex("03e9" + "000171"), b"\0\0\0\1"), offset]
    frames = [frame_record(0, delta, *pair) for delta, pair in enumerate(pairs)]
    (tmp_path / f"{0:020}.log").write_bytes(encode_batch(0, 5, 5, frames))
    loaded = load_partition(tmp_path)
    assert list(loaded.packed_groups) == ["q"]
    assert (loaded.unknown_keys, loaded.quarantined, loaded.problems) == (1, {}, [])
