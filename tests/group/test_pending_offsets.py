"""Offsets of open transactions, compared with a model that uses only the order of the log."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from callboard.actors.errors import ErrorCode
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import OffsetFetch
from callboard.actors.records import GroupRecord, MarkerRecord, OffsetRecord, OffsetValue, PendingOffsetRecord, Record

PRODUCERS = (7, 8, 9)
PARTITIONS = (0, 1)


def committed(partition: int, offset: int | None) -> OffsetRecord:
    return OffsetRecord("g", "t", partition, None if offset is None else OffsetValue(offset))


def in_transaction(producer_id: int, partition: int, offset: int) -> PendingOffsetRecord:
    return PendingOffsetRecord("g", "t", partition, OffsetValue(offset), producer_id, 0)


class Model:
    """Each value with its log offset; the highest offset wins, as in Kafka."""

    def __init__(self) -> None:
        self.main: dict[int, tuple[int, int]] = {}
        self.open: dict[int, dict[int, tuple[int, int]]] = {}

    def replay(self, log_offset: int, record: Record) -> None:
        if isinstance(record, OffsetRecord):
            if record.value is None:
                self.main.pop(record.partition, None)
                for offsets in self.open.values():
                    offsets.pop(record.partition, None)
            else:
                self.main[record.partition] = log_offset, record.value.offset
        elif isinstance(record, PendingOffsetRecord):
            assert record.value is not None
            self.open.setdefault(record.producer_id, {})[record.partition] = log_offset, record.value.offset
        elif isinstance(record, MarkerRecord):
            for partition, value in self.open.pop(record.producer_id, {}).items():
                if record.committed and value > self.main.get(partition, (-1, -1)):
                    self.main[partition] = value


records = st.one_of(
    st.builds(committed, st.sampled_from(PARTITIONS), st.integers(0, 99) | st.none()),
    st.builds(in_transaction, st.sampled_from(PRODUCERS), st.sampled_from(PARTITIONS), st.integers(100, 199)),
    st.builds(MarkerRecord, st.sampled_from(PRODUCERS), st.just(0), st.booleans()),
)


THE_LATER_COMMITS_FIRST: list[Record] = [
    in_transaction(7, 0, 100),
    in_transaction(8, 0, 101),
    MarkerRecord(8, 0, True),
    MarkerRecord(7, 0, True),
]


@settings(max_examples=500)
@given(st.lists(records, max_size=30))
@example(THE_LATER_COMMITS_FIRST)
@example([*THE_LATER_COMMITS_FIRST[:3], MarkerRecord(7, 0, False)])
def test_latest_record_in_log_wins(log: list[Record]) -> None:
    data, model = GroupData(), Model()
    for log_offset, record in enumerate(log):
        data.replay(record)
        model.replay(log_offset, record)
    assert {partition: value.offset for _, partition, value in data.offsets} == {
        partition: offset for partition, (_, offset) in model.main.items()
    }
    open_partitions = {partition for pending_offsets in model.open.values() for partition in pending_offsets}
    assert {partition for _, partition in data.pending.by_partition} == open_partitions
    request = OffsetFetch("g", (("t", PARTITIONS),), require_stable=True)
    [(_, fetched_partitions)] = data.fetch(request).topics
    unstable = {
        fetched.partition for fetched in fetched_partitions if fetched.error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    }
    assert unstable == open_partitions
    assert data.pending.producers() == {
        producer_id for producer_id, pending_offsets in model.open.items() if pending_offsets
    }
    assert data.is_packable() is not bool(open_partitions)
    assert data.is_empty() is not bool(open_partitions or model.main)


def test_fetch_of_all_offsets_excludes_pending_ones() -> None:
    """Kafka's fetchAllOffsets: partitions without a committed offset are not listed, pending or not."""
    data = GroupData()
    for record in (committed(0, 5), in_transaction(7, 0, 6), in_transaction(7, 1, 6)):
        data.replay(record)
    [(_, [fetched])] = data.fetch(OffsetFetch("g", None, require_stable=True)).topics
    assert (fetched.partition, fetched.offset, fetched.error) == (0, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    [(_, [fetched])] = data.fetch(OffsetFetch("g", None)).topics
    assert (fetched.partition, fetched.offset, fetched.error) == (0, 5, ErrorCode.NONE)


def test_tombstones_contain_each_partition_once() -> None:
    data = GroupData()
    for record in (committed(0, 5), in_transaction(7, 0, 6), in_transaction(7, 1, 6), in_transaction(8, 1, 7)):
        data.replay(record)
    tombstones = tuple(data.tombstones("g"))
    assert tombstones == (committed(0, None), committed(1, None), GroupRecord("g", None))
    for tombstone in tombstones:
        data.replay(tombstone)
    data.replay(MarkerRecord(7, 0, committed=True))
    assert data.is_empty()


def test_tombstone_in_transaction_takes_effect_at_once() -> None:
    data = GroupData()
    data.replay(committed(0, 5))
    data.replay(PendingOffsetRecord("g", "t", 0, None, 7, 0))
    assert data.is_empty()
