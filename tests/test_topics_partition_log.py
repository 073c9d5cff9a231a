"""One partition in memory: offsets, whole batches, search by time, and producers that send again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from topics_helpers import MESSAGE_MAX_BYTES, sent

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.runtime.log.format.batch import read_batches
from callboard.runtime.topics.partition_log import PartitionLog
from callboard.runtime.topics.producers import PRODUCERS_MAX

ALL = 2**31
GZIP = 1


def log_of(*batches: bytes, end_offset: int = 0) -> PartitionLog:
    log = PartitionLog(MESSAGE_MAX_BYTES, end_offset)
    for batch in batches:
        log.append(batch)
    return log


def offsets(records: bytes) -> list[int]:
    return [offset for batch in read_batches(records) for offset, *_ in batch.records()]


def code_of(log: PartitionLog, records: bytes) -> ErrorCode:
    with pytest.raises(CoordinatorError) as caught:
        log.append(records)
    return caught.value.code


# Offsets -------------------------------------------------------------------------------------------------------------


def test_records_get_consecutive_offsets_across_batches() -> None:
    log = PartitionLog(MESSAGE_MAX_BYTES)
    assert [log.append(sent(count)) for count in (3, 1, 4)] == [0, 3, 4]
    assert (log.start_offset, log.end_offset) == (0, 8)
    assert offsets(log.read(0, ALL)) == list(range(8))


def test_a_read_begins_with_the_batch_that_contains_the_offset() -> None:
    """Consumers skip what comes before the offset that they asked for; a batch is never cut."""
    log = log_of(sent(3), sent(3), sent(3))
    assert offsets(log.read(4, ALL)) == [3, 4, 5, 6, 7, 8]


def test_a_read_stops_before_the_limit_but_gives_one_batch_at_least() -> None:
    log = log_of(sent(), sent(), sent())
    size = len(sent())
    assert offsets(log.read(0, 2 * size)) == [0, 1]
    assert offsets(log.read(0, 2 * size - 1)) == [0]
    assert offsets(log.read(0, 0)) == [0]
    assert log.read(0, size - 1, allow_oversized=False) == b""


def test_the_end_has_nothing_to_read_and_beyond_it_is_out_of_range() -> None:
    log = log_of(sent(2), end_offset=10)
    assert log.read(12, ALL) == b""
    for offset in (13, 9, -1):
        with pytest.raises(CoordinatorError) as caught:
            log.read(offset, ALL)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_log_without_records_begins_where_it_ends_and_can_be_raised() -> None:
    log = PartitionLog(MESSAGE_MAX_BYTES, 7)
    assert (log.start_offset, log.end_offset) == (7, 7)
    log.raise_end(20)
    log.raise_end(5)
    assert (log.start_offset, log.end_offset) == (20, 20)
    assert log.append(sent()) == 20
    with pytest.raises(ValueError, match="holds records"):
        log.raise_end(30)


def test_dropped_batches_leave_no_places_behind() -> None:
    """A log that is full for days takes as much memory as one that is full for a minute."""
    log = log_of(sent(), sent())
    for _ in range(1000):
        log.append(sent())
        log.drop_oldest()
    assert len(log._batches) <= 6
    assert log.read(log.start_offset, ALL)


class Partition(RuleBasedStateMachine):
    """Appends, drops and reads in any order, against a plain list of offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.log = PartitionLog(MESSAGE_MAX_BYTES, 5)
        self.model: list[range] = []
        self.end = 5

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        assert self.log.append(sent(count)) == self.end
        self.model.append(range(self.end, self.end + count))
        self.end += count

    @precondition(lambda self: self.model)
    @rule()
    def drop(self) -> None:
        count = len(self.model.pop(0))
        assert self.log.drop_oldest() == len(sent(count))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.model[0].start, self.end - 1))
        wanted = [number for batch in self.model if batch.stop > offset for number in batch]
        assert offsets(self.log.read(offset, ALL)) == wanted

    @invariant()
    def bounds(self) -> None:
        assert self.log.end_offset == self.end
        assert self.log.start_offset == (self.model[0].start if self.model else self.end)
        assert self.log.size_bytes == sum(len(sent(len(batch))) for batch in self.model)


TestPartition = Partition.TestCase


# Time ----------------------------------------------------------------------------------------------------------------


