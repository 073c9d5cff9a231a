"""Transactions with groups, writer and timer in a simulation: replies, their order, and durable results."""

from __future__ import annotations

import pytest
from actor_system.requests import GROUP, commit, fetch
from actor_system.transactions import (
    TIMEOUT_MS,
    TX,
    TransactionSimulation,
    fetched,
    offset,
    open_transaction,
    transactions_in,
)

from callboard.actors.errors import ErrorCode
from callboard.actors.javahash import offsets_partition
from callboard.actors.memory import TRANSACTION_PARTITION_BYTES, TRANSACTIONAL_ID_BYTES
from callboard.actors.messages import FetchedOffset
from callboard.actors.records import MarkerRecord, PendingOffsetRecord, TransactionRecord
from callboard.actors.steps import run_steps
from callboard.actors.transactions import expiration
from callboard.actors.transactions.messages import InitProducerId, ProducerIdAssigned, VerifyPartitions
from callboard.actors.transactions.rules import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    EPOCH_MAX,
    ONGOING,
    PREPARE_COMMIT,
)

NONE = ErrorCode.NONE
UNSTABLE = FetchedOffset(0, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)


# Commit and abort ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("committed", "expected"), [(True, 5), (False, -1)])
def test_offsets_are_visible_after_commit_and_dropped_after_abort(committed: bool, expected: int) -> None:
    simulation = TransactionSimulation()
    producer = open_transaction(simulation)
    assert fetched(simulation) == UNSTABLE
    assert fetched(simulation, stable=False).offset == -1
    assert simulation.end(producer, committed).error is NONE
    assert offset(simulation) == expected
    assert simulation.table[TX].state is (COMPLETE_COMMIT if committed else COMPLETE_ABORT)


def test_records_of_a_transaction_in_log() -> None:
    simulation = TransactionSimulation()
    producer = open_transaction(simulation)
    simulation.end(producer)
    kinds = [type(record) for _, record in simulation.log.durable]
    a_step = TransactionRecord
    assert kinds == [a_step, a_step, PendingOffsetRecord, a_step, MarkerRecord, a_step]
    transaction_records = [record for _, record in simulation.log.durable if isinstance(record, TransactionRecord)]
    states = [record.value.state for record in transaction_records if record.value is not None]
    assert states == [EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT]
    replies = {partition for partition, record in simulation.log.durable if isinstance(record, TransactionRecord)}
    assert all(reply >= simulation.settings.offsets_topic_num_partitions for reply in replies) and len(replies) == 1


def test_transactions_in_sequence() -> None:
    simulation = TransactionSimulation()
    producer = simulation.init()
    for value, committed in ((1, True), (2, False), (3, True)):
        simulation.add_offsets(producer)
        simulation.commit(producer, value)
        simulation.end(producer, committed)
    assert offset(simulation) == 3


def test_transaction_with_several_groups_and_topics() -> None:
    simulation = TransactionSimulation()
    producer = simulation.init()
    for group_id in ("a", "b"):
        simulation.add_offsets(producer, group_id)
        simulation.commit(producer, 7, group_id=group_id)
    simulation.add_partitions(producer, ("plays", 0), ("plays", 1))
    simulation.end(producer)
    assert [offset(simulation, group_id) for group_id in ("a", "b")] == [7, 7]
    assert sorted(reply[:2] for reply in simulation.topics.ended) == [("plays", 0), ("plays", 1)]
    assert {marker for _, _, marker in simulation.topics.ended} == {MarkerRecord(*producer, committed=True)}


def test_groups_in_one_log_partition_share_a_marker() -> None:
    simulation = TransactionSimulation()
    first_group, second_group = groups_in_one_partition(simulation.settings.offsets_topic_num_partitions)
    producer = simulation.init()
    for group_id in (first_group, second_group):
        simulation.add_offsets(producer, group_id)
        simulation.commit(producer, 7, group_id=group_id)
    simulation.end(producer)
    assert len(simulation.markers()) == 1
    assert [offset(simulation, group_id) for group_id in (first_group, second_group)] == [7, 7]


