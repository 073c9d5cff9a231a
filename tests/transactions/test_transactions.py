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
PLACE = ("plays", 0)
LIVING = tuple(INACTIVE_STATES | PREPARED_STATES | {ONGOING})


class Rehearsal:
    """A transactional id whose steps are durable at once; new producer ids count from 100."""

    def __init__(self, state: TransactionState = EMPTY, epoch: int = -1) -> None:
        partitions = frozenset({PLACE}) if state in PREPARED_STATES | {ONGOING} else frozenset()
        value = TransactionValue(7, epoch, 60_000, state, partitions, 10, 10 if partitions else -1)
        self.transaction = Transaction("tx", value)
        self._ids: Iterator[int] = count(100)

    def new_id(self) -> int:
        return next(self._ids)

    def take(self, decided: Decision) -> TransactionValue:
        assert isinstance(decided, TransactionStep), decided
        self.transaction.step = decided
        self.transaction.apply_step()
        return self.transaction.value

    def init(self, producer_id: int = -1, epoch: int = -1) -> Decision:
        return self.transaction.init(InitProducerId("tx", 30_000, producer_id, epoch), 20, self.new_id)

    def add(self, producer_id: int = 7, epoch: int = 0) -> Decision:
        return self.transaction.add(producer_id, epoch, frozenset({PLACE}), 20, 0)

    def end(self, committed: bool, epoch: int = 0, producer_id: int = 7, raises: bool = False) -> Decision:
        return self.transaction.end(EndTransaction("tx", producer_id, epoch, committed, raises), 30, self.new_id)

    def complete(self) -> TransactionValue:
        return self.take(self.transaction.complete(40))


# The tables ----------------------------------------------------------------------------------------------------------


