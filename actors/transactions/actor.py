"""TransactionsActor: all transactional ids, their records, their deadlines, and the markers that end a transaction.

Like groups, it decides, appends, then applies. A transaction ends with two records and a marker per partition: the
decision (PrepareCommit) is durable before the client gets the response, and the markers are durable before
CompleteCommit is. Steps that are lost in between are repeated at the next start.

Offsets of a transaction pass through this actor to their group, because it has to check that the transaction is open.
No marker is written while such a commit is in flight: behind the marker in the log it would stay pending forever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Mapping, Set
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import pykka

from ..base import DEFERRED, ActorRef, ResilientActor
from ..coordinator.actor import Directory
from ..engine_ports import Clock, ReplyTo
from ..error_reply import error_reply
from ..errors import CoordinatorError, ErrorCode
from ..group.contexts import APPEND_ERRORS, deliver_reply
from ..javahash import offsets_partition
from ..messages import Append, Shutdown, TxnOffsetCommit, Written
from ..ports import Entry, TransactionSettings, TransactionTopics
from ..records import MarkerRecord, TransactionRecord, TransactionValue
from ..timer.messages import Expired, Schedule
from .messages import (
    AddOffsets,
    AddPartitions,
    CommitDone,
    EndTransaction,
    InitProducerId,
    Partitions,
    ProducerIdAssigned,
    TransactionsLoaded,
    VerifyPartitions,
)
from .rules import (
    EMPTY,
    NEW_PROTOCOL,
    NO_EPOCH,
    PREPARE_COMMIT,
    PREPARED_STATES,
    Decision,
    Transaction,
    TransactionStep,
)

log = logging.getLogger("callboard.actors")

OFFSETS_TOPIC = "__consumer_offsets"

EXPIRATION_SCAN = ("expiration scan",)
"""The name of the deadline of the scan for expired transactional ids. Timeouts are named by their transactional id."""

COMPLETE = "complete"
"""With a transactional id: the name of the deadline for the next attempt to complete a decided transaction."""

RETRY_MS = 1000
"""Delay before a timed-out transaction with a step in flight is checked again, and before the first new attempt to
complete a transaction."""

RETRY_MAX_MS = 60_000
"""Maximum delay between attempts to complete a transaction. It doubles after each attempt; the disk may be full."""

Then = Callable[[ErrorCode], None]


class TransactionEnvironment(NamedTuple):
    """Dependencies of TransactionsActor. Partitions of transactions are numbered after those of offsets."""

    settings: TransactionSettings
    clock: Clock
    timer: ActorRef
    writer: ActorRef
    directory: Directory
    topics: TransactionTopics
    offsets_partitions: int
    transactions_partitions: int


class CommitReply:
    """``ReplyTo`` for offsets that are passed on to a group. It passes the reply on and notifies TransactionsActor."""

    __slots__ = ("_ref", "_reply", "_transactional_id")

    def __init__(self, reply: ReplyTo, ref: ActorRef, transactional_id: str) -> None:
        self._reply = reply
        self._ref = ref
        self._transactional_id = transactional_id

    def set(self, value: Any = None) -> None:
        self._ref.tell(CommitDone(self._transactional_id))
        self._reply.set(value)

    def set_exception(self, exc_info: Any = None) -> None:
        self._ref.tell(CommitDone(self._transactional_id))
        self._reply.set_exception(exc_info)


class TransactionsActor(ResilientActor):
    """Handles all transactional ids. Only this actor changes ``transactions``; request handlers read it.

    ``pending``: by producer id the groups with offsets of an open transaction at the end of the log. ``is_loading``:
    both follow in ``TransactionsLoaded``; until then requests get COORDINATOR_LOAD_IN_PROGRESS.
    """

    handlers = {
        TxnOffsetCommit: "commit_offsets",
        CommitDone: "handle_commit_done",
        AddPartitions: "add_partitions",
        AddOffsets: "add_offsets",
        VerifyPartitions: "verify_partitions",
        EndTransaction: "end_transaction",
        InitProducerId: "init_producer_id",
        Written: "handle_written",
        Expired: "handle_expired",
        TransactionsLoaded: "handle_loaded",
        Shutdown: "shut_down",
    }

    def __init__(
        self,
        environment: TransactionEnvironment,
        transactions: dict[str, Transaction],
        pending: Mapping[int, Set[str]],
        is_loading: bool = False,
    ) -> None:
        super().__init__()
        self._is_loading = is_loading
        self._environment = environment
        self._transactions = transactions
        self._groups = {producer_id: set(groups) for producer_id, groups in pending.items()}
        self._scheduled: set[str] = set()  # transactional ids with a deadline at the timer

    def on_start(self) -> None:
        """Resume after loading: schedule timeouts of open transactions, write markers of decided ones."""
        if self._is_loading:
            return
        for transaction in self._transactions.values():
            if transaction.state in PREPARED_STATES:
                self._complete(transaction)
            self._schedule_timeout(transaction)
        self._schedule(
            EXPIRATION_SCAN, self._environment.settings.transaction_remove_expired_transaction_cleanup_interval_ms
        )

    def handle_loaded(self, message: TransactionsLoaded) -> None:
        self._transactions.update((name, Transaction(name, value)) for name, value in message.values.items())
        self._groups = {producer_id: set(groups) for producer_id, groups in message.pending.items()}
        self._is_loading = False
        self.on_start()

    # Requests --------------------------------------------------------------------------------------------------------

    def init_producer_id(self, request: InitProducerId) -> object:
        environment = self._environment
        if self._is_loading:
            return ProducerIdAssigned(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if not 0 < request.timeout_ms <= environment.settings.transaction_max_timeout_ms:
            return ProducerIdAssigned(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        transaction = self._transactions.get(request.transactional_id)
        if transaction is None:
            transaction = self._new_transaction(request.transactional_id, request.timeout_ms)
        decision = transaction.init(request, environment.clock.wall_ms(), environment.topics.new_producer_id)
        return self._append_step(
            transaction, decision, partial(self._reply_to_init, transaction, self._reply()), ProducerIdAssigned
        )

    def add_partitions(self, request: AddPartitions) -> object:
        return self._add(request, request.partitions, request.client_version)

    def add_offsets(self, request: AddOffsets) -> object:
        return self._add(request, self._offsets_partition_of(request.group_id), 0)

    def _add(self, request: AddPartitions | AddOffsets, partitions: Partitions, client_version: int) -> object:
        transaction = self._find(request.transactional_id)
        if isinstance(transaction, ErrorCode):
            return transaction
        now_ms = self._environment.clock.wall_ms()
        decision = transaction.add(request.producer_id, request.producer_epoch, partitions, now_ms, client_version)
        return self._append_step(transaction, decision, partial(deliver_reply, self._reply()), ErrorCode)

    def verify_partitions(self, request: VerifyPartitions) -> tuple[ErrorCode, ...]:
        transaction = self._find(request.transactional_id)
        if isinstance(transaction, ErrorCode):
            return (transaction,) * len(request.partitions)
        producer = request.producer_id, request.producer_epoch
        return tuple(transaction.verify_partition(*producer, partition) for partition in request.partitions)

    def end_transaction(self, request: EndTransaction) -> object:
        transaction = self._find(request.transactional_id)
        if isinstance(transaction, ErrorCode):
            return ProducerIdAssigned(transaction)
        environment = self._environment
        decision = transaction.end(request, environment.clock.wall_ms(), environment.topics.new_producer_id)
        if decision is ErrorCode.NONE:
            return producer_of(transaction)
        return self._append_step(
            transaction, decision, partial(self._reply_to_end, transaction, self._reply()), ProducerIdAssigned
        )

    def commit_offsets(self, request: TxnOffsetCommit) -> object:
        """Pass offsets on to the group if the transaction is open. Source: Kafka's AddPartitionsToTxnManager."""
        transaction = self._find(request.transactional_id)
        if not request.group_id:
            return error_reply(request, ErrorCode.INVALID_GROUP_ID)
        if isinstance(transaction, ErrorCode):
            return error_reply(request, transaction)
        decision = self._admit(transaction, request)
        if isinstance(decision, TransactionStep):
            self._append(transaction, decision, partial(self._finish_adding, transaction, request, self._reply()))
            return DEFERRED
        if decision is not ErrorCode.NONE:
            return error_reply(request, commit_error_code(request, decision))
        self._pass_on(transaction, request, self._reply())
        return DEFERRED

    def _admit(self, transaction: Transaction, request: TxnOffsetCommit) -> Decision:
        partitions = self._offsets_partition_of(request.group_id)
        producer = request.producer_id, request.producer_epoch
        if request.adds_partition_to_transaction:
            return transaction.add(*producer, partitions, self._environment.clock.wall_ms(), NEW_PROTOCOL)
        [partition] = partitions
        return transaction.verify_partition(*producer, partition)

    def _finish_adding(
        self, transaction: Transaction, request: TxnOffsetCommit, reply: ReplyTo, error: ErrorCode
    ) -> None:
        if error is ErrorCode.NONE:
            self._pass_on(transaction, request, reply)
        else:
            deliver_reply(reply, error_reply(request, error))

    def _pass_on(self, transaction: Transaction, request: TxnOffsetCommit, reply: ReplyTo) -> None:
        transaction.commits_in_flight += 1
        self._groups.setdefault(request.producer_id, set()).add(request.group_id)
        self._environment.directory.post(request, CommitReply(reply, self._actor_ref, transaction.transactional_id))

    def handle_commit_done(self, message: CommitDone) -> None:
        transaction = self._transactions[message.transactional_id]
        transaction.commits_in_flight -= 1
        if transaction.state in PREPARED_STATES and not transaction.commits_in_flight:
            self._write_markers(transaction)

    def shut_down(self, _message: Shutdown) -> None:
        """Nothing to do: the reply tells the sender that all earlier requests were decided or passed on."""

    # Steps -----------------------------------------------------------------------------------------------------------

    def _append_step(
        self, transaction: Transaction, decision: Decision, then: Then, refuse: Callable[..., Any]
    ) -> object:
        if isinstance(decision, ErrorCode):
            return refuse(decision)
        self._append(transaction, decision, then)
        return DEFERRED

    def _append(self, transaction: Transaction, step: TransactionStep, then: Then) -> None:
        """Append a step. ``then`` is called with the outcome after the step has taken effect or failed."""
        transaction.step = step
        self._write(transaction, step.value, partial(self._handle_step_written, transaction, then))

    def _write(self, transaction: Transaction, value: TransactionValue | None, context: Then) -> None:
        name, environment = transaction.transactional_id, self._environment
        partition = environment.offsets_partitions + offsets_partition(name, environment.transactions_partitions)
        environment.writer.tell(Append(self._actor_ref, Entry(partition, (TransactionRecord(name, value),)), context))

    def handle_written(self, message: Written) -> None:
        message.context(message.outcome.error)

    def _handle_step_written(self, transaction: Transaction, then: Then, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            transaction.apply_step()
        else:
            log.warning(
                "a record of transactional id %r could not be written: %s", transaction.transactional_id, error.name
            )
            transaction.step = None
        if transaction.state in PREPARED_STATES and error is ErrorCode.NONE:
            self._complete(transaction)
        self._schedule_timeout(transaction)
        then(APPEND_ERRORS.get(error, error))

    # Replies ---------------------------------------------------------------------------------------------------------

    def _reply_to_init(self, transaction: Transaction, reply: ReplyTo, error: ErrorCode) -> None:
        """If a transaction of an older producer is being aborted first, the client has to retry."""
        if error is ErrorCode.NONE and transaction.state in PREPARED_STATES:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        deliver_reply(reply, ProducerIdAssigned(error) if error else producer_of(transaction))

    def _reply_to_end(self, transaction: Transaction, reply: ReplyTo, error: ErrorCode) -> None:
        """The decision is durable, so the result is final. The markers follow."""
        deliver_reply(reply, ProducerIdAssigned(error) if error else producer_of(transaction))

    # Markers ---------------------------------------------------------------------------------------------------------

    def _complete(self, transaction: Transaction) -> None:
        """Complete a decided transaction. Other requests have to wait until the markers are durable."""
        transaction.step = transaction.complete(self._environment.clock.wall_ms())
        if not transaction.commits_in_flight:
            self._write_markers(transaction)

    def _write_markers(self, transaction: Transaction) -> None:
        value, marker = transaction.value, marker_of(transaction)
        offsets_partitions = [partition for topic, partition in value.partitions if topic == OFFSETS_TOPIC]
        for topic, partition in value.partitions:
            if topic != OFFSETS_TOPIC:
                self._environment.topics.end_transaction(topic, partition, marker, value.last_update_timestamp_ms)
        self._append_markers(transaction, offsets_partitions)

    def _append_markers(self, transaction: Transaction, partitions: Collection[int]) -> None:
        marker = marker_of(transaction)
        transaction.markers_missing, transaction.markers_failed = len(partitions), {}
        for partition in partitions:
            context = partial(self._handle_marker_written, transaction, partition)
            self._environment.writer.tell(Append(self._actor_ref, Entry(partition, (marker,)), context))
        if not partitions:
            self._finish(transaction)

    def _handle_marker_written(self, transaction: Transaction, partition: int, error: ErrorCode) -> None:
        transaction.markers_missing -= 1
        if error is not ErrorCode.NONE:
            transaction.markers_failed[partition] = error
        if transaction.markers_missing:
            return
        if transaction.markers_failed:
            self._schedule_completion(transaction, "a marker", next(iter(transaction.markers_failed.values())))
        else:
            self._send_marker_to_groups(marker_of(transaction))
            self._finish(transaction)

    def _schedule_completion(self, transaction: Transaction, missing: str, error: ErrorCode) -> None:
        """Schedule another attempt. It is repeated until it succeeds, because the decision is durable."""
        delay_ms = min(RETRY_MS << transaction.attempts, RETRY_MAX_MS)
        transaction.attempts += 1
        name = transaction.transactional_id
        log.error("the transaction of %r is decided, but %s could not be written (%s)", name, missing, error.name)
        self._schedule((COMPLETE, name), delay_ms)

    def _retry_completion(self, transaction: Transaction) -> None:
        """Append only what is missing: the failed markers, or, if all markers are durable, the completion record."""
        if transaction.step is None:
            transaction.step = transaction.complete(self._environment.clock.wall_ms())
        self._append_markers(transaction, transaction.markers_failed)

    def _send_marker_to_groups(self, marker: MarkerRecord) -> None:
        for group_id in self._groups.pop(marker.producer_id, ()):
            ref = self._environment.directory.groups.get(group_id)
            if ref is not None:
                with suppress(pykka.ActorDeadError):  # the group was deleted, with its pending offsets
                    ref.tell(marker)

    def _finish(self, transaction: Transaction) -> None:
        assert transaction.step is not None
        self._append(transaction, transaction.step, partial(self._handle_completion_written, transaction))

    def _handle_completion_written(self, transaction: Transaction, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            transaction.attempts = 0
        else:
            self._schedule_completion(transaction, "the completion record", error)

    # Time ------------------------------------------------------------------------------------------------------------

    def handle_expired(self, message: Expired) -> None:
        for name in message.names:
            if name == EXPIRATION_SCAN:
                self._expire_unused()
                continue
            if isinstance(name, tuple):
                self._retry_completion(self._transactions[name[1]])
                continue
            self._scheduled.discard(str(name))
            transaction = self._transactions.get(str(name))
            if transaction is not None:
                self._check_timeout(transaction)

    def _schedule_timeout(self, transaction: Transaction) -> None:
        """Schedule the timeout. A deadline of an earlier transaction is reused; it is scheduled again when it fires."""
        due_ms, name = transaction.due_ms(), transaction.transactional_id
        if due_ms is not None and name not in self._scheduled:
            self._scheduled.add(name)
            self._schedule(name, due_ms - self._environment.clock.wall_ms())

    def _schedule(self, name: Hashable, delay_ms: int) -> None:
        due_ms = self._environment.clock.monotonic_ms() + max(delay_ms, 0) + 1
        self._environment.timer.tell(Schedule(self._actor_ref, name, due_ms))

    def _check_timeout(self, transaction: Transaction) -> None:
        """Abort the transaction if it has timed out, otherwise schedule the remaining time."""
        due_ms, now_ms = transaction.due_ms(), self._environment.clock.wall_ms()
        if due_ms is None or now_ms <= due_ms:
            self._schedule_timeout(transaction)
        elif transaction.step is not None or not self._abort(transaction, now_ms):
            self._scheduled.add(transaction.transactional_id)
            self._schedule(transaction.transactional_id, RETRY_MS)

    def _abort(self, transaction: Transaction, now_ms: int) -> bool:
        name, timeout_ms = transaction.transactional_id, transaction.value.timeout_ms
        try:
            step = transaction.abort(now_ms, self._environment.topics.new_producer_id)
        except CoordinatorError as error:
            log.warning("the transaction of %r has timed out but cannot be aborted yet: %s", name, error)
            return False
        log.info("the transaction of %r is aborted: it was open for more than %d ms", name, timeout_ms)
        self._append(transaction, step, ignore_outcome)
        return True

    def _expire_unused(self) -> None:
        """Delete transactional ids that were not used for a long time, as in Kafka."""
        settings, now_ms = self._environment.settings, self._environment.clock.wall_ms()
        expiration_ms = settings.transactional_id_expiration_ms
        for transaction in self._transactions.values():
            if transaction.is_expired(now_ms, expiration_ms):
                transaction.step = transaction.expire()
                self._write(transaction, None, partial(self._handle_tombstone_written, transaction))
        self._schedule(EXPIRATION_SCAN, settings.transaction_remove_expired_transaction_cleanup_interval_ms)

    def _handle_tombstone_written(self, transaction: Transaction, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            del self._transactions[transaction.transactional_id]
        transaction.step = None

    # Helpers ---------------------------------------------------------------------------------------------------------

    def _find(self, transactional_id: str) -> Transaction | ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        if self._is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return self._transactions.get(transactional_id, ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    def _new_transaction(self, transactional_id: str, timeout_ms: int) -> Transaction:
        producer_id, now_ms = self._environment.topics.new_producer_id(), self._environment.clock.wall_ms()
        value = TransactionValue(producer_id, NO_EPOCH, timeout_ms, EMPTY, last_update_timestamp_ms=now_ms)
        transaction = self._transactions[transactional_id] = Transaction(transactional_id, value)
        return transaction

    def _offsets_partition_of(self, group_id: str) -> Partitions:
        return frozenset({(OFFSETS_TOPIC, offsets_partition(group_id, self._environment.offsets_partitions))})

    def _reply(self) -> ReplyTo:
        assert self.reply_to is not None, "requests have a reply_to"
        return self.reply_to


def marker_of(transaction: Transaction) -> MarkerRecord:
    """The marker of a transaction that is being completed."""
    value = transaction.value
    return MarkerRecord(value.producer_id, value.producer_epoch, transaction.state is PREPARE_COMMIT)


def producer_of(transaction: Transaction) -> ProducerIdAssigned:
    """Id and epoch of the producer; while a transaction is being completed, those after the completion."""
    value = transaction.value if transaction.step is None else transaction.step.value
    return ProducerIdAssigned(ErrorCode.NONE, value.producer_id, value.producer_epoch)


def commit_error_code(request: TxnOffsetCommit, error: ErrorCode) -> ErrorCode:
    """The error code of a commit that its transaction refuses (Kafka's mapping)."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not request.supports_transaction_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error


def ignore_outcome(_error: ErrorCode) -> None:
    """For steps of the coordinator itself: no request waits for them."""
