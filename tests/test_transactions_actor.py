"""Transactions with groups, writer and timer, on the simulation: what clients hear, when, and what survives."""

from __future__ import annotations

import pytest
from stage.requests import GROUP, commit, fetch
from stage.transactions import TIMEOUT_MS, TX, TransactionWorld, fetched, offset, opened, transactions_in

from callboard.actors.errors import ErrorCode
from callboard.actors.javahash import offsets_partition
from callboard.actors.messages import FetchedOffset, ListGroups
from callboard.actors.records import MarkerRecord, PendingOffsetRecord, TransactionRecord
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


# A transaction's way -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("committed", "expected"), [(True, 5), (False, -1)])
def test_offsets_count_when_the_transaction_commits_and_never_if_it_does_not(committed: bool, expected: int) -> None:
    world = TransactionWorld()
    producer = opened(world)
    assert fetched(world) == UNSTABLE
    assert fetched(world, stable=False).offset == -1
    assert world.end(producer, committed).error is NONE
    assert offset(world) == expected
    assert world.table[TX].state is (COMPLETE_COMMIT if committed else COMPLETE_ABORT)


def test_what_lies_in_the_log_afterwards() -> None:
    world = TransactionWorld()
    producer = opened(world)
    world.end(producer)
    kinds = [type(record) for _, record in world.log.durable]
    a_step = TransactionRecord
    assert kinds == [a_step, a_step, PendingOffsetRecord, a_step, MarkerRecord, a_step]
    steps = [record for _, record in world.log.durable if isinstance(record, TransactionRecord)]
    states = [record.value.state for record in steps if record.value is not None]
    assert states == [EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT]
    places = {partition for partition, record in world.log.durable if isinstance(record, TransactionRecord)}
    assert all(place >= world.rules.offsets_topic_num_partitions for place in places) and len(places) == 1


def test_one_transaction_after_the_other() -> None:
    world = TransactionWorld()
    producer = world.init()
    for value, committed in ((1, True), (2, False), (3, True)):
        world.add_offsets(producer)
        world.commit(producer, value)
        world.end(producer, committed)
    assert offset(world) == 3


def test_a_transaction_over_several_groups_and_topics() -> None:
    world = TransactionWorld()
    producer = world.init()
    for group_id in ("a", "b"):
        world.add_offsets(producer, group_id)
        world.commit(producer, 7, group_id=group_id)
    world.add_partitions(producer, ("plays", 0), ("plays", 1))
    world.end(producer)
    assert [offset(world, group_id) for group_id in ("a", "b")] == [7, 7]
    assert sorted(place[:2] for place in world.topics.ended) == [("plays", 0), ("plays", 1)]
    assert {marker for _, _, marker in world.topics.ended} == {MarkerRecord(*producer, committed=True)}


def test_groups_of_one_partition_of_the_log_share_a_marker() -> None:
    world = TransactionWorld()
    first, second = groups_together(world.rules.offsets_topic_num_partitions)
    producer = world.init()
    for group_id in (first, second):
        world.add_offsets(producer, group_id)
        world.commit(producer, 7, group_id=group_id)
    world.end(producer)
    assert len(world.markers()) == 1
    assert [offset(world, group_id) for group_id in (first, second)] == [7, 7]


def groups_together(count: int) -> tuple[str, str]:
    """Two groups in the same of so many partitions."""
    names = [f"g{number}" for number in range(count + 1)]
    by_partition: dict[int, list[str]] = {}
    for name in names:
        by_partition.setdefault(offsets_partition(name, count), []).append(name)
    first, second, *_ = next(found for found in by_partition.values() if len(found) > 1)
    return first, second


def test_an_end_is_answered_when_the_decision_is_durable_and_not_before() -> None:
    world = TransactionWorld()
    producer = opened(world)
    world.holds_back = True
    ending = world.end(producer)
    assert ending.is_waiting
    world.keep()  # the decision
    assert ending.error is NONE
    assert fetched_now(world) == UNSTABLE
    assert world.add_offsets(producer).error is ErrorCode.CONCURRENT_TRANSACTIONS
    world.keep()  # the marker
    assert fetched_now(world).offset == 5
    assert world.add_offsets(producer).error is ErrorCode.CONCURRENT_TRANSACTIONS
    world.keep()  # the end of it
    again = world.add_offsets(producer)
    world.keep()
    assert again.error is NONE