def test_allowed_transitions_of_transactions_equal_kafkas() -> None:
    """Source: TransactionState.validPreviousStates (4.3)."""
    assert set(ALLOWED_PREVIOUS_STATES) == set(TransactionState)
    arrows = {
        (came_from.name, state.name) for state in TransactionState for came_from in ALLOWED_PREVIOUS_STATES[state]
    }
    rest = ("EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT")
    assert arrows == {
        *product(rest, ("EMPTY", "ONGOING", "PREPARE_ABORT", "DEAD")),
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
    assert set(OLD_PROTOCOL_ENDS) == set(NEW_PROTOCOL_ENDS) == set(LIVING)
    assert all(set(row) == {True, False} for row in OLD_PROTOCOL_ENDS.values())
    assert all(set(row) == set(COLUMNS) for row in NEW_PROTOCOL_ENDS.values())


@pytest.mark.parametrize(("state", "committed"), list(product(LIVING, (True, False))))
def test_end_in_old_protocol_follows_table(state: TransactionState, committed: bool) -> None:
    rehearsal = Rehearsal(state, epoch=0)
    decided, expected = rehearsal.end(committed), OLD_PROTOCOL_ENDS[state][committed]
    if expected is not None:
        assert decided is expected
        return
    value = rehearsal.take(decided)
    assert value.state == (PREPARE_COMMIT if committed else PREPARE_ABORT)
    assert (value.producer_epoch, value.client_version) == (0, 0)


@pytest.mark.parametrize(("state", "column"), list(product(LIVING, COLUMNS)))
def test_end_in_new_protocol_follows_table(state: TransactionState, column: tuple[bool, bool]) -> None:
    committed, again = column
    rehearsal = Rehearsal(state, epoch=5)
    decided, expected = rehearsal.end(committed, 4 if again else 5, raises=True), NEW_PROTOCOL_ENDS[state][column]
    if expected is not None:
        assert decided is expected
        return
    value = rehearsal.take(decided)
    assert value.state == (PREPARE_COMMIT if committed else PREPARE_ABORT)
    assert (value.producer_epoch, rehearsal.transaction.last_epoch) == (6, 5)
    assert (value.client_version, value.start_timestamp_ms >= 0) == (NEW_PROTOCOL, True)


@pytest.mark.parametrize(("here", "there"), list(product(LIVING, TransactionState)))
def test_transaction_transition_that_is_not_allowed_raises(here: TransactionState, there: TransactionState) -> None:
    transaction = Rehearsal(here, epoch=0).transaction
    if here in ALLOWED_PREVIOUS_STATES[there]:
        assert transaction._transition_to(there, -1).state is there
    else:
        with pytest.raises(IllegalTransition, match=f"from {here.name} to {there.name}"):
            transaction._transition_to(there, -1)


# Producers -----------------------------------------------------------------------------------------------------------


def test_init_increments_epoch() -> None:
    rehearsal = Rehearsal()
    assert [rehearsal.take(rehearsal.init()).producer_epoch for _ in range(3)] == [0, 1, 2]
    value = rehearsal.transaction.value
    assert (value.producer_id, value.timeout_ms, value.state) == (7, 30_000, EMPTY)


def test_init_with_epoch_returns_next_epoch_and_repeats_it() -> None:
    """KIP-360."""
    rehearsal = Rehearsal(epoch=3)
    assert rehearsal.take(rehearsal.init(7, 3)).producer_epoch == 4
    assert rehearsal.take(rehearsal.init(7, 3)).producer_epoch == 4
    assert rehearsal.take(rehearsal.init(7, 4)).producer_epoch == 5
    assert rehearsal.init(7, 3) is FENCED


@pytest.mark.parametrize(("producer_id", "epoch"), [(7, 2), (7, 9), (8, 3)])
def test_init_with_epoch_of_replaced_producer_returns_90(producer_id: int, epoch: int) -> None:
    assert Rehearsal(epoch=3).init(producer_id, epoch) is FENCED


def test_init_without_epoch_clears_last_epoch() -> None:
    rehearsal = Rehearsal(epoch=3)
    rehearsal.take(rehearsal.init(7, 3))
    rehearsal.take(rehearsal.init())
    assert rehearsal.init(7, 3) is FENCED
    assert rehearsal.init(7, 4) is FENCED


def test_init_after_last_epoch_returns_new_producer_id_and_repeats_it() -> None:
    rehearsal = Rehearsal(epoch=EPOCH_MAX - 1)
    value = rehearsal.take(rehearsal.init(7, EPOCH_MAX - 1))
    assert (value.producer_id, value.producer_epoch, value.previous_producer_id) == (100, 0, 7)
    again = rehearsal.take(rehearsal.init(7, EPOCH_MAX - 1))
    assert (again.producer_id, again.producer_epoch) == (100, 0)


def test_init_aborts_open_transaction_and_fences_its_producer() -> None:
    rehearsal = Rehearsal(ONGOING, epoch=3)
    value = rehearsal.take(rehearsal.init())
    assert (value.state, value.producer_epoch) == (PREPARE_ABORT, 4)
    assert rehearsal.init() is CONCURRENT
    assert rehearsal.complete().state == COMPLETE_ABORT
    assert rehearsal.take(rehearsal.init()).producer_epoch == 5


def test_init_with_epoch_after_abort_by_coordinator() -> None:
    rehearsal = Rehearsal(ONGOING, epoch=3)
    rehearsal.take(rehearsal.transaction.abort(20, rehearsal.new_id))
    rehearsal.complete()
    assert rehearsal.take(rehearsal.init(7, 3)).producer_epoch == 4


def test_fencing_epoch_may_be_the_maximum() -> None:
    rehearsal = Rehearsal(ONGOING, epoch=EPOCH_MAX - 1)
    value = rehearsal.take(rehearsal.transaction.abort(20, rehearsal.new_id))
    assert (value.producer_epoch, value.next_producer_id) == (EPOCH_MAX, 100)
    value = rehearsal.complete()
    assert (value.producer_id, value.producer_epoch, value.next_producer_id) == (100, 0, -1)


# Partitions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", LIVING)
def test_add_begins_or_extends_transaction(state: TransactionState) -> None:
    rehearsal = Rehearsal(state, epoch=0)
    decided = rehearsal.add()
    if state in PREPARED_STATES:
        assert decided is CONCURRENT
    elif state is ONGOING:
        assert decided is NONE
        more = rehearsal.take(rehearsal.transaction.add(7, 0, frozenset({("plays", 1)}), 99, 0))
        assert (more.start_timestamp_ms, more.partitions) == (10, frozenset({PLACE, ("plays", 1)}))
    else:
        value = rehearsal.take(decided)
        assert (value.state, value.start_timestamp_ms, value.partitions) == (ONGOING, 20, frozenset({PLACE}))


@pytest.mark.parametrize(("producer_id", "epoch", "expected"), [(8, 0, UNMAPPED), (7, 1, FENCED), (7, -1, FENCED)])
def test_requests_of_other_producers_are_refused(producer_id: int, epoch: int, expected: ErrorCode) -> None:
    rehearsal = Rehearsal(ONGOING, epoch=0)
    assert rehearsal.add(producer_id, epoch) is expected
    assert rehearsal.transaction.verify_partition(producer_id, epoch, PLACE) is expected
    for raises in (False, True):
        assert rehearsal.end(True, epoch, producer_id, raises) in (expected, FENCED)


def test_verify_partition_that_is_not_in_transaction_returns_120() -> None:
    transaction = Rehearsal(ONGOING, epoch=0).transaction
    assert transaction.verify_partition(7, 0, PLACE) is NONE
    assert transaction.verify_partition(7, 0, ("plays", 1)) is ErrorCode.TRANSACTION_ABORTABLE


def test_requests_while_step_is_in_flight_return_51() -> None:
    rehearsal = Rehearsal(ONGOING, epoch=0)
    decided = rehearsal.end(True)
    assert isinstance(decided, TransactionStep)
    rehearsal.transaction.step = decided
    assert rehearsal.init() is rehearsal.add() is rehearsal.end(False) is rehearsal.end(True, raises=True) is CONCURRENT


def test_only_open_transaction_has_due_time() -> None:
    assert {state: Rehearsal(state, epoch=0).transaction.due_ms() for state in LIVING} == {
        **dict.fromkeys(LIVING),
        ONGOING: 10 + 60_000,
    }


@pytest.mark.parametrize("state", LIVING)
def test_is_expired_depends_on_state_and_age(state: TransactionState) -> None:
    transaction = Rehearsal(state, epoch=0).transaction
    assert transaction.is_expired(1010, 1000) == (state in INACTIVE_STATES)
    assert not transaction.is_expired(1009, 1000)


# A walk --------------------------------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.sampled_from(["init", "go on", "add", "commit", "abort", "commit5", "abort5", "time", "done"]),
        st.integers(-1, 1),
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(steps, st.sampled_from([-1, 0, EPOCH_MAX - 3]))
def test_epochs_never_decrease_and_decisions_never_change(walk: list[tuple[str, int]], epoch: int) -> None:
    """With requests of zombies (epoch off by one). Ids and epochs only rise; a prepared result is completed."""
    rehearsal = Rehearsal(epoch=epoch)
    transaction = rehearsal.transaction
    for what, off in walk:
        before = transaction.value
        decided = decide(rehearsal, what, before.producer_id, before.producer_epoch + off)
        if not isinstance(decided, TransactionStep):
            continue
        assert off == 0 or what in ("init", "go on", "time", "done") or before.producer_epoch == -1
        after = rehearsal.take(decided)
        assert (after.producer_id, after.producer_epoch) >= (before.producer_id, before.producer_epoch)
        assert 0 <= after.producer_epoch <= EPOCH_MAX
        if before.state in PREPARED_STATES:
            assert (what, after.state) == ("done", before.state + 2)


def decide(rehearsal: Rehearsal, what: str, producer_id: int, epoch: int) -> Decision | None:
    state = rehearsal.transaction.state
    if what == "init":
        return rehearsal.init()
    if what == "go on":
        return rehearsal.init(producer_id, epoch) if epoch >= 0 else None
    if what == "add":
        return rehearsal.add(producer_id, epoch)
    if what == "time":
        return rehearsal.transaction.abort(50, rehearsal.new_id) if state is ONGOING else None
    if what == "done":
        return rehearsal.transaction.complete(60) if state in PREPARED_STATES else None
    return rehearsal.end(what.startswith("commit"), epoch, producer_id, raises=what.endswith("5"))
