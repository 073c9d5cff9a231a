"""Transactions in the log: Kafka's bytes, batches per transaction, and two topics in one journal."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_helpers import LazyDisk, append, entry, kafka_python_batches, offset

from callboard.actors.errors import ErrorCode
from callboard.actors.ports import Entry
from callboard.actors.records import (
    MarkerRecord,
    OffsetRecord,
    OffsetValue,
    PendingOffsetRecord,
    Record,
    TransactionRecord,
    TransactionValue,
    UnknownRecord,
)
from callboard.runtime.common.errors import StartError
from callboard.runtime.log.format.batch import Producer, encode_batch, frame_record, read_batches
from callboard.runtime.log.format.errors import DamagedRecord, UnwritableRecord
from callboard.runtime.log.format.fields import MAX_STRING_BYTES
from callboard.runtime.log.format.transaction_records import (
    decode_batch,
    decode_transaction,
    encode_marker,
    encode_transaction,
)
from callboard.runtime.log.offsets_log import OffsetsLog

T0 = 0x1A1FE236636
# Written by Kafka 4.3.1 for a transaction of librdkafka. The expected values below contain the original times.
FROM_KAFKA = {
    "empty": (
        TransactionValue(0, 0, 60000, 0, frozenset(), 0x1A1FE2365CC, -1, 0),
        "0001000000000000000000000000ea600000000001a1fe2365ccffffffffffffffff0100080000000000000000",
    ),
    "ongoing": (
        TransactionValue(0, 0, 60000, 1, frozenset({("__consumer_offsets", 3)}), T0, T0, 0),
        "0001000000000000000000000000ea600102135f5f636f6e73756d65725f6f6666736574730200000003000000"
        "01a1fe236636000001a1fe2366360100080000000000000000",
    ),
    "complete": (
        TransactionValue(0, 1, 60000, 4, frozenset(), 0x1A1FE23688C, 0x1A1FE23687D, 0),
        "0001000000000000000000010000ea600401000001a1fe23688c000001a1fe23687d0100080000000000000000",
    ),
}


@pytest.mark.parametrize("name", FROM_KAFKA)
def test_transaction_values_equal_kafkas_bytes(name: str) -> None:
    value, expected = FROM_KAFKA[name]
    record = TransactionRecord("tx", value)
    assert encode_transaction(record) == (bytes.fromhex("000000027478"), bytes.fromhex(expected))
    assert decode_transaction(bytes.fromhex("000000027478"), bytes.fromhex(expected)) == record


@pytest.mark.parametrize(
    ("committed", "key", "value"), [(True, "00000001", "000000000000"), (False, "00000000", "000000000000")]
)
def test_markers_equal_kafkas_bytes(committed: bool, key: str, value: str) -> None:
    marker = MarkerRecord(7, 3, committed)
    assert encode_marker(marker) == (bytes.fromhex(key), bytes.fromhex(value))
    data = encode_batch(9, 5, 5, [frame_record(0, 0, *encode_marker(marker))], Producer(7, 3, is_control=True))
    [batch] = read_batches(data)
    assert list(decode_batch(batch)) == [(9, 5, marker)]
    assert (batch.attributes, data[53:57]) == (0x30, b"\xff\xff\xff\xff")


int64 = st.integers(-1, 2**63 - 1)
int16 = st.integers(-1, 2**15 - 1)
partition_sets = st.frozensets(st.tuples(st.text(max_size=9), st.integers(0, 2**31 - 1)), max_size=9)


@given(
    st.text(max_size=20),
    st.builds(
        TransactionValue,
        producer_id=int64,
        producer_epoch=int16,
        timeout_ms=st.integers(0, 2**31 - 1),
        state=st.integers(1, 7),
        partitions=partition_sets,
        last_update_timestamp_ms=int64,
        start_timestamp_ms=int64,
        previous_producer_id=int64,
        next_producer_id=int64,
        client_version=st.sampled_from([0, 1, 2]),
    )
    | st.none(),
)
def test_encoded_transactions_are_decoded_unchanged(name: str, value: TransactionValue | None) -> None:
    record = TransactionRecord(name, value)
    assert decode_transaction(*encode_transaction(record)) == record


def test_transaction_value_version_0_is_decoded() -> None:
    value = "0000000000000000002a00030000ea600100000001000174000000020000000000000005"
    value += "00000000000000ff00000000000000fe"
    actual = decode_transaction(bytes.fromhex("000000027478"), bytes.fromhex(value))
    expected = TransactionValue(42, 3, 60000, 1, frozenset({("t", 0), ("t", 5)}), 255, 254)
    assert actual == TransactionRecord("tx", expected)


@pytest.mark.parametrize(("key", "value"), [("0001000178", None), ("0000000178", "0009ff")])
def test_unknown_versions_are_kept_unchanged(key: str, value: str | None) -> None:
    actual = decode_transaction(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    assert isinstance(actual, UnknownRecord)


@pytest.mark.parametrize("cut", range(2, 45))
def test_truncated_value_is_damaged(cut: int) -> None:
    with pytest.raises(DamagedRecord, match="damaged record value at byte"):
        decode_transaction(bytes.fromhex("000000027478"), bytes.fromhex(FROM_KAFKA["empty"][1])[:cut])


@pytest.mark.parametrize(
    "record",
    [
        TransactionRecord("x" * (MAX_STRING_BYTES + 1), None),
        TransactionRecord("x", TransactionValue(2**63, 0, 0, 0)),
        TransactionRecord("\ud800", None),
    ],
)
def test_values_beyond_the_schema_are_refused(record: TransactionRecord) -> None:
    with pytest.raises(UnwritableRecord):
        encode_transaction(record)


# In the log ----------------------------------------------------------------------------------------------------------


def pending(value: int, producer_id: int = 9, partition: int = 0) -> PendingOffsetRecord:
    return PendingOffsetRecord("g", "t", partition, OffsetValue(value, -1, "", 5), producer_id, 2)


def open_log(root: Path, transactions: int = 3, **options: int) -> OffsetsLog:
    log = OffsetsLog(root, 2, transactions_partitions=transactions, disk=LazyDisk(), **options)  # type: ignore[arg-type]
    log.open()
    return log


def records(log: OffsetsLog, partition: int) -> list[Record]:
    actual = list(log.read(partition))
    assert [log_offset for log_offset, _, _ in actual] == list(range(len(actual)))
    return [record for _, _, record in actual]


def test_transaction_gets_its_own_batches(tmp_path: Path) -> None:
    """One round with plain commits, two transactions of one partition and a marker keeps the order of entries."""
    log = open_log(tmp_path)
    commit, marker = offset("g", 1), MarkerRecord(9, 2, committed=True)
    first_transaction, second_transaction = (pending(2), pending(3, partition=1)), (pending(4, producer_id=8),)
    outcomes = append(
        log,
        [
            Entry(0, (commit,)),
            Entry(0, first_transaction),
            entry(1, 5),
            Entry(0, second_transaction),
            Entry(0, (marker,)),
            Entry(0, (commit,)),
        ],
    )
    assert [(outcome.error, outcome.base_offset) for outcome in outcomes] == [
        (ErrorCode.NONE, base_offset) for base_offset in (0, 1, 0, 3, 4, 5)
    ]
    assert records(log, 0) == [commit, *first_transaction, *second_transaction, marker, commit]
    log.close()
    data = (tmp_path / "__consumer_offsets-0" / "00000000000000000000.log").read_bytes()
    batches = list(read_batches(data))
    assert [
        (stored.attributes, stored.producer_id, stored.producer_epoch, stored.record_count) for stored in batches
    ] == [
        (0, -1, -1, 1),
        (0x10, 9, 2, 2),
        (0x10, 8, 2, 1),
        (0x30, 9, 2, 1),
        (0, -1, -1, 1),
    ]
    assert [batch.is_transactional for batch in kafka_python_batches(data)] == [False, True, True, True, False]


def test_transactions_partitions_share_the_journal(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    record = TransactionRecord("tx", TransactionValue(1, 0, 60000, 0))
    number = log.first_transactions_partition + 2
    append(log, [Entry(number, (record,)), entry(0, 1)])
    assert (log.offsets_partitions_with_data(), log.transactions_partitions_with_data()) == ([0], [number])
    assert records(log, number) == [record]
    log.close()
    assert (tmp_path / "__transaction_state-2" / "00000000000000000000.log").is_file()
    reopened = open_log(tmp_path)
    assert (records(reopened, number), records(reopened, 0)) == ([record], [offset("g", 1)])
    reopened.close()


def test_transactions_in_the_journal_are_replayed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    record, marker = TransactionRecord("tx", TransactionValue(1, 0, 60000, 0)), MarkerRecord(9, 2, committed=False)
    append(log, [Entry(4, (record,)), Entry(1, (pending(1),))])
    append(log, [Entry(1, (marker,))])
    copy = tmp_path / "copy"
    (copy / "journal").mkdir(parents=True)
    for path in (tmp_path / "journal").iterdir():
        (copy / "journal" / path.name).write_bytes(path.read_bytes())
    log.close()
    recovered = open_log(copy)
    assert (records(recovered, 4), records(recovered, 1)) == ([record], [pending(1), marker])
    recovered.close()


def test_too_large_transaction_entry_is_refused_alone(tmp_path: Path) -> None:
    log = open_log(tmp_path, max_message_bytes=200)
    large_transaction = tuple(pending(1, partition=number) for number in range(9))
    outcomes = append(log, [Entry(0, large_transaction), Entry(0, (pending(1),))])
    assert [outcome.error for outcome in outcomes] == [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE]
    assert records(log, 0) == [pending(1)]
    log.close()


def test_unwritable_transaction_record_is_refused_alone(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    invalid_record = pending(1)._replace(topic="t" * (MAX_STRING_BYTES + 1))
    outcomes = append(log, [Entry(0, (invalid_record,)), Entry(2, (TransactionRecord("\ud800", None),)), entry(0, 7)])
    no_error, server_error = ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR
    assert [outcome.error for outcome in outcomes] == [server_error, server_error, no_error]
    assert records(log, 0) == [OffsetRecord("g", "t", 0, OffsetValue(7, -1, "", 5))]
    log.close()


def test_surplus_transactions_partition_folder_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, [Entry(4, (TransactionRecord("tx", None),))])
    log.close()
    with pytest.raises(StartError, match=r"clean_shutdown: found 2 and 3 partitions, expected 2 and 2"):
        open_log(tmp_path, transactions=2)
    (tmp_path / ".clean_shutdown").unlink()
    with pytest.raises(StartError, match=r"found __transaction_state-2, expected partitions 0 to 1 only.*log repair"):
        open_log(tmp_path, transactions=2)
