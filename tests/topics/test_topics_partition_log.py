"""The log of one partition in memory: offsets, whole batches, search by timestamp, and duplicate batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from topics_helpers import MESSAGE_MAX_BYTES, producer_batch

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.actors.records import MarkerRecord
from callboard.actors.steps import run_steps
from callboard.runtime.common.shared_bytes import SharedBytes
from callboard.runtime.log.format.batch import frame_record, read_batches
from callboard.runtime.topics.partition_log import HIGHEST_MS, LOWEST_MS, PartitionLog
from callboard.runtime.topics.producers import PRODUCERS_MAX

ALL = 2**31
GZIP = 1
TRANSACTIONAL = 0x10


def log_of(*batches: bytes, end_offset: int = 0) -> PartitionLog:
    log = PartitionLog(MESSAGE_MAX_BYTES, end_offset)
    for batch in batches:
        log.append(batch)
    return log


def offsets(records: SharedBytes) -> list[int]:
    return [offset for batch in read_batches(bytes(records)) for offset, *_ in batch.records()]


def error_code_of(log: PartitionLog, records: bytes) -> ErrorCode:
    with pytest.raises(CoordinatorError) as caught:
        log.append(records)
    return caught.value.code


# Offsets -------------------------------------------------------------------------------------------------------------


def test_append_assigns_consecutive_offsets() -> None:
    log = PartitionLog(MESSAGE_MAX_BYTES)
    assert [log.append(producer_batch(count)) for count in (3, 1, 4)] == [0, 3, 4]
    assert (log.start_offset, log.end_offset) == (0, 8)
    assert offsets(log.read(0, ALL)) == list(range(8))


def test_read_begins_with_batch_that_contains_offset() -> None:
    """Batches are never split; consumers skip the records before the requested offset."""
    log = log_of(producer_batch(3), producer_batch(3), producer_batch(3))
    assert offsets(log.read(4, ALL)) == [3, 4, 5, 6, 7, 8]


def test_read_stops_at_max_bytes_but_returns_one_batch() -> None:
    log = log_of(producer_batch(), producer_batch(), producer_batch())
    size = len(producer_batch())
    assert offsets(log.read(0, 2 * size)) == [0, 1]
    assert offsets(log.read(0, 2 * size - 1)) == [0]
    assert offsets(log.read(0, 0)) == [0]
    assert log.read(0, size - 1, allow_oversized=False) == b""


def test_read_at_end_is_empty_and_beyond_end_is_out_of_range() -> None:
    log = log_of(producer_batch(2), end_offset=10)
    assert log.read(12, ALL) == b""
    for offset in (13, 9, -1):
        with pytest.raises(CoordinatorError) as caught:
            log.read(offset, ALL)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_raise_end_of_log_without_records() -> None:
    log = PartitionLog(MESSAGE_MAX_BYTES, 7)
    assert (log.start_offset, log.end_offset) == (7, 7)
    log.raise_end(20)
    log.raise_end(5)
    assert (log.start_offset, log.end_offset) == (20, 20)
    assert log.append(producer_batch()) == 20
    with pytest.raises(ValueError, match="holds records"):
        log.raise_end(30)


def test_drop_oldest_frees_list_entries() -> None:
    """Memory does not grow with the number of dropped batches."""
    log = log_of(producer_batch(), producer_batch())
    for _ in range(1000):
        log.append(producer_batch())
        log.drop_oldest()
    assert len(log.batches._batches) <= 6
    assert log.read(log.start_offset, ALL)


class Partition(RuleBasedStateMachine):
    """Appends, drops and reads in random order, checked against a list of offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.log = PartitionLog(MESSAGE_MAX_BYTES, 5)
        self.model: list[range] = []
        self.end = 5

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        assert self.log.append(producer_batch(count)) == self.end
        self.model.append(range(self.end, self.end + count))
        self.end += count

    @precondition(lambda self: self.model)
    @rule()
    def drop(self) -> None:
        count = len(self.model.pop(0))
        assert self.log.drop_oldest() == len(producer_batch(count))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.model[0].start, self.end - 1))
        expected = [number for batch in self.model if batch.stop > offset for number in batch]
        assert offsets(self.log.read(offset, ALL)) == expected

    @invariant()
    def bounds(self) -> None:
        assert self.log.end_offset == self.end
        assert self.log.start_offset == (self.model[0].start if self.model else self.end)
        assert self.log.size_bytes == sum(len(producer_batch(len(batch))) for batch in self.model)


