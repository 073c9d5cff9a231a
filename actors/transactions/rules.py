"""The rules of one transactional id, its producer and its transaction. Pure.

A decision is an error code or a ``TransactionStep``: a record that has to be durable before the state changes. While a
step is in flight, all other requests get CONCURRENT_TRANSACTIONS, and clients retry.

====================  ==================================================================================================
Empty                 a producer has its id; the first partition is added -> Ongoing
Ongoing               EndTxn -> PrepareCommit or PrepareAbort; a new producer or the timeout -> PrepareAbort
PrepareCommit         decided: markers are written to all partitions, then -> CompleteCommit
PrepareAbort          the same -> CompleteAbort
CompleteCommit        like Empty; stores the result of the last transaction, for a repeated EndTxn
CompleteAbort         the same
PrepareEpochFence     in Kafka the coordinator is about to abort; never in the log
Dead                  the id has expired; never in the log, where it is a tombstone
====================  ==================================================================================================

There are two protocols, which a client may mix. In the old one the epoch rises with each InitProducerId. In the new one
(KIP-890, "transaction version 2": EndTxn v5) it also rises with each end of a transaction, so that no late request of a
transaction can affect the next one. Aborts by the coordinator follow the new protocol, as in Kafka.

Source: Kafka's TransactionCoordinator and TransactionMetadata (4.3); KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from ..errors import ErrorCode, IllegalTransition
from ..records import TransactionValue
from .messages import EndTransaction, InitProducerId, Partitions

NewProducerId = Callable[[], int]
"""Returns a producer id that was never used before; raises CoordinatorError if none is available."""

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 2**15 - 1
NEW_PROTOCOL = 2
"""A value of ``TransactionValue.client_version``; the old protocol is 0."""


class TransactionState(IntEnum):
    """The values are those in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
DEAD, PREPARE_EPOCH_FENCE = TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE

INACTIVE_STATES = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
PREPARED_STATES = frozenset({PREPARE_COMMIT, PREPARE_ABORT})

ALLOWED_PREVIOUS_STATES: Mapping[TransactionState, frozenset[TransactionState]] = {
    EMPTY: INACTIVE_STATES,
    ONGOING: INACTIVE_STATES | {ONGOING},
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: INACTIVE_STATES | {ONGOING, PREPARE_EPOCH_FENCE},
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    DEAD: INACTIVE_STATES,
    PREPARE_EPOCH_FENCE: frozenset({ONGOING}),
}

COMMIT, ABORT = True, False
FIRST, RETRIED = False, True

NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE
CONCURRENT, FENCED = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED
PROCEED = None
"""Not an error: the transaction ends now."""

OLD_PROTOCOL_ENDS: Mapping[TransactionState, Mapping[bool, ErrorCode | None]] = {
    EMPTY: {COMMIT: INVALID, ABORT: INVALID},
    ONGOING: {COMMIT: PROCEED, ABORT: PROCEED},
    PREPARE_COMMIT: {COMMIT: CONCURRENT, ABORT: INVALID},
    PREPARE_ABORT: {COMMIT: INVALID, ABORT: CONCURRENT},
    COMPLETE_COMMIT: {COMMIT: NONE, ABORT: INVALID},
    COMPLETE_ABORT: {COMMIT: INVALID, ABORT: NONE},
}
"""Results of EndTxn in the old protocol, with the current producer id and epoch."""

COLUMNS = ((COMMIT, FIRST), (ABORT, FIRST), (COMMIT, RETRIED), (ABORT, RETRIED))

NEW_PROTOCOL_ENDS: Mapping[TransactionState, Mapping[tuple[bool, bool], ErrorCode | None]] = {
    state: dict(zip(COLUMNS, row, strict=True))
    for state, row in {
        EMPTY: (INVALID, PROCEED, FENCED, FENCED),
        ONGOING: (PROCEED, PROCEED, FENCED, FENCED),
        PREPARE_COMMIT: (FENCED, FENCED, CONCURRENT, INVALID),
        PREPARE_ABORT: (FENCED, FENCED, INVALID, CONCURRENT),
        COMPLETE_COMMIT: (INVALID, PROCEED, NONE, INVALID),
        COMPLETE_ABORT: (INVALID, PROCEED, INVALID, NONE),
    }.items()
}
"""Results of EndTxn in the new protocol. RETRIED: with the previous epoch, because the response was lost."""


