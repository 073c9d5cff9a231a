"""TransactionsActor: all transactional ids, their records, their deadlines, and the markers that end a transaction.

Like groups, it decides, appends, then applies. A transaction ends with two records and a marker per partition: the
decision (PrepareCommit) is durable before the client gets the response, and the markers are durable before
CompleteCommit is. Steps that are lost in between are repeated when the partition is loaded again.

Offsets of a transaction pass through this actor to their group, because it has to check that the transaction is open.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, get_args

from ..base import DEFERRED, ResilientActor
from ..engine_ports import ReplyTo
from ..error_reply import error_reply
from ..errors import ErrorCode
from ..group.contexts import deliver_reply
from ..messages import ContinueWork, Shutdown, TxnOffsetCommit, Written
from ..records import TransactionValue
from ..timer.messages import Expired
from .environment import Then, TransactionEnvironment
from .messages import (
    AddOffsets,
    AddPartitions,
    CommitDone,
    EndTransaction,
    InitProducerId,
    ProducerIdAssigned,
    VerifyPartitions,
    WriteMarker,
)
from .ownership import OwnershipMessage, TransactionOwnership
from .rules import EMPTY, NO_EPOCH, PREPARED_STATES, Decision, Transaction
from .steps import Steps
from .table import TransactionTable
from .timeouts import EXPIRATION_SCAN


class TransactionsActor(ResilientActor):
    """Handles all transactional ids. Only this actor changes ``table``; request handlers read it."""

    may_pause = True
    handlers = {
        TxnOffsetCommit: "commit_offsets",
        CommitDone: "handle_commit_done",
        AddPartitions: "add",
        AddOffsets: "add",
        VerifyPartitions: "verify_partitions",
        EndTransaction: "end_transaction",
        InitProducerId: "init_producer_id",
        WriteMarker: "write_marker",
        Written: "handle_written",
        Expired: "handle_expired",
        **dict.fromkeys(get_args(OwnershipMessage), "handle_ownership"),
        ContinueWork: "continue_work",
        Shutdown: "shut_down",
    }

    def __init__(self, environment: TransactionEnvironment, table: TransactionTable) -> None:
        super().__init__()
        self._environment = environment
        self._table = table
        self._steps = Steps(environment, self._actor_ref, table, self.tell_self_after_turn)
        self._ownership = TransactionOwnership(environment, table, self._steps)

    # Requests --------------------------------------------------------------------------------------------------------

    def init_producer_id(self, request: InitProducerId) -> object:
        environment, name = self._environment, request.transactional_id
        error = self._table.error_for(name)
        if error is not ErrorCode.NONE:
            return ProducerIdAssigned(error)
        if not 0 < request.timeout_ms <= environment.settings.transaction_max_timeout_ms:
            return ProducerIdAssigned(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        transaction = self._table.get(name)
        if transaction is None:
            if limit := environment.limit_reached(len(self._table)):
                return ProducerIdAssigned(ErrorCode.COORDINATOR_NOT_AVAILABLE, limit=limit)
            transaction = self._table.add(name, new_value(environment, request.timeout_ms))
        decision = transaction.init(request, environment.clock.wall_ms(), environment.topics.new_producer_id)
        return self._append_step(transaction, decision, partial(reply_to_init, transaction), ProducerIdAssigned)

    def add(self, request: AddPartitions | AddOffsets) -> object:
        transaction = self._table.find(request.transactional_id)
        if isinstance(transaction, ErrorCode):
            return transaction
        if isinstance(request, AddPartitions):
            partitions, client_version = request.partitions, request.client_version
        else:
            partitions, client_version = self._environment.offsets_partition_of(request.group_id), 0
        now_ms = self._environment.clock.wall_ms()
        decision = transaction.add(request.producer_id, request.producer_epoch, partitions, now_ms, client_version)
        return self._append_step(transaction, decision, deliver_reply, ErrorCode)

    def verify_partitions(self, request: VerifyPartitions) -> tuple[ErrorCode, ...]:
        transaction = self._table.find(request.transactional_id)
        if isinstance(transaction, ErrorCode):
            return (transaction,) * len(request.partitions)
        producer = request.producer_id, request.producer_epoch
        return tuple(transaction.verify_partition(*producer, partition) for partition in request.partitions)

    def end_transaction(self, request: EndTransaction) -> object:
        transaction = self._table.find(request.transactional_id)
        if isinstance(transaction, ErrorCode):
            return ProducerIdAssigned(transaction)
        environment = self._environment
        decision = transaction.end(request, environment.clock.wall_ms(), environment.topics.new_producer_id)
        if decision is ErrorCode.NONE:
            return producer_of(transaction)
        return self._append_step(transaction, decision, partial(reply_to_end, transaction), ProducerIdAssigned)

    def commit_offsets(self, request: TxnOffsetCommit) -> object:
        """Pass offsets on to the group if the transaction is open."""
        if not request.group_id:
            return error_reply(request, ErrorCode.INVALID_GROUP_ID)
        environment = self._environment
        if environment.peers is not None:
            error = environment.directory.partitions.of(request.group_id).answers.request
            if error is not ErrorCode.NONE:
                return error_reply(request, error)
        transaction = self._table.find(request.transactional_id)
        if transaction is ErrorCode.NOT_COORDINATOR and environment.peers is not None:
            return self._steps.commits.commit_elsewhere(request, self.reply_to)
        if isinstance(transaction, ErrorCode):
            return error_reply(request, transaction)
        return self._steps.commits.commit(transaction, request, self.reply_to)

    def handle_commit_done(self, message: CommitDone) -> None:
        if self._steps.commits.count_done(message):
            self._steps.completion.handle_commits_done(message.transactional_id)
            self._steps.received.handle_commits_done((message.producer_id, message.partition))

    # From and for other nodes ----------------------------------------------------------------------------------------

    def write_marker(self, request: WriteMarker) -> object:
        return self._steps.received.write(request, self.reply_to)

    def shut_down(self, _message: Shutdown) -> None:
        """Nothing to do: the reply tells the sender that all earlier requests were decided or passed on."""

    # From the writer, the timer and the owner of partitions ----------------------------------------------------------

    def handle_written(self, message: Written) -> None:
        message.context(message.outcome.error)

    def handle_expired(self, message: Expired) -> None:
        for name in message.names:
            if name == EXPIRATION_SCAN:
                self._steps.expiration.start()
            elif isinstance(name, tuple):
                self._steps.completion.retry(name[1])
            else:
                self._steps.timeouts.check(str(name))

    def continue_work(self, message: ContinueWork) -> None:
        message.run()

    def handle_ownership(self, message: OwnershipMessage) -> object:
        """A partition was gained, loaded, lost, or has failed; or all are loaded."""
        return self._ownership.handle(message)

    # Implementation --------------------------------------------------------------------------------------------------

    def _append_step(
        self,
        transaction: Transaction,
        decision: Decision,
        then: Callable[[ReplyTo, ErrorCode], None],
        refuse: Callable[[ErrorCode], Any],
    ) -> object:
        if isinstance(decision, ErrorCode):
            return refuse(decision)
        assert self.reply_to is not None, "requests have a reply_to"
        answer: Then = partial(then, self.reply_to)
        self._steps.append(transaction, decision, answer)
        return DEFERRED


def new_value(environment: TransactionEnvironment, timeout_ms: int) -> TransactionValue:
    """The value of a new transactional id."""
    producer_id, now_ms = environment.topics.new_producer_id(), environment.clock.wall_ms()
    return TransactionValue(producer_id, NO_EPOCH, timeout_ms, EMPTY, last_update_timestamp_ms=now_ms)


def reply_to_init(transaction: Transaction, reply: ReplyTo, error: ErrorCode) -> None:
    """If a transaction of an older producer is being aborted first, the client has to retry."""
    if error is ErrorCode.NONE and transaction.state in PREPARED_STATES:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    deliver_reply(reply, ProducerIdAssigned(error) if error else producer_of(transaction))


def reply_to_end(transaction: Transaction, reply: ReplyTo, error: ErrorCode) -> None:
    """The decision is durable, so the result is final. The markers follow."""
    deliver_reply(reply, ProducerIdAssigned(error) if error else producer_of(transaction))


def producer_of(transaction: Transaction) -> ProducerIdAssigned:
    """Id and epoch of the producer; while a transaction is being completed, those after the completion."""
    value = transaction.value if transaction.step is None else transaction.step.value
    return ProducerIdAssigned(ErrorCode.NONE, value.producer_id, value.producer_epoch)