TestPartition = Partition.TestCase


# Time ----------------------------------------------------------------------------------------------------------------


def test_find_first_since_returns_first_record_at_or_after_timestamp() -> None:
    log = log_of(
        producer_batch(3, timestamps=[1000, 1001, 1002]),
        producer_batch(2, timestamps=[3000, 2500]),
        producer_batch(timestamps=[2000]),
    )
    assert run_steps(log.find_first_since(0)) == (1000, 0)
    assert run_steps(log.find_first_since(1001)) == (1001, 1)
    assert run_steps(log.find_first_since(1500)) == (3000, 3)
    assert run_steps(log.find_first_since(3000)) == (3000, 3)
    assert run_steps(log.find_first_since(3001)) is None


def test_find_newest_returns_first_record_with_highest_timestamp() -> None:
    log = log_of(producer_batch(2, timestamps=[5, 9]), producer_batch(2, timestamps=[9, 3]))
    assert run_steps(log.find_newest()) == (9, 1)
    assert run_steps(PartitionLog(MESSAGE_MAX_BYTES).find_newest()) is None


def test_timestamp_search_in_compressed_batch_returns_first_or_last_offset() -> None:
    """The result is too early rather than too late, so a consumer that seeks there misses no record."""
    log = log_of(
        producer_batch(2), producer_batch(9, attributes=GZIP, timestamps=list(range(5000, 5009)), records=b"squeezed")
    )
    assert run_steps(log.find_first_since(5004)) == (5008, 2)
    assert run_steps(log.find_newest()) == (5008, 10)


def test_timestamp_search_in_unreadable_batch_uses_header() -> None:
    log = log_of(producer_batch(timestamps=[40], records=b"\xff" * 20))
    assert run_steps(log.find_first_since(7)) == (40, 0)
    assert run_steps(log.find_newest()) == (40, 0)


@pytest.mark.parametrize(
    ("base_ms", "delta_ms", "offset_delta"),
    [(HIGHEST_MS, 1, 0), (LOWEST_MS, -1, 0), (40, 0, 1), (40, 0, 2**62)],
    ids=["a timestamp above int64", "a timestamp below int64", "an offset after the batch", "an offset above int64"],
)
def test_timestamp_search_among_impossible_records_uses_header(base_ms: int, delta_ms: int, offset_delta: int) -> None:
    """A client has made the deltas. The result has to fit the response, and may not name an offset of another batch."""
    records = frame_record(delta_ms, offset_delta, b"k", b"v")
    log = log_of(producer_batch(timestamps=[base_ms], records=records), producer_batch(timestamps=[0]))
    assert run_steps(log.find_first_since(LOWEST_MS)) == (base_ms, 0)
    assert run_steps(log.find_newest()) == ((base_ms, 0) if base_ms > 0 else (0, 1))


# Idempotent producers ------------------------------------------------------------------------------------------------


def from_producer(sequence: int, count: int = 1, producer_id: int = 4, epoch: int = 0) -> bytes:
    return producer_batch(count, producer=(producer_id, epoch, sequence))


def test_append_of_duplicate_batch_returns_first_offset() -> None:
    log = log_of(from_producer(0, 2), from_producer(2))
    assert log.append(from_producer(0, 2)) == 0
    assert log.append(from_producer(2)) == 2
    assert log.end_offset == 3