class TransactionStep(NamedTuple):
    """A decision that takes effect when a record of ``value`` is durable."""

    value: TransactionValue
    last_epoch: int

    @property
    def state(self) -> TransactionState:
        return TransactionState(self.value.state)


Decision = ErrorCode | TransactionStep


class Transaction:
    """A transactional id. ``last_epoch``: the previous epoch of the producer; lost at a restart, as in Kafka."""

    __slots__ = (
        "attempts",
        "last_epoch",
        "markers_failed",
        "markers_missing",
        "step",
        "transactional_id",
        "value",
    )

    def __init__(self, transactional_id: str, value: TransactionValue) -> None:
        self.transactional_id = transactional_id
        self.value = value
        self.last_epoch = NO_EPOCH
        self.step: TransactionStep | None = None  # in flight
        self.markers_missing = 0
        self.markers_failed: dict[tuple[str, int], ErrorCode] = {}  # partitions whose marker could not be written
        self.attempts = 0  # failed attempts to complete the transaction

    @property
    def state(self) -> TransactionState:
        return TransactionState(self.value.state)

    @property
    def has_exhausted_epochs(self) -> bool:
        """Whether only the epoch that fences this producer is left."""
        return self.value.producer_epoch >= EPOCH_MAX - 1

    def apply_step(self) -> None:
        """Apply the step, whose record is durable."""
        assert self.step is not None
        self.value, self.last_epoch = self.step
        self.step = None

    def due_ms(self) -> int | None:
        """The wall-clock time after which the transaction is aborted; None if none is open."""
        return self.value.start_timestamp_ms + self.value.timeout_ms if self.state is ONGOING else None

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        return (
            self.step is None
            and self.state in INACTIVE_STATES
            and self.value.last_update_timestamp_ms <= now_ms - expiration_ms
        )

    # Decisions -------------------------------------------------------------------------------------------------------

    def init(self, request: InitProducerId, now_ms: int, new_id: NewProducerId) -> Decision:
        """Assign an epoch to a producer. The reply to a step to PrepareAbort is CONCURRENT_TRANSACTIONS.

        ``new_id`` is used if no epochs are left. A request with producer id and epoch recovers from an error (KIP-360):
        it gets the next epoch unless another producer has initialized meanwhile.
        """
        has_producer_id = request.producer_id != NO_PRODUCER_ID
        if self.step is not None:
            return CONCURRENT
        if has_producer_id and not self._may_recover(request):
            return FENCED
        if self.state in PREPARED_STATES:
            return CONCURRENT
        if self.state is ONGOING:
            return self.abort(now_ms, new_id)
        return self._next_epoch(request, now_ms, new_id, has_producer_id)

    def _may_recover(self, request: InitProducerId) -> bool:
        value = self.value
        retries_rotation = request.producer_id == value.previous_producer_id and request.producer_epoch >= EPOCH_MAX - 1
        return value.producer_epoch == NO_EPOCH or request.producer_id == value.producer_id or retries_rotation

    def _next_epoch(
        self, request: InitProducerId, now_ms: int, new_id: NewProducerId, has_producer_id: bool
    ) -> Decision:
        producer_id, epoch = self.value.producer_id, self.value.producer_epoch
        is_current = epoch == NO_EPOCH or request.producer_epoch == epoch
        last_epoch = epoch if has_producer_id else NO_EPOCH
        if self.has_exhausted_epochs and (is_current or not has_producer_id):
            producer_id, epoch = new_id(), 0
        elif is_current or not has_producer_id:
            epoch += 1
        elif request.producer_epoch == self.last_epoch:
            last_epoch = self.last_epoch  # the response was lost: repeat it
        else:
            return FENCED
        return self._transition_to(
            EMPTY,
            last_epoch,
            producer_id=producer_id,
            producer_epoch=epoch,
            timeout_ms=request.timeout_ms,
            partitions=frozenset(),
            start_timestamp_ms=-1,
            last_update_timestamp_ms=now_ms,
        )

    def add(self, producer_id: int, epoch: int, partitions: Partitions, now_ms: int, client_version: int) -> Decision:
        """Add partitions to the transaction; the first one begins it. NONE: they are part of it already."""
        if self.step is not None:
            return CONCURRENT
        error = self._check_producer(producer_id, epoch)
        if error is not NONE:
            return error
        is_open = self.state is ONGOING
        if is_open and partitions <= self.value.partitions:
            return NONE
        return self._transition_to(
            ONGOING,
            self.last_epoch,
            partitions=self.value.partitions | partitions,
            start_timestamp_ms=self.value.start_timestamp_ms if is_open else now_ms,
            last_update_timestamp_ms=now_ms,
            client_version=client_version,
        )

    def verify_partition(self, producer_id: int, epoch: int, partition: tuple[str, int]) -> ErrorCode:
        """Whether a partition is part of the transaction."""
        error = self._check_producer(producer_id, epoch)
        if error is NONE and partition not in self.value.partitions:
            return ErrorCode.TRANSACTION_ABORTABLE
        return error

    def _check_producer(self, producer_id: int, epoch: int) -> ErrorCode:
        if producer_id != self.value.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if epoch != self.value.producer_epoch or epoch == NO_EPOCH:
            return FENCED
        return CONCURRENT if self.state in PREPARED_STATES else NONE

    def end(self, request: EndTransaction, now_ms: int, new_id: NewProducerId) -> Decision:
        """End the transaction. NONE: it has ended already with this result. ``new_id``: used if no epochs are left."""
        result = self._new_protocol_end(request) if request.raises_epoch else self._old_protocol_end(request)
        if result is not PROCEED:
            return result
        state = PREPARE_COMMIT if request.committed else PREPARE_ABORT
        if request.raises_epoch:
            return self._prepare(state, now_ms, new_id)
        return self._transition_to(
            state, self.last_epoch, next_producer_id=NO_PRODUCER_ID, last_update_timestamp_ms=now_ms, client_version=0
        )

    def _old_protocol_end(self, request: EndTransaction) -> ErrorCode | None:
        if request.producer_id != self.value.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if request.producer_epoch != self.value.producer_epoch or request.producer_epoch == NO_EPOCH:
            return FENCED
        return CONCURRENT if self.step is not None else OLD_PROTOCOL_ENDS[self.state][request.committed]

    def _new_protocol_end(self, request: EndTransaction) -> ErrorCode | None:
        if self.step is not None:
            return CONCURRENT
        value, epoch = self.value, request.producer_epoch
        had_previous_id = (
            request.producer_id == value.previous_producer_id and epoch == EPOCH_MAX - 1 and value.producer_epoch == 0
        )
        if request.producer_id != value.producer_id and not had_previous_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        is_retried = value.producer_epoch == epoch + 1 or (had_previous_id and self.state in INACTIVE_STATES)
        if (not is_retried and epoch != value.producer_epoch) or epoch == NO_EPOCH:
            return FENCED
        return NEW_PROTOCOL_ENDS[self.state][request.committed, is_retried]

    def abort(self, now_ms: int, new_id: NewProducerId) -> TransactionStep:
        """The coordinator aborts an open transaction: it timed out, or a new producer has initialized."""
        return self._prepare(PREPARE_ABORT, now_ms, new_id)

    def _prepare(self, state: TransactionState, now_ms: int, new_id: NewProducerId) -> TransactionStep:
        value = self.value
        return self._transition_to(
            state,
            value.producer_epoch,
            producer_epoch=min(value.producer_epoch + 1, EPOCH_MAX),
            next_producer_id=new_id() if self.has_exhausted_epochs else NO_PRODUCER_ID,
            start_timestamp_ms=value.start_timestamp_ms if self.state is ONGOING else now_ms,
            last_update_timestamp_ms=now_ms,
            client_version=NEW_PROTOCOL,
        )

    def complete(self, now_ms: int) -> TransactionStep:
        """The step to take when all markers are durable."""
        value = self.value
        changes: dict[str, int] = {}
        if value.client_version >= NEW_PROTOCOL and value.next_producer_id != NO_PRODUCER_ID:
            changes = {"producer_id": value.next_producer_id, "producer_epoch": 0}
        return self._transition_to(
            COMPLETE_COMMIT if self.state is PREPARE_COMMIT else COMPLETE_ABORT,
            self.last_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            last_update_timestamp_ms=now_ms,
            **changes,
        )

    def expire(self) -> TransactionStep:
        """The step that deletes the transactional id."""
        return self._transition_to(DEAD, NO_EPOCH)

    def _transition_to(self, state: TransactionState, last_epoch: int, **changes: object) -> TransactionStep:
        if self.state not in ALLOWED_PREVIOUS_STATES[state]:
            raise IllegalTransition(f"{self.transactional_id!r}: transition from {self.state.name} to {state.name}")
        changed = self.value._replace(state=int(state), previous_producer_id=self.value.producer_id, **changes)  # type: ignore[arg-type]
        return TransactionStep(changed, last_epoch)