def groups_in_one_partition(count: int) -> tuple[str, str]:
    """Two groups in the same log partition."""
    names = [f"g{number}" for number in range(count + 1)]
    by_partition: dict[int, list[str]] = {}
    for name in names:
        by_partition.setdefault(offsets_partition(name, count), []).append(name)
    first_group, second_group, *_ = next(group_ids for group_ids in by_partition.values() if len(group_ids) > 1)
    return first_group, second_group


def test_end_is_answered_when_decision_is_durable() -> None:
    simulation = TransactionSimulation()
    producer = open_transaction(simulation)
    simulation.holds_appends = True
    ending = simulation.end(producer)
    assert ending.is_waiting
    simulation.complete_append()  # the prepared state
    assert ending.error is NONE
    assert durable_offset(simulation) == UNSTABLE
    assert simulation.add_offsets(producer).error is ErrorCode.CONCURRENT_TRANSACTIONS
    simulation.complete_append()  # the marker
    assert durable_offset(simulation).offset == 5
    assert simulation.add_offsets(producer).error is ErrorCode.CONCURRENT_TRANSACTIONS
    simulation.complete_append()  # the completed state
    next_reply = simulation.add_offsets(producer)
    simulation.complete_append()
    assert next_reply.error is NONE


def durable_offset(simulation: TransactionSimulation) -> FetchedOffset:
    """The durable offset, without waiting for appends in flight."""
    data = simulation.group().data
    [(_topic, [fetched_offset])] = data.fetch(fetch(require_stable=True)).topics
    return fetched_offset


def test_marker_waits_for_commits_in_flight() -> None:
    """The client did not wait for its response; the marker must not precede the offsets."""
    simulation = TransactionSimulation()
    producer = simulation.init()
    simulation.add_offsets(producer)
    simulation.holds_appends = True
    commit_reply, end_reply = simulation.commit(producer, 9), simulation.end(producer)
    simulation.complete_all_appends()
    assert (commit_reply.value.errors, end_reply.error) == ((NONE,), NONE)
    simulation.holds_appends = False
    simulation.run()
    kinds = [type(record) for _, record in simulation.log.durable]
    assert kinds.index(PendingOffsetRecord) < kinds.index(MarkerRecord)
    assert offset(simulation) == 9


def test_commit_after_decision_is_refused() -> None:
    simulation = TransactionSimulation()
    producer = open_transaction(simulation)
    simulation.holds_appends = True
    simulation.end(producer)
    simulation.complete_append()
    assert simulation.commit(producer, 6).value.errors == (ErrorCode.CONCURRENT_TRANSACTIONS,)
    simulation.complete_all_appends()
    assert offset(simulation) == 5


# Fencing and validation ----------------------------------------------------------------------------------------------


def test_init_fences_old_producer() -> None:
    simulation = TransactionSimulation()
    old_producer = simulation.init()
    new_producer = simulation.init()
    assert new_producer == (old_producer[0], old_producer[1] + 1)
    assert simulation.add_offsets(old_producer).error is ErrorCode.PRODUCER_FENCED
    assert simulation.commit(old_producer, 1).value.errors == (ErrorCode.INVALID_PRODUCER_EPOCH,)
    assert simulation.end(old_producer).error is ErrorCode.PRODUCER_FENCED
    assert simulation.add_offsets(new_producer).error is NONE


def test_init_aborts_transaction_of_old_producer() -> None:
    simulation = TransactionSimulation()
    old_producer = open_transaction(simulation)
    assert simulation.ask_transactions(InitProducerId(TX, TIMEOUT_MS)).error is ErrorCode.CONCURRENT_TRANSACTIONS
    new_producer = simulation.init()
    assert new_producer == (old_producer[0], old_producer[1] + 2)
    assert offset(simulation) == -1
    assert simulation.end(old_producer).error is ErrorCode.PRODUCER_FENCED
    assert simulation.markers() == [MarkerRecord(old_producer[0], old_producer[1] + 1, committed=False)]


