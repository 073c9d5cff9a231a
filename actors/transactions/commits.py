"""Offsets of a transaction, which pass through TransactionsActor to their group."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..base import DEFERRED, ActorRef
from ..engine_ports import ReplyTo
from ..error_reply import error_reply
from ..errors import ErrorCode
from ..group.contexts import deliver_reply
from ..messages import TxnOffsetCommit
from .environment import Then, TransactionEnvironment
from .messages import CommitDone
from .rules import NEW_PROTOCOL, Decision, Transaction, TransactionStep


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


class TransactionalCommits:
    """Checks that the transaction is open, passes its offsets on to their group, and counts those in flight.

    ``groups``: by producer id the groups with offsets of an open transaction. No marker is written while offsets of its
    transaction are in flight: behind the marker in the log they would stay pending forever. The counts outlive the
    unloading of a partition, so that this holds when it is loaded again.
    """

    def __init__(
        self,
        environment: TransactionEnvironment,
        owner: ActorRef,
        append: Callable[[Transaction, TransactionStep, Then], None],
    ) -> None:
        self._environment = environment
        self._owner = owner
        self._append = append
        self._in_flight: dict[str, int] = {}  # by transactional id
        self.groups: dict[int, set[str]] = {}

    def are_in_flight(self, transactional_id: str) -> bool:
        return transactional_id in self._in_flight

    def commit(self, transaction: Transaction, request: TxnOffsetCommit, reply: ReplyTo | None) -> object:
        """Pass offsets on to the group if the transaction is open. Source: Kafka's AddPartitionsToTxnManager."""
        assert reply is not None, "requests have a reply"
        decision = self._admit(transaction, request)
        if isinstance(decision, TransactionStep):
            self._append(transaction, decision, partial(self._finish_adding, request, reply))
            return DEFERRED
        if decision is not ErrorCode.NONE:
            return error_reply(request, commit_error_code(request, decision))
        self._pass_on(request, reply)
        return DEFERRED

    def _admit(self, transaction: Transaction, request: TxnOffsetCommit) -> Decision:
        partitions = self._environment.offsets_partition_of(request.group_id)
        producer = request.producer_id, request.producer_epoch
        if request.adds_partition_to_transaction:
            return transaction.add(*producer, partitions, self._environment.clock.wall_ms(), NEW_PROTOCOL)
        [partition] = partitions
        return transaction.verify_partition(*producer, partition)

    def _finish_adding(self, request: TxnOffsetCommit, reply: ReplyTo, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            self._pass_on(request, reply)
        else:
            deliver_reply(reply, error_reply(request, error))

    def _pass_on(self, request: TxnOffsetCommit, reply: ReplyTo) -> None:
        name = request.transactional_id
        self._in_flight[name] = self._in_flight.get(name, 0) + 1
        self.groups.setdefault(request.producer_id, set()).add(request.group_id)
        self._environment.directory.post(request, CommitReply(reply, self._owner, name))

    def count_done(self, transactional_id: str) -> bool:
        """A group has replied. True if no more offsets of this transactional id are in flight."""
        count = self._in_flight.pop(transactional_id) - 1
        if count:
            self._in_flight[transactional_id] = count
        return not count


def commit_error_code(request: TxnOffsetCommit, error: ErrorCode) -> ErrorCode:
    """The error code of a commit that its transaction refuses (Kafka's mapping)."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not request.supports_transaction_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error
