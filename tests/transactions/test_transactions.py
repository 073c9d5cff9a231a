"""The rules of one transactional id, pure: tables, epochs, recovery and fencing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.actors.errors import ErrorCode, IllegalTransition
from callboard.actors.records import TransactionValue
from callboard.actors.transactions.messages import EndTransaction, InitProducerId
from callboard.actors.transactions.rules import (
    ALLOWED_PREVIOUS_STATES,
    COLUMNS,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    EPOCH_MAX,
    INACTIVE_STATES,
    NEW_PROTOCOL,
    NEW_PROTOCOL_ENDS,
    OLD_PROTOCOL_ENDS,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    PREPARED_STATES,
    Decision,
    Transaction,
    TransactionState,
    TransactionStep,
)

NONE = ErrorCode.NONE
INVALID, FENCED = ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED
CONCURRENT, UNMAPPED = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_PRODUCER_ID_MAPPING
PARTITION = ("plays", 0)
STATES_BEFORE_DEAD = tuple(INACTIVE_STATES | PREPARED_STATES | {ONGOING})


class DurableTransaction:
    """A transactional id whose steps are durable immediately. New producer ids count from 100."""

    def __init__(self, state: TransactionState = EMPTY, epoch: int = -1) -> None:
        partitions = frozenset({PARTITION}) if state in PREPARED_STATES | {ONGOING} else frozenset()
        value = TransactionValue(7, epoch, 60_000, state, partitions, 10, 10 if partitions else -1)
        self.transaction = Transaction("tx", value)
        self._ids: Iterator[int] = count(100)

    def new_id(self) -> int:
        return next(self._ids)

    def apply(self, decision: Decision) -> TransactionValue:
        assert isinstance(decision, TransactionStep), decision
        self.transaction.step = decision
        self.transaction.apply_step()
        return self.transaction.value

    def init(self, producer_id: int = -1, epoch: int = -1) -> Decision:
        return self.transaction.init(InitProducerId("tx", 30_000, producer_id, epoch), 20, self.new_id)

    def add(self, producer_id: int = 7, epoch: int = 0) -> Decision:
        return self.transaction.add(producer_id, epoch, frozenset({PARTITION}), 20, 0)

    def end(self, committed: bool, epoch: int = 0, producer_id: int = 7, raises: bool = False) -> Decision:
        return self.transaction.end(EndTransaction("tx", producer_id, epoch, committed, raises), 30, self.new_id)

    def complete(self) -> TransactionValue:
        return self.apply(self.transaction.complete(40))


# The tables ----------------------------------------------------------------------------------------------------------


def test_allowed_transitions_of_transactions_equal_kafkas() -> None:
    """Source: TransactionState.validPreviousStates (4.3)."""
    assert set(ALLOWED_PREVIOUS_STATES) == set(TransactionState)
    arrows = {(previous.name, state.name) for state in TransactionState for previous in ALLOWED_PREVIOUS_STATES[state]}
    inactive_states = ("EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT")
    assert arrows == {
        *product(inactive_states, ("EMPTY", "ONGOING", "PREPARE_ABORT", "DEAD")),
        ("ONGOING", "ONGOING"),
        ("ONGOING", "PREPARE_COMMIT"),
        ("ONGOING", "PREPARE_ABORT"),
        ("ONGOING", "PREPARE_EPOCH_FENCE"),
        ("PREPARE_EPOCH_FENCE", "PREPARE_ABORT"),
        ("PREPARE_COMMIT", "COMPLETE_COMMIT"),
        ("PREPARE_ABORT", "COMPLETE_ABORT"),
    }


def test_state_numbers_equal_kafkas() -> None:
    states = EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, PREPARE_EPOCH_FENCE
    assert states == tuple(range(8))


def test_each_state_has_result_for_each_end() -> None:
    assert set(OLD_PROTOCOL_ENDS) == set(NEW_PROTOCOL_ENDS) == set(STATES_BEFORE_DEAD)
    assert all(set(row) == {True, False} for row in OLD_PROTOCOL_ENDS.values())
    assert all(set(row) == set(COLUMNS) for row in NEW_PROTOCOL_ENDS.values())


@pytest.mark.parametrize(("state", "committed"), list(product(STATES_BEFORE_DEAD, (True, False))))
def test_end_in_old_protocol_follows_table(state: TransactionState, committed: bool) -> None:
    producer_transaction = DurableTransaction(state, epoch=0)
    decision, expected = producer_transaction.end(committed), OLD_PROTOCOL_ENDS[state][committed]
    if expected is not None:
        assert decision is expected
        return
    value = producer_transaction.apply(decision)
    assert value.state == (PREPARE_COMMIT if committed else PREPARE_ABORT)
    assert (value.producer_epoch, value.client_version) == (0, 0)


@pytest.mark.parametrize(("state", "column"), list(product(STATES_BEFORE_DEAD, COLUMNS)))
def test_end_in_new_protocol_follows_table(state: TransactionState, column: tuple[bool, bool]) -> None:
    committed, is_repeated = column
    producer_transaction = DurableTransaction(state, epoch=5)
    decision, expected = (
        producer_transaction.end(committed, 4 if is_repeated else 5, raises=True),
        NEW_PROTOCOL_ENDS[state][column],
    )
    if expected is not None:
        assert decision is expected
        return
    value = producer_transaction.apply(decision)
    assert value.state == (PREPARE_COMMIT if committed else PREPARE_ABORT)
    assert (value.producer_epoch, producer_transaction.transaction.last_epoch) == (6, 5)
    assert (value.client_version, value.start_timestamp_ms >= 0) == (NEW_PROTOCOL, True)


@pytest.mark.parametrize(("previous", "next_state"), list(product(STATES_BEFORE_DEAD, TransactionState)))
def test_transaction_transition_that_is_not_allowed_raises(
    previous: TransactionState, next_state: TransactionState
) -> None:
    transaction = DurableTransaction(previous, epoch=0).transaction
    if previous in ALLOWED_PREVIOUS_STATES[next_state]:
        assert transaction._transition_to(next_state, -1).state is next_state
    else:
        with pytest.raises(IllegalTransition, match=f"from {previous.name} to {next_state.name}"):
            transaction._transition_to(next_state, -1)


# Producers -----------------------------------------------------------------------------------------------------------


def test_init_increments_epoch() -> None:
    producer_transaction = DurableTransaction()
    assert [producer_transaction.apply(producer_transaction.init()).producer_epoch for _ in range(3)] == [0, 1, 2]
    value = producer_transaction.transaction.value
    assert (value.producer_id, value.timeout_ms, value.state) == (7, 30_000, EMPTY)


def test_init_with_epoch_returns_next_epoch_and_repeats_it() -> None:
    """KIP-360."""
    producer_transaction = DurableTransaction(epoch=3)
    assert producer_transaction.apply(producer_transaction.init(7, 3)).producer_epoch == 4
    assert producer_transaction.apply(producer_transaction.init(7, 3)).producer_epoch == 4
    assert producer_transaction.apply(producer_transaction.init(7, 4)).producer_epoch == 5
    assert producer_transaction.init(7, 3) is FENCED


@pytest.mark.parametrize(("producer_id", "epoch"), [(7, 2), (7, 9), (8, 3)])
def test_init_with_epoch_of_replaced_producer_returns_90(producer_id: int, epoch: int) -> None:
    assert DurableTransaction(epoch=3).init(producer_id, epoch) is FENCED


def test_init_without_epoch_clears_last_epoch() -> None:
    producer_transaction = DurableTransaction(epoch=3)
    producer_transaction.apply(producer_transaction.init(7, 3))
    producer_transaction.apply(producer_transaction.init())
    assert producer_transaction.init(7, 3) is FENCED
    assert producer_transaction.init(7, 4) is FENCED


def test_init_after_last_epoch_returns_new_producer_id_and_repeats_it() -> None:
    producer_transaction = DurableTransaction(epoch=EPOCH_MAX - 1)
    value = producer_transaction.apply(producer_transaction.init(7, EPOCH_MAX - 1))
    assert (value.producer_id, value.producer_epoch, value.previous_producer_id) == (100, 0, 7)
    repeated_value = producer_transaction.apply(producer_transaction.init(7, EPOCH_MAX - 1))
    assert (repeated_value.producer_id, repeated_value.producer_epoch) == (100, 0)


def test_init_aborts_open_transaction_and_fences_its_producer() -> None:
    producer_transaction = DurableTransaction(ONGOING, epoch=3)
    value = producer_transaction.apply(producer_transaction.init())
    assert (value.state, value.producer_epoch) == (PREPARE_ABORT, 4)
    assert producer_transaction.init() is CONCURRENT
    assert producer_transaction.complete().state == COMPLETE_ABORT
    assert producer_transaction.apply(producer_transaction.init()).producer_epoch == 5


def test_init_with_epoch_after_abort_by_coordinator() -> None:
    producer_transaction = DurableTransaction(ONGOING, epoch=3)
    producer_transaction.apply(producer_transaction.transaction.abort(20, producer_transaction.new_id))
    producer_transaction.complete()
    assert producer_transaction.apply(producer_transaction.init(7, 3)).producer_epoch == 4


def test_fencing_epoch_may_be_the_maximum() -> None:
    producer_transaction = DurableTransaction(ONGOING, epoch=EPOCH_MAX - 1)
    value = producer_transaction.apply(producer_transaction.transaction.abort(20, producer_transaction.new_id))
    assert (value.producer_epoch, value.next_producer_id) == (EPOCH_MAX, 100)
    value = producer_transaction.complete()
    assert (value.producer_id, value.producer_epoch, value.next_producer_id) == (100, 0, -1)


# Partitions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES_BEFORE_DEAD)
def test_add_begins_or_extends_transaction(state: TransactionState) -> None:
    producer_transaction = DurableTransaction(state, epoch=0)
    decision = producer_transaction.add()
    if state in PREPARED_STATES:
        assert decision is CONCURRENT
    elif state is ONGOING:
        assert decision is NONE
        extended = producer_transaction.apply(
            producer_transaction.transaction.add(7, 0, frozenset({("plays", 1)}), 99, 0)
        )
        assert (extended.start_timestamp_ms, extended.partitions) == (10, frozenset({PARTITION, ("plays", 1)}))
    else:
        value = producer_transaction.apply(decision)
        assert (value.state, value.start_timestamp_ms, value.partitions) == (ONGOING, 20, frozenset({PARTITION}))


@pytest.mark.parametrize(("producer_id", "epoch", "expected"), [(8, 0, UNMAPPED), (7, 1, FENCED), (7, -1, FENCED)])
def test_requests_of_other_producers_are_refused(producer_id: int, epoch: int, expected: ErrorCode) -> None:
    producer_transaction = DurableTransaction(ONGOING, epoch=0)
    assert producer_transaction.add(producer_id, epoch) is expected
    assert producer_transaction.transaction.verify_partition(producer_id, epoch, PARTITION) is expected
    for raises in (False, True):
        assert producer_transaction.end(True, epoch, producer_id, raises) in (expected, FENCED)


def test_verify_partition_that_is_not_in_transaction_returns_120() -> None:
    transaction = DurableTransaction(ONGOING, epoch=0).transaction
    assert transaction.verify_partition(7, 0, PARTITION) is NONE
    assert transaction.verify_partition(7, 0, ("plays", 1)) is ErrorCode.TRANSACTION_ABORTABLE


def test_requests_while_step_is_in_flight_return_51() -> None:
    producer_transaction = DurableTransaction(ONGOING, epoch=0)
    decision = producer_transaction.end(True)
    assert isinstance(decision, TransactionStep)
    producer_transaction.transaction.step = decision
    assert (
        producer_transaction.init()
        is producer_transaction.add()
        is producer_transaction.end(False)
        is producer_transaction.end(True, raises=True)
        is CONCURRENT
    )


def test_only_open_transaction_has_due_time() -> None:
    assert {state: DurableTransaction(state, epoch=0).transaction.due_ms() for state in STATES_BEFORE_DEAD} == {
        **dict.fromkeys(STATES_BEFORE_DEAD),
        ONGOING: 10 + 60_000,
    }


@pytest.mark.parametrize("state", STATES_BEFORE_DEAD)
def test_is_expired_depends_on_state_and_age(state: TransactionState) -> None:
    transaction = DurableTransaction(state, epoch=0).transaction
    assert transaction.is_expired(1010, 1000) == (state in INACTIVE_STATES)
    assert not transaction.is_expired(1009, 1000)


# Random steps --------------------------------------------------------------------------------------------------------

step_lists = st.lists(
    st.tuples(
        st.sampled_from(["init", "go on", "add", "commit", "abort", "commit5", "abort5", "time", "done"]),
        st.integers(-1, 1),
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(step_lists, st.sampled_from([-1, 0, EPOCH_MAX - 3]))
def test_epochs_never_decrease_and_decisions_never_change(steps: list[tuple[str, int]], epoch: int) -> None:
    """Includes requests of zombies, with an epoch one lower. Ids and epochs never decrease; decisions are completed."""
    producer_transaction = DurableTransaction(epoch=epoch)
    transaction = producer_transaction.transaction
    for step, epoch_delta in steps:
        value_before = transaction.value
        decision = decide(
            producer_transaction, step, value_before.producer_id, value_before.producer_epoch + epoch_delta
        )
        if not isinstance(decision, TransactionStep):
            continue
        assert epoch_delta == 0 or step in ("init", "go on", "time", "done") or value_before.producer_epoch == -1
        value_after = producer_transaction.apply(decision)
        assert (value_after.producer_id, value_after.producer_epoch) >= (
            value_before.producer_id,
            value_before.producer_epoch,
        )
        assert 0 <= value_after.producer_epoch <= EPOCH_MAX
        if value_before.state in PREPARED_STATES:
            assert (step, value_after.state) == ("done", value_before.state + 2)


def decide(producer_transaction: DurableTransaction, step: str, producer_id: int, epoch: int) -> Decision | None:
    state = producer_transaction.transaction.state
    if step == "init":
        return producer_transaction.init()
    if step == "go on":
        return producer_transaction.init(producer_id, epoch) if epoch >= 0 else None
    if step == "add":
        return producer_transaction.add(producer_id, epoch)
    if step == "time":
        return producer_transaction.transaction.abort(50, producer_transaction.new_id) if state is ONGOING else None
    if step == "done":
        return producer_transaction.transaction.complete(60) if state in PREPARED_STATES else None
    return producer_transaction.end(step.startswith("commit"), epoch, producer_id, raises=step.endswith("5"))