@pytest.mark.parametrize(
    ("version", "expected"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_commit_without_open_transaction_is_refused(version: int, expected: ErrorCode) -> None:
    simulation = TransactionSimulation()
    producer = simulation.init()
    assert simulation.commit(producer, 1, version=version).value.errors == (expected,)
    simulation.add_offsets(producer, "other")
    assert simulation.commit(producer, 1, version=version, partitions=(0, 1)).value.errors == (expected, expected)


def test_txn_offset_commit_v5_begins_transaction() -> None:
    simulation = TransactionSimulation()
    producer = simulation.init()
    assert simulation.commit(producer, 4, version=5).value.errors == (NONE,)
    response = simulation.end(producer, raises_epoch=True).value
    assert response == ProducerIdAssigned(NONE, producer[0], producer[1] + 1)
    assert offset(simulation) == 4
    assert simulation.add_offsets(producer).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("name", "producer", "group_id", "expected"),
    [
        ("", (1000, 0), GROUP, ErrorCode.INVALID_REQUEST),
        ("nobody", (1000, 0), GROUP, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (TX, (77, 0), GROUP, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (TX, (1000, 9), GROUP, ErrorCode.INVALID_PRODUCER_EPOCH),
        (TX, (1000, 0), "", ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_requests_with_other_producer_id_or_epoch_are_refused(
    name: str, producer: tuple[int, int], group_id: str, expected: ErrorCode
) -> None:
    simulation = TransactionSimulation()
    assert simulation.init() == (1000, 0)
    simulation.add_offsets((1000, 0))
    assert simulation.commit(producer, 1, name=name, group_id=group_id).value.errors == (expected,)


def test_txn_offset_commit_checks_member_id_if_given() -> None:
    simulation = TransactionSimulation()
    [member] = simulation.form_group({})
    producer = simulation.init()
    simulation.add_offsets(producer)

    def error(**options: object) -> ErrorCode:
        [error_code] = simulation.commit(producer, 3, **options).value.errors
        return ErrorCode(error_code)

    member_fields = {"member_id": member.member_id, "generation_id": member.generation_id}
    assert error() is NONE
    assert error(**member_fields) is NONE
    assert error(**{**member_fields, "generation_id": 99}) is ErrorCode.ILLEGAL_GENERATION
    assert error(**{**member_fields, "member_id": "stranger"}) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(**member_fields, instance="i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(metadata="x" * 4097) is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_txn_offset_commit_without_generation_creates_group() -> None:
    simulation = TransactionSimulation()
    producer = simulation.init()
    simulation.add_offsets(producer)
    assert simulation.commit(producer, 1, generation_id=3).value.errors == (ErrorCode.ILLEGAL_GENERATION,)
    assert GROUP not in simulation.directory.groups
    assert simulation.commit(producer, 1).value.errors == (NONE,)
    assert [group.group_id for group in simulation.listed()] == [GROUP]


def test_verify_partitions_returns_error_per_partition() -> None:
    simulation = TransactionSimulation()
    producer = simulation.init()
    simulation.add_partitions(producer, ("plays", 0))
    partitions = (("plays", 0), ("plays", 1))
    assert simulation.ask_transactions(VerifyPartitions(TX, *producer, partitions)).value == (
        NONE,
        ErrorCode.TRANSACTION_ABORTABLE,
    )
    assert (
        simulation.ask_transactions(VerifyPartitions("x", *producer, partitions)).value
        == (ErrorCode.INVALID_PRODUCER_ID_MAPPING,) * 2
    )


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_init_with_invalid_timeout_returns_50(timeout_ms: int) -> None:
    simulation = TransactionSimulation()
    response = simulation.ask_transactions(InitProducerId(TX, timeout_ms)).value
    assert response == ProducerIdAssigned(ErrorCode.INVALID_TRANSACTION_TIMEOUT)


# Order with plain commits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
def test_later_plain_commit_supersedes_transaction(committed: bool) -> None:
    simulation = TransactionSimulation()
    producer = open_transaction(simulation, 50)
    simulation.post(commit(60))
    assert fetched(simulation) == UNSTABLE
    simulation.end(producer, committed)
    assert offset(simulation) == 60


def test_transaction_supersedes_earlier_plain_commit() -> None:
    simulation = TransactionSimulation()
    simulation.post(commit(60))
    producer = open_transaction(simulation, 50)
    assert fetched(simulation, stable=False).offset == 60
    simulation.end(producer)
    assert offset(simulation) == 50


# Time ----------------------------------------------------------------------------------------------------------------


def test_transaction_is_aborted_after_timeout() -> None:
    simulation = TransactionSimulation()
    producer = open_transaction(simulation)
    simulation.advance(TIMEOUT_MS - 1)
    assert simulation.table[TX].state is ONGOING
    simulation.advance(1000)
    assert simulation.table[TX].state is COMPLETE_ABORT
    assert offset(simulation) == -1
    assert simulation.end(producer).error is ErrorCode.PRODUCER_FENCED
    assert simulation.init(producer=producer) == (producer[0], producer[1] + 1)


def test_timeout_starts_again_for_each_transaction() -> None:
    simulation = TransactionSimulation()
    producer = open_transaction(simulation)
    simulation.advance(TIMEOUT_MS - 1000)
    simulation.end(producer)
    simulation.add_offsets(producer)
    simulation.advance(TIMEOUT_MS - 1000)
    assert simulation.table[TX].state is ONGOING
    assert simulation.end(producer).error is NONE
    simulation.advance(10 * TIMEOUT_MS)
    assert simulation.table[TX].state is COMPLETE_COMMIT


def test_timeout_with_step_in_flight_is_retried() -> None:
    simulation = TransactionSimulation()
    producer = open_transaction(simulation)
    simulation.holds_appends = True
    adding = simulation.add_partitions(producer, ("plays", 0))
    simulation.advance(TIMEOUT_MS + 1)
    assert adding.is_waiting
    simulation.complete_all_appends()
    simulation.holds_appends = False
    simulation.advance(2000)
    assert simulation.table[TX].state is COMPLETE_ABORT
    assert [reply[:2] for reply in simulation.topics.ended] == [("plays", 0)]


def test_memory_of_transactional_ids_grows_with_their_partitions() -> None:
    simulation = TransactionSimulation()
    assert simulation.table.memory_bytes == 0
    producer = simulation.init()
    empty_bytes = simulation.table.memory_bytes
    assert empty_bytes == TRANSACTIONAL_ID_BYTES + len(TX)
    simulation.add_partitions(producer, *(("plays", partition) for partition in range(100)))
    assert simulation.table.memory_bytes == empty_bytes + 100 * TRANSACTION_PARTITION_BYTES
    restarted = TransactionSimulation(log=simulation.log)
    assert restarted.table.memory_bytes == simulation.table.memory_bytes
    simulation.end(producer)
    assert simulation.table.memory_bytes == empty_bytes
    _removed, counting = simulation.table.clear_partition(simulation.table.number_of(TX))
    run_steps(counting)
    assert simulation.table.memory_bytes == 0


def test_unused_transactional_id_expires_unless_transaction_is_open() -> None:
    simulation = TransactionSimulation()
    simulation.transaction_settings.transactional_id_expiration_ms = 1000
    simulation.transaction_settings.transaction_max_timeout_ms = 2**31 - 1
    simulation.init("idle")
    producer = simulation.init("busy", timeout_ms=2**31 - 1)
    simulation.add_offsets(producer, name="busy")
    simulation.advance(simulation.transaction_settings.transaction_remove_expired_transaction_cleanup_interval_ms + 10)
    assert set(simulation.table) == set(transactions_in(simulation.log)) == {"busy"}
    assert simulation.table.memory_bytes == TRANSACTIONAL_ID_BYTES + len("busy") + TRANSACTION_PARTITION_BYTES
    assert simulation.init("idle")[1] == 0


def test_scan_for_expired_ids_waits_for_tombstones_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a million ids that expire together would flood the log."""
    monkeypatch.setattr(expiration, "PIECE", 2)
    monkeypatch.setattr(expiration, "PIECES_PER_TURN", 1)
    monkeypatch.setattr(expiration, "MAX_PENDING", 3)
    simulation = TransactionSimulation()
    simulation.transaction_settings.transactional_id_expiration_ms = 1000
    for number in range(20):
        simulation.init(f"idle-{number}")
    simulation.holds_appends = True
    simulation.advance(simulation.transaction_settings.transaction_remove_expired_transaction_cleanup_interval_ms + 10)
    assert 3 <= sum(transaction.step is not None for transaction in simulation.table.values()) <= 4
    assert len(simulation.table) == 20
    simulation.complete_all_appends()
    assert not simulation.table
    simulation.holds_appends = False
    simulation.init("later")
    simulation.advance(simulation.transaction_settings.transaction_remove_expired_transaction_cleanup_interval_ms + 10)
    assert not simulation.table, "the next scan was scheduled"


def test_end_with_last_epoch_returns_new_producer_id() -> None:
    simulation = TransactionSimulation()
    producer = simulation.init()
    transaction = simulation.table[TX]
    transaction.value = transaction.value._replace(producer_epoch=EPOCH_MAX - 1)
    last_producer = (producer[0], EPOCH_MAX - 1)
    simulation.add_offsets(last_producer)
    simulation.commit(last_producer, 8)
    response = simulation.end(last_producer, raises_epoch=True).value
    assert response.producer_id > producer[0] and response.producer_epoch == 0
    assert simulation.end(last_producer, raises_epoch=True).value == response  # as after a lost response
    assert offset(simulation) == 8
    transaction.value = transaction.value._replace(producer_epoch=EPOCH_MAX - 1)
    assert simulation.init()[0] > response.producer_id


# Failed markers ------------------------------------------------------------------------------------------------------


def open_transaction_over_two_partitions(simulation: TransactionSimulation) -> tuple[int, int]:
    """A producer with a transaction over two groups in two log partitions and one topic."""
    producer = open_transaction(simulation)
    other_group = next(name for name in ("b", "c", "d") if offsets_partition(name, 50) != offsets_partition(GROUP, 50))
    simulation.add_offsets(producer, group_id=other_group)
    simulation.commit(producer, 6, group_id=other_group)
    simulation.add_partitions(producer, ("plays", 0))
    return producer


def test_failed_marker_is_retried_until_durable() -> None:
    """Only missing markers are written. Meanwhile the transactional id is busy."""
    simulation = TransactionSimulation()
    producer = open_transaction_over_two_partitions(simulation)
    simulation.holds_appends = True
    ending = simulation.end(producer)
    simulation.complete_append()
    assert ending.error is NONE
    simulation.log.settle([NONE, ErrorCode.KAFKA_STORAGE_ERROR])
    simulation.run()
    assert not simulation.log.in_flight, "the retry is delayed, because the disk may be full"
    for wait_ms in (1000, 2000, 4000):
        assert simulation.ask_transactions(InitProducerId(TX, TIMEOUT_MS)).error is ErrorCode.CONCURRENT_TRANSACTIONS
        simulation.advance(wait_ms - 10)
        assert not simulation.log.in_flight
        simulation.advance(20)
        [entry] = simulation.log.in_flight
        assert [type(record) for record in entry.records] == [MarkerRecord]
        simulation.fail(ErrorCode.KAFKA_STORAGE_ERROR) if wait_ms < 4000 else simulation.complete_all_appends()
    assert simulation.table[TX].state is COMPLETE_COMMIT
    assert len(simulation.markers()) == 2
    assert len(simulation.topics.ended) == 1, "a topic gets one marker"
    simulation.holds_appends = False
    assert offset(simulation) == 5
    assert simulation.init()[1] == producer[1] + 1


def test_failed_completion_record_is_retried() -> None:
    simulation = TransactionSimulation()
    producer = open_transaction(simulation)
    simulation.holds_appends = True
    simulation.end(producer, committed=False)
    simulation.complete_append()
    simulation.complete_append()
    [entry] = simulation.log.in_flight
    assert isinstance(entry.records[0], TransactionRecord)
    simulation.fail()
    assert simulation.ask_transactions(InitProducerId(TX, TIMEOUT_MS)).error is ErrorCode.CONCURRENT_TRANSACTIONS
    simulation.advance(1010)
    simulation.complete_all_appends()
    assert simulation.table[TX].state is COMPLETE_ABORT
    assert len(simulation.markers()) == 1, "the durable marker is not written again"


def test_delay_between_retries_is_at_most_one_minute() -> None:
    simulation = TransactionSimulation()
    producer = open_transaction(simulation)
    simulation.holds_appends = True
    simulation.end(producer)
    simulation.complete_append()
    simulation.fail()
    for _ in range(12):
        simulation.advance(60_010)
        assert simulation.log.in_flight
        simulation.fail()
    simulation.advance(60_010)
    simulation.complete_all_appends()
    assert simulation.table[TX].state is COMPLETE_COMMIT
    assert simulation.table[TX].attempts == 0