def test_a_search_by_time_finds_the_first_record_since() -> None:
    log = log_of(sent(3, timestamps=[1000, 1001, 1002]), sent(2, timestamps=[3000, 2500]), sent(timestamps=[2000]))
    assert log.find_first_since(0) == (1000, 0)
    assert log.find_first_since(1001) == (1001, 1)
    assert log.find_first_since(1500) == (3000, 3)
    assert log.find_first_since(3000) == (3000, 3)
    assert log.find_first_since(3001) is None


def test_the_newest_record_is_the_first_with_the_highest_time() -> None:
    log = log_of(sent(2, timestamps=[5, 9]), sent(2, timestamps=[9, 3]))
    assert log.find_newest() == (9, 1)
    assert PartitionLog(MESSAGE_MAX_BYTES).find_newest() is None


def test_of_a_compressed_batch_the_edges_are_known() -> None:
    """Too early rather than too late: a consumer that seeks there misses nothing."""
    log = log_of(sent(2), sent(9, attributes=GZIP, timestamps=list(range(5000, 5009)), records=b"squeezed"))
    assert log.find_first_since(5004) == (5008, 2)
    assert log.find_newest() == (5008, 10)


def test_records_that_cannot_be_read_are_searched_by_their_header() -> None:
    log = log_of(sent(timestamps=[40], records=b"\xff" * 20))
    assert log.find_first_since(7) == (40, 0)
    assert log.find_newest() == (40, 0)


# Producers that send again -------------------------------------------------------------------------------------------


def from_producer(sequence: int, count: int = 1, producer_id: int = 4, epoch: int = 0) -> bytes:
    return sent(count, producer=(producer_id, epoch, sequence))


def test_a_batch_that_is_sent_again_is_stored_once() -> None:
    log = log_of(from_producer(0, 2), from_producer(2))
    assert log.append(from_producer(0, 2)) == 0
    assert log.append(from_producer(2)) == 2
    assert log.end_offset == 3


def test_the_last_five_batches_of_a_producer_are_remembered() -> None:
    log = log_of(*map(from_producer, range(6)))
    assert [log.append(from_producer(sequence)) for sequence in range(1, 6)] == [1, 2, 3, 4, 5]
    assert code_of(log, from_producer(0)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 6


@pytest.mark.parametrize(
    "wrong", [from_producer(3), from_producer(1, 5), from_producer(0)], ids=["gap", "overlap", "old"]
)
def test_sequences_without_a_gap_or_overlap(wrong: bytes) -> None:
    log = log_of(from_producer(0, 2))
    assert code_of(log, wrong) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(from_producer(2)) == 2


def test_a_producer_that_nobody_knows_begins_anywhere() -> None:
    """After a restart nobody is known, and producers go on with the numbers they were at."""
    log = log_of(from_producer(700))
    assert code_of(log, from_producer(702)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(from_producer(701)) == 1


def test_a_new_epoch_begins_at_zero_and_ends_the_old() -> None:
    log = log_of(from_producer(0))
    assert code_of(log, from_producer(1, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(from_producer(0, epoch=1)) == 1
    assert code_of(log, from_producer(1, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_wrap_behind_the_largest() -> None:
    across = log_of(from_producer(2**31 - 2, 3))
    assert across.append(from_producer(1)) == 3
    assert across.append(from_producer(2**31 - 2, 3)) == 0
    up_to = log_of(from_producer(2**31 - 1))
    assert up_to.append(from_producer(0)) == 1


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=30))
def test_many_producers_do_not_disturb_each_other(batches: list[tuple[int, int]]) -> None:
    log = PartitionLog(MESSAGE_MAX_BYTES)
    following = dict.fromkeys(range(1, 4), 0)
    for producer_id, count in batches:
        end = log.end_offset
        batch = from_producer(following[producer_id], count, producer_id)
        assert log.append(batch) == log.append(batch) == end
        assert log.end_offset == end + count
        following[producer_id] += count


def test_the_quietest_producer_is_forgotten_first() -> None:
    log = PartitionLog(MESSAGE_MAX_BYTES)
    for producer_id in range(PRODUCERS_MAX):
        log.append(from_producer(0, producer_id=producer_id))
    log.append(from_producer(1, producer_id=0))
    log.append(from_producer(0, producer_id=PRODUCERS_MAX))
    assert log.append(from_producer(0, producer_id=0)) == 0
    assert log.append(from_producer(0, producer_id=1)) == log.end_offset - 1