def fetched_now(world: TransactionWorld) -> FetchedOffset:
    """What is durable, whatever is on its way."""
    data = world.group().data
    [(_topic, [found])] = data.fetch(fetch(require_stable=True)).topics
    return found


def test_a_marker_waits_for_offsets_that_are_on_their_way() -> None:
    """The client did not wait for its answer; the marker must not come before what it ends."""
    world = TransactionWorld()
    producer = world.init()
    world.add_offsets(producer)
    world.holds_back = True
    committing, ending = world.commit(producer, 9), world.end(producer)
    world.keep_all()
    assert (committing.value.errors, ending.error) == ((NONE,), NONE)
    world.holds_back = False
    world.run()
    kinds = [type(record) for _, record in world.log.durable]
    assert kinds.index(PendingOffsetRecord) < kinds.index(MarkerRecord)
    assert offset(world) == 9


def test_offsets_that_come_after_the_decision_are_refused() -> None:
    world = TransactionWorld()
    producer = opened(world)
    world.holds_back = True
    world.end(producer)
    world.keep()
    assert world.commit(producer, 6).value.errors == (ErrorCode.CONCURRENT_TRANSACTIONS,)
    world.keep_all()
    assert offset(world) == 5


# Who may -------------------------------------------------------------------------------------------------------------


def test_a_new_producer_fences_the_old_one() -> None:
    world = TransactionWorld()
    old = world.init()
    new = world.init()
    assert new == (old[0], old[1] + 1)
    assert world.add_offsets(old).error is ErrorCode.PRODUCER_FENCED
    assert world.commit(old, 1).value.errors == (ErrorCode.INVALID_PRODUCER_EPOCH,)
    assert world.end(old).error is ErrorCode.PRODUCER_FENCED
    assert world.add_offsets(new).error is NONE


def test_a_new_producer_aborts_what_the_old_one_has_begun() -> None:
    world = TransactionWorld()
    old = opened(world)
    assert world.ask_about(InitProducerId(TX, TIMEOUT_MS)).error is ErrorCode.CONCURRENT_TRANSACTIONS
    new = world.init()
    assert new == (old[0], old[1] + 2)
    assert offset(world) == -1
    assert world.end(old).error is ErrorCode.PRODUCER_FENCED
    assert world.markers() == [MarkerRecord(old[0], old[1] + 1, committed=False)]