def test_append_detects_duplicates_of_last_five_batches() -> None:
    log = log_of(*map(from_producer, range(6)))
    assert [log.append(from_producer(sequence)) for sequence in range(1, 6)] == [1, 2, 3, 4, 5]
    assert error_code_of(log, from_producer(0)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 6


@pytest.mark.parametrize(
    "wrong", [from_producer(3), from_producer(1, 5), from_producer(0)], ids=["gap", "overlap", "old"]
)
def test_append_with_wrong_sequence_is_out_of_order(wrong: bytes) -> None:
    log = log_of(from_producer(0, 2))
    assert error_code_of(log, wrong) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(from_producer(2)) == 2


def test_append_of_unknown_producer_accepts_any_sequence() -> None:
    """After a restart no producer is known, and producers continue with their next sequence numbers."""
    log = log_of(from_producer(700))
    assert error_code_of(log, from_producer(702)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(from_producer(701)) == 1


def test_append_in_new_epoch_starts_at_sequence_zero_and_fences_old_epoch() -> None:
    log = log_of(from_producer(0))
    assert error_code_of(log, from_producer(1, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(from_producer(0, epoch=1)) == 1
    assert error_code_of(log, from_producer(1, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_batch_without_transaction_of_producer_in_transaction_is_refused() -> None:
    """As in Kafka. Consumers of committed records would leave it out if the transaction is aborted."""
    log = log_of(producer_batch(producer=(4, 0, 0), attributes=TRANSACTIONAL))
    assert error_code_of(log, from_producer(1)) == ErrorCode.INVALID_TXN_STATE
    assert log.append(from_producer(0)) == 0, "a duplicate is found first"
    assert log.append(from_producer(0, producer_id=5)) == 1
    log.end_transaction(MarkerRecord(4, 0, committed=True), 1)
    assert log.append(from_producer(1)) == 3


def test_marker_with_later_epoch_fences_earlier_one() -> None:
    """As in Kafka (KIP-890): no late batch gets into the partition when its transaction has ended."""
    log = log_of(producer_batch(producer=(4, 0, 0), attributes=TRANSACTIONAL))
    log.end_transaction(MarkerRecord(4, 1, committed=True), 1)
    assert error_code_of(log, from_producer(1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert error_code_of(log, from_producer(1, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(from_producer(0, epoch=1)) == 2


def test_marker_of_unknown_producer_does_not_prescribe_its_sequence() -> None:
    """After a restart the producers are unknown, and go on in their epochs."""
    log = PartitionLog(MESSAGE_MAX_BYTES)
    log.end_transaction(MarkerRecord(4, 1, committed=False), 1)
    assert log.append(from_producer(7, epoch=1)) == 1


def test_sequence_wraps_to_zero_after_int32_max() -> None:
    across = log_of(from_producer(2**31 - 2, 3))
    assert across.append(from_producer(1)) == 3
    assert across.append(from_producer(2**31 - 2, 3)) == 0
    up_to = log_of(from_producer(2**31 - 1))
    assert up_to.append(from_producer(0)) == 1


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=30))
def test_append_of_many_producers_keeps_their_sequences_apart(batches: list[tuple[int, int]]) -> None:
    log = PartitionLog(MESSAGE_MAX_BYTES)
    following = dict.fromkeys(range(1, 4), 0)
    for producer_id, count in batches:
        end = log.end_offset
        batch = from_producer(following[producer_id], count, producer_id)
        assert log.append(batch) == log.append(batch) == end
        assert log.end_offset == end + count
        following[producer_id] += count


def test_least_recently_active_producer_is_dropped_first() -> None:
    log = PartitionLog(MESSAGE_MAX_BYTES)
    for producer_id in range(PRODUCERS_MAX):
        log.append(from_producer(0, producer_id=producer_id))
    log.append(from_producer(1, producer_id=0))
    log.append(from_producer(0, producer_id=PRODUCERS_MAX))
    assert log.append(from_producer(0, producer_id=0)) == 0
    assert log.append(from_producer(0, producer_id=1)) == log.end_offset - 1
