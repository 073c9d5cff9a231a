"""TransactionsActor: all transactional ids, their records, their deadlines, and the markers that end a transaction.

Decide, append, apply, as groups do. What ends a transaction is two records and a marker for each of its partitions: the
decision (PrepareCommit) is durable before the client hears of it, the markers are durable before CompleteCommit is. So
whatever is lost in between is done again at the next start.

Offsets in a transaction pass here on their way to their group: here it is known whether the transaction is open. No
marker is written while such a commit is on its way, or it would be behind the marker in the log, and open for ever.
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
from ..group.in_flight import APPEND_ERRORS, deliver_reply
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

EXPIRATION_SCAN = ("sweep",)
"""The name of the deadline for looking for transactional ids that nobody uses; the others are transactional ids."""

COMPLETE = "complete"
"""With a transactional id the name of the deadline for another attempt to complete a transaction that is decided."""

RETRY_MS = 1000
"""A transaction whose time is over while something of it is on its way to the log is looked at again after so long, and
one that could not be completed, too."""

RETRY_MAX_MS = 60_000
"""After each attempt to complete a transaction the next is twice as far away, up to this: the disk may be full."""

Then = Callable[[ErrorCode], None]


class TransactionEnvironment(NamedTuple):
    """The environment of the transactions' actor. The log's partitions of transactions follow those of offsets."""

    settings: TransactionSettings
    clock: Clock
    timer: ActorRef
    writer: ActorRef
    directory: Directory
    topics: TransactionTopics
    offsets_partitions: int
    transactions_partitions: int


class CommitReply:
    """The place for a group's answer to offsets in a transaction: handed on, and the transactions hear of it."""

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
    """There is one, and it alone changes ``transactions``; the front door reads them.

    ``pending``: for each producer the groups in which a transaction was open when the log ended. ``is_loading``: both
    come later, in ``TransactionsLoaded``, and until then everybody is told to come again.
    """

    handlers = {
        TxnOffsetCommit: "commit_offsets",
        CommitDone: "commit_done",
        AddPartitions: "add_partitions",
        AddOffsets: "add_offsets",
        VerifyPartitions: "verify",
        EndTransaction: "end",
        InitProducerId: "init",
        Written: "written",
        Expired: "expired",
        TransactionsLoaded: "loaded",
        Shutdown: "shutdown",
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
        self._filed: set[str] = set()

    def on_start(self) -> None:
        """Go on where the log ends: open transactions have deadlines, decided ones need their markers."""
        if self._is_loading:
            return
        for transaction in self._transactions.values():
            if transaction.state in PREPARED_STATES:
                self._complete(transaction)
            self._watch(transaction)
        self._file(
            EXPIRATION_SCAN, self._environment.settings.transaction_remove_expired_transaction_cleanup_interval_ms
        )

    def loaded(self, message: TransactionsLoaded) -> None:
        self._transactions.update((name, Transaction(name, value)) for name, value in message.values.items())
        self._groups = {producer_id: set(groups) for producer_id, groups in message.pending.items()}
        self._is_loading = False
        self.on_start()

    # Requests --------------------------------------------------------------------------------------------------------

    def init(self, request: InitProducerId) -> object:
        environment = self._environment
        if self._is_loading:
            return ProducerIdAssigned(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if not 0 < request.timeout_ms <= environment.settings.transaction_max_timeout_ms:
            return ProducerIdAssigned(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        transaction = self._transactions.get(request.transactional_id)
        if transaction is None:
            transaction = self._make(request.transactional_id, request.timeout_ms)
        decided = transaction.init(request, environment.clock.wall_ms(), environment.topics.new_producer_id)
        return self._append_step(
            transaction, decided, partial(self._tell_producer, transaction, self._reply()), ProducerIdAssigned
        )

    def add_partitions(self, request: AddPartitions) -> object:
        return self._add(request, request.partitions, request.client_version)

    def add_offsets(self, request: AddOffsets) -> object:
        return self._add(request, self._place_of(request.group_id), 0)

    def _add(self, request: AddPartitions | AddOffsets, partitions: Partitions, client_version: int) -> object:
        transaction = self._find(request.transactional_id)
        if isinstance(transaction, ErrorCode):
            return transaction
        now_ms = self._environment.clock.wall_ms()
        decided = transaction.add(request.producer_id, request.producer_epoch, partitions, now_ms, client_version)
        return self._append_step(transaction, decided, partial(deliver_reply, self._reply()), ErrorCode)

    def verify(self, request: VerifyPartitions) -> tuple[ErrorCode, ...]:
        transaction = self._find(request.transactional_id)
        if isinstance(transaction, ErrorCode):
            return (transaction,) * len(request.partitions)
        producer = request.producer_id, request.producer_epoch
        return tuple(transaction.verify_partition(*producer, partition) for partition in request.partitions)

    def end(self, request: EndTransaction) -> object:
        transaction = self._find(request.transactional_id)
        if isinstance(transaction, ErrorCode):
            return ProducerIdAssigned(transaction)
        environment = self._environment
        decided = transaction.end(request, environment.clock.wall_ms(), environment.topics.new_producer_id)
        if decided is ErrorCode.NONE:
            return producer_of(transaction)
        return self._append_step(
            transaction, decided, partial(self._tell_end, transaction, self._reply()), ProducerIdAssigned
        )

    def commit_offsets(self, request: TxnOffsetCommit) -> object:
        """Only what belongs to an open transaction reaches the group. Source: Kafka's AddPartitionsToTxnManager."""
        transaction = self._find(request.transactional_id)
        if not request.group_id:
            return error_reply(request, ErrorCode.INVALID_GROUP_ID)
        if isinstance(transaction, ErrorCode):
            return error_reply(request, transaction)
        decided = self._admit(transaction, request)
        if isinstance(decided, TransactionStep):
            self._append(transaction, decided, partial(self._joined, transaction, request, self._reply()))
            return DEFERRED
        if decided is not ErrorCode.NONE:
            return error_reply(request, commit_error_code(request, decided))
        self._hand_on(transaction, request, self._reply())
        return DEFERRED

    def _admit(self, transaction: Transaction, request: TxnOffsetCommit) -> Decision:
        partitions = self._place_of(request.group_id)
        producer = request.producer_id, request.producer_epoch
        if request.adds_partition_to_transaction:
            return transaction.add(*producer, partitions, self._environment.clock.wall_ms(), NEW_PROTOCOL)
        [partition] = partitions
        return transaction.verify_partition(*producer, partition)

    def _joined(self, transaction: Transaction, request: TxnOffsetCommit, reply: ReplyTo, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            self._hand_on(transaction, request, reply)
        else:
            deliver_reply(reply, error_reply(request, error))

    def _hand_on(self, transaction: Transaction, request: TxnOffsetCommit, reply: ReplyTo) -> None:
        transaction.commits_in_flight += 1
        self._groups.setdefault(request.producer_id, set()).add(request.group_id)
        self._environment.directory.post(request, CommitReply(reply, self._actor_ref, transaction.transactional_id))

    def commit_done(self, message: CommitDone) -> None:
        transaction = self._transactions[message.transactional_id]
        transaction.commits_in_flight -= 1
        if transaction.state in PREPARED_STATES and not transaction.commits_in_flight:
            self._write_markers(transaction)

    def shutdown(self, _message: Shutdown) -> None:
        """Answered when all that came before has been handed on or decided."""

    # Steps -----------------------------------------------------------------------------------------------------------

    def _append_step(
        self, transaction: Transaction, decided: Decision, then: Then, refused: Callable[..., Any]
    ) -> object:
        if isinstance(decided, ErrorCode):
            return refused(decided)
        self._append(transaction, decided, then)
        return DEFERRED

    def _append(self, transaction: Transaction, step: TransactionStep, then: Then) -> None:
        """``then`` hears what became of the step, when it has taken effect."""
        transaction.step = step
        self._write(transaction, step.value, partial(self._stepped, transaction, then))

    def _write(self, transaction: Transaction, value: TransactionValue | None, context: Then) -> None:
        name, environment = transaction.transactional_id, self._environment
        partition = environment.offsets_partitions + offsets_partition(name, environment.transactions_partitions)
        environment.writer.tell(Append(self._actor_ref, Entry(partition, (TransactionRecord(name, value),)), context))

    def written(self, message: Written) -> None:
        message.context(message.outcome.error)

    def _stepped(self, transaction: Transaction, then: Then, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            transaction.apply_step()
        else:
            log.warning("transactional id %r could not take a step: %s", transaction.transactional_id, error.name)
            transaction.step = None
        if transaction.state in PREPARED_STATES and error is ErrorCode.NONE:
            self._complete(transaction)
        self._watch(transaction)
        then(APPEND_ERRORS.get(error, error))

    # Answers ---------------------------------------------------------------------------------------------------------

    def _tell_producer(self, transaction: Transaction, reply: ReplyTo, error: ErrorCode) -> None:
        """If it took the end of an older producer's transaction first, the client has to come again."""
        if error is ErrorCode.NONE and transaction.state in PREPARED_STATES:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        deliver_reply(reply, ProducerIdAssigned(error) if error else producer_of(transaction))

    def _tell_end(self, transaction: Transaction, reply: ReplyTo, error: ErrorCode) -> None:
        """The decision is durable, so the end is certain; the markers come later."""
        deliver_reply(reply, ProducerIdAssigned(error) if error else producer_of(transaction))

    # Markers ---------------------------------------------------------------------------------------------------------

    def _complete(self, transaction: Transaction) -> None:
        """It is decided. Nothing else happens to this transactional id until the markers are durable."""
        transaction.step = transaction.complete(self._environment.clock.wall_ms())
        if not transaction.commits_in_flight:
            self._write_markers(transaction)

    def _write_markers(self, transaction: Transaction) -> None:
        value, marker = transaction.value, marker_of(transaction)
        ours = [partition for topic, partition in value.partitions if topic == OFFSETS_TOPIC]
        for topic, partition in value.partitions:
            if topic != OFFSETS_TOPIC:
                self._environment.topics.end_transaction(topic, partition, marker, value.last_update_timestamp_ms)
        self._append_markers(transaction, ours)

    def _append_markers(self, transaction: Transaction, partitions: Collection[int]) -> None:
        marker = marker_of(transaction)
        transaction.markers_missing, transaction.markers_failed = len(partitions), {}
        for partition in partitions:
            context = partial(self._marked, transaction, partition)
            self._environment.writer.tell(Append(self._actor_ref, Entry(partition, (marker,)), context))
        if not partitions:
            self._finish(transaction)

    def _marked(self, transaction: Transaction, partition: int, error: ErrorCode) -> None:
        transaction.markers_missing -= 1
        if error is not ErrorCode.NONE:
            transaction.markers_failed[partition] = error
        if transaction.markers_missing:
            return
        if transaction.markers_failed:
            self._complete_later(transaction, "a marker", next(iter(transaction.markers_failed.values())))
        else:
            self._send_marker_to_groups(marker_of(transaction))
            self._finish(transaction)

    def _complete_later(self, transaction: Transaction, what: str, error: ErrorCode) -> None:
        """The decision stands, and nothing else can happen to this transactional id: try until it succeeds."""
        delay_ms = min(RETRY_MS << transaction.attempts, RETRY_MAX_MS)
        transaction.attempts += 1
        name = transaction.transactional_id
        log.error("the transaction of %r is decided, but %s could not be written (%s)", name, what, error.name)
        self._file((COMPLETE, name), delay_ms)

    def _complete_again(self, transaction: Transaction) -> None:
        """Only what is missing: the markers that failed, or, if all are there, the record that says so."""
        if transaction.step is None:
            transaction.step = transaction.complete(self._environment.clock.wall_ms())
        self._append_markers(transaction, transaction.markers_failed)

    def _send_marker_to_groups(self, marker: MarkerRecord) -> None:
        for group_id in self._groups.pop(marker.producer_id, ()):
            ref = self._environment.directory.groups.get(group_id)
            if ref is not None:
                with suppress(pykka.ActorDeadError):  # it was deleted, and its pending offsets with it
                    ref.tell(marker)

    def _finish(self, transaction: Transaction) -> None:
        assert transaction.step is not None
        self._append(transaction, transaction.step, partial(self._finished, transaction))

    def _finished(self, transaction: Transaction, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            transaction.attempts = 0
        else:
            self._complete_later(transaction, "its end", error)

    # Time ------------------------------------------------------------------------------------------------------------

    def expired(self, message: Expired) -> None:
        for name in message.names:
            if name == EXPIRATION_SCAN:
                self._sweep()
                continue
            if isinstance(name, tuple):
                self._complete_again(self._transactions[name[1]])
                continue
            self._filed.discard(str(name))
            transaction = self._transactions.get(str(name))
            if transaction is not None:
                self._look_at(transaction)

    def _watch(self, transaction: Transaction) -> None:
        """An alarm that was filed for an earlier transaction will do: when it rings the rest is filed."""
        due_ms, name = transaction.due_ms(), transaction.transactional_id
        if due_ms is not None and name not in self._filed:
            self._filed.add(name)
            self._file(name, due_ms - self._environment.clock.wall_ms())

    def _file(self, name: Hashable, delay_ms: int) -> None:
        due_ms = self._environment.clock.monotonic_ms() + max(delay_ms, 0) + 1
        self._environment.timer.tell(Schedule(self._actor_ref, name, due_ms))

    def _look_at(self, transaction: Transaction) -> None:
        """Its alarm has rung: abort the transaction if its time is over, else file the rest of it."""
        due_ms, now_ms = transaction.due_ms(), self._environment.clock.wall_ms()
        if due_ms is None or now_ms <= due_ms:
            self._watch(transaction)
        elif transaction.step is not None or not self._abort(transaction, now_ms):
            self._filed.add(transaction.transactional_id)
            self._file(transaction.transactional_id, RETRY_MS)

    def _abort(self, transaction: Transaction, now_ms: int) -> bool:
        name, timeout_ms = transaction.transactional_id, transaction.value.timeout_ms
        try:
            step = transaction.abort(now_ms, self._environment.topics.new_producer_id)
        except CoordinatorError as error:
            log.warning("the transaction of %r has timed out and cannot be aborted yet: %s", name, error)
            return False
        log.info("the transaction of %r is aborted: it is open for more than %d ms", name, timeout_ms)
        self._append(transaction, step, nobody_waits)
        return True

    def _sweep(self) -> None:
        """Transactional ids that nobody has used for long are forgotten, as in Kafka."""
        settings, now_ms = self._environment.settings, self._environment.clock.wall_ms()
        expiration_ms = settings.transactional_id_expiration_ms
        for transaction in self._transactions.values():
            if transaction.is_expired(now_ms, expiration_ms):
                transaction.step = transaction.expire()
                self._write(transaction, None, partial(self._buried, transaction))
        self._file(EXPIRATION_SCAN, settings.transaction_remove_expired_transaction_cleanup_interval_ms)

    def _buried(self, transaction: Transaction, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            del self._transactions[transaction.transactional_id]
        transaction.step = None

    # Who and where ---------------------------------------------------------------------------------------------------

    def _find(self, transactional_id: str) -> Transaction | ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        if self._is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return self._transactions.get(transactional_id, ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    def _make(self, transactional_id: str, timeout_ms: int) -> Transaction:
        producer_id, now_ms = self._environment.topics.new_producer_id(), self._environment.clock.wall_ms()
        value = TransactionValue(producer_id, NO_EPOCH, timeout_ms, EMPTY, last_update_timestamp_ms=now_ms)
        transaction = self._transactions[transactional_id] = Transaction(transactional_id, value)
        return transaction

    def _place_of(self, group_id: str) -> Partitions:
        return frozenset({(OFFSETS_TOPIC, offsets_partition(group_id, self._environment.offsets_partitions))})

    def _reply(self) -> ReplyTo:
        assert self.reply_to is not None, "requests come with a place for their answer"
        return self.reply_to


def marker_of(transaction: Transaction) -> MarkerRecord:
    """What says in a partition how the transaction has ended that is being completed."""
    value = transaction.value
    return MarkerRecord(value.producer_id, value.producer_epoch, transaction.state is PREPARE_COMMIT)


def producer_of(transaction: Transaction) -> ProducerIdAssigned:
    """Who the producer is; while a transaction is being completed, who it will be then."""
    value = transaction.value if transaction.step is None else transaction.step.value
    return ProducerIdAssigned(ErrorCode.NONE, value.producer_id, value.producer_epoch)


def commit_error_code(request: TxnOffsetCommit, error: ErrorCode) -> ErrorCode:
    """What a commit is answered when its transaction does not admit it (Kafka's mapping)."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not request.supports_transaction_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error


def nobody_waits(_error: ErrorCode) -> None:
    """What the coordinator does by itself is answered to nobody."""