@pytest.mark.parametrize(
    ("version", "expected"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_offsets_outside_of_a_transaction_are_refused(version: int, expected: ErrorCode) -> None:
    world = TransactionWorld()
    producer = world.init()
    assert world.commit(producer, 1, version=version).value.errors == (expected,)
    world.add_offsets(producer, "other")
    assert world.commit(producer, 1, version=version, partitions=(0, 1)).value.errors == (expected, expected)


def test_from_version_5_on_offsets_begin_the_transaction_themselves() -> None:
    world = TransactionWorld()
    producer = world.init()
    assert world.commit(producer, 4, version=5).value.errors == (NONE,)
    ended = world.end(producer, raises_epoch=True).value
    assert ended == ProducerIdAssigned(NONE, producer[0], producer[1] + 1)
    assert offset(world) == 4
    assert world.add_offsets(producer).error is ErrorCode.PRODUCER_FENCED


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
def test_who_is_not_the_producer(name: str, producer: tuple[int, int], group_id: str, expected: ErrorCode) -> None:
    world = TransactionWorld()
    assert world.init() == (1000, 0)
    world.add_offsets((1000, 0))
    assert world.commit(producer, 1, name=name, group_id=group_id).value.errors == (expected,)


def test_a_member_must_be_one_and_nobody_in_particular_may_commit_always() -> None:
    world = TransactionWorld()
    [member] = world.form({})
    producer = world.init()
    world.add_offsets(producer)

    def error(**options: object) -> ErrorCode:
        [found] = world.commit(producer, 3, **options).value.errors
        return ErrorCode(found)

    known = {"member_id": member.member_id, "generation_id": member.generation_id}
    assert error() is NONE
    assert error(**known) is NONE
    assert error(**{**known, "generation_id": 99}) is ErrorCode.ILLEGAL_GENERATION
    assert error(**{**known, "member_id": "stranger"}) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(**known, instance="i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(metadata="x" * 4097) is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_a_group_that_does_not_exist_is_made_for_a_simple_producer_only() -> None:
    world = TransactionWorld()
    producer = world.init()
    world.add_offsets(producer)
    assert world.commit(producer, 1, generation_id=3).value.errors == (ErrorCode.ILLEGAL_GENERATION,)
    assert GROUP not in world.directory.groups
    assert world.commit(producer, 1).value.errors == (NONE,)
    assert [one.group_id for one in world.ask(ListGroups()).value] == [GROUP]


def test_what_is_part_of_a_transaction_can_be_asked() -> None:
    world = TransactionWorld()
    producer = world.init()
    world.add_partitions(producer, ("plays", 0))
    asked = (("plays", 0), ("plays", 1))
    assert world.ask_about(VerifyPartitions(TX, *producer, asked)).value == (NONE, ErrorCode.TRANSACTION_ABORTABLE)
    assert (
        world.ask_about(VerifyPartitions("x", *producer, asked)).value == (ErrorCode.INVALID_PRODUCER_ID_MAPPING,) * 2
    )


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_that_nobody_may_ask_for(timeout_ms: int) -> None:
    world = TransactionWorld()
    refused = world.ask_about(InitProducerId(TX, timeout_ms)).value
    assert refused == ProducerIdAssigned(ErrorCode.INVALID_TRANSACTION_TIMEOUT)


# Order with plain commits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
def test_a_later_plain_commit_wins_over_a_transaction(committed: bool) -> None:
    world = TransactionWorld()
    producer = opened(world, 50)
    world.post(commit(60))
    assert fetched(world) == UNSTABLE
    world.end(producer, committed)
    assert offset(world) == 60


def test_a_transaction_wins_over_an_earlier_plain_commit() -> None:
    world = TransactionWorld()
    world.post(commit(60))
    producer = opened(world, 50)
    assert fetched(world, stable=False).offset == 60
    world.end(producer)
    assert offset(world) == 50


# Time ----------------------------------------------------------------------------------------------------------------


def test_a_dead_producers_transaction_is_aborted_when_its_time_is_over() -> None:
    world = TransactionWorld()
    producer = opened(world)
    world.advance(TIMEOUT_MS - 1)
    assert world.table[TX].state is ONGOING
    world.advance(1000)
    assert world.table[TX].state is COMPLETE_ABORT
    assert offset(world) == -1
    assert world.end(producer).error is ErrorCode.PRODUCER_FENCED
    assert world.init(producer=producer) == (producer[0], producer[1] + 1)


def test_each_transaction_has_all_of_its_time() -> None:
    world = TransactionWorld()
    producer = opened(world)
    world.advance(TIMEOUT_MS - 1000)
    world.end(producer)
    world.add_offsets(producer)
    world.advance(TIMEOUT_MS - 1000)
    assert world.table[TX].state is ONGOING
    assert world.end(producer).error is NONE
    world.advance(10 * TIMEOUT_MS)
    assert world.table[TX].state is COMPLETE_COMMIT


def test_a_timeout_while_the_log_is_busy_is_made_up_for() -> None:
    world = TransactionWorld()
    producer = opened(world)
    world.holds_back = True
    adding = world.add_partitions(producer, ("plays", 0))
    world.advance(TIMEOUT_MS + 1)
    assert adding.is_waiting
    world.keep_all()
    world.holds_back = False
    world.advance(2000)
    assert world.table[TX].state is COMPLETE_ABORT
    assert [place[:2] for place in world.topics.ended] == [("plays", 0)]


def test_an_id_that_nobody_uses_is_forgotten_and_an_open_one_is_not() -> None:
    world = TransactionWorld()
    world.transaction_rules.transactional_id_expiration_ms = 1000
    world.transaction_rules.transaction_max_timeout_ms = 2**31 - 1
    world.init("idle")
    producer = world.init("busy", timeout_ms=2**31 - 1)
    world.add_offsets(producer, name="busy")
    world.advance(world.transaction_rules.transaction_remove_expired_transaction_cleanup_interval_ms + 10)
    assert set(world.table) == set(transactions_in(world.log)) == {"busy"}
    assert world.init("idle")[1] == 0


def test_epochs_that_are_used_up_make_a_new_producer() -> None:
    world = TransactionWorld()
    producer = world.init()
    transaction = world.table[TX]
    transaction.value = transaction.value._replace(producer_epoch=EPOCH_MAX - 1)
    last = (producer[0], EPOCH_MAX - 1)
    world.add_offsets(last)
    world.commit(last, 8)
    given = world.end(last, raises_epoch=True).value
    assert given.producer_id > producer[0] and given.producer_epoch == 0
    assert world.end(last, raises_epoch=True).value == given  # the answer was lost
    assert offset(world) == 8
    transaction.value = transaction.value._replace(producer_epoch=EPOCH_MAX - 1)
    assert world.init()[0] > given.producer_id


# Markers that cannot be written --------------------------------------------------------------------------------------


def in_two_partitions(world: TransactionWorld) -> tuple[int, int]:
    """A producer whose transaction has offsets of two groups in two partitions of the log, and records in a topic."""
    producer = opened(world)
    other = next(name for name in ("b", "c", "d") if offsets_partition(name, 50) != offsets_partition(GROUP, 50))
    world.add_offsets(producer, group_id=other)
    world.commit(producer, 6, group_id=other)
    world.add_partitions(producer, ("plays", 0))
    return producer


def test_a_marker_that_fails_is_written_again_until_it_is_there() -> None:
    """Only those that are missing; meanwhile the id is busy, and afterwards it goes on."""
    world = TransactionWorld()
    producer = in_two_partitions(world)
    world.holds_back = True
    ending = world.end(producer)
    world.keep()
    assert ending.error is NONE
    world.log.settle([NONE, ErrorCode.KAFKA_STORAGE_ERROR])
    world.run()
    assert not world.log.in_flight, "not at once: the disk may be full"
    for wait_ms in (1000, 2000, 4000):
        assert world.ask_about(InitProducerId(TX, TIMEOUT_MS)).error is ErrorCode.CONCURRENT_TRANSACTIONS
        world.advance(wait_ms - 10)
        assert not world.log.in_flight
        world.advance(20)
        [entry] = world.log.in_flight
        assert [type(record) for record in entry.records] == [MarkerRecord]
        world.fail(ErrorCode.KAFKA_STORAGE_ERROR) if wait_ms < 4000 else world.keep_all()
    assert world.table[TX].state is COMPLETE_COMMIT
    assert len(world.markers()) == 2
    assert len(world.topics.ended) == 1, "a topic is told once"
    world.holds_back = False
    assert offset(world) == 5
    assert world.init()[1] == producer[1] + 1


def test_the_record_of_the_end_is_written_again_too() -> None:
    world = TransactionWorld()
    producer = opened(world)
    world.holds_back = True
    world.end(producer, committed=False)
    world.keep()
    world.keep()
    [entry] = world.log.in_flight
    assert isinstance(entry.records[0], TransactionRecord)
    world.fail()
    assert world.ask_about(InitProducerId(TX, TIMEOUT_MS)).error is ErrorCode.CONCURRENT_TRANSACTIONS
    world.advance(1010)
    world.keep_all()
    assert world.table[TX].state is COMPLETE_ABORT
    assert len(world.markers()) == 1, "the marker was there"


def test_attempts_are_never_further_apart_than_a_minute() -> None:
    world = TransactionWorld()
    producer = opened(world)
    world.holds_back = True
    world.end(producer)
    world.keep()
    world.fail()
    for _ in range(12):
        world.advance(60_010)
        assert world.log.in_flight
        world.fail()
    world.advance(60_010)
    world.keep_all()
    assert world.table[TX].state is COMPLETE_COMMIT
    assert world.table[TX].attempts == 0
