"""Offsets of a transaction, which pass through TransactionsActor to their group."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from ..base import DEFERRED, ActorRef
from ..engine_ports import ReplyTo
from ..error_reply import error_reply
from ..errors import ErrorCode
from ..group.contexts import deliver_reply
from ..messages import ContinueWork, TxnOffsetCommit
from .environment import OFFSETS_TOPIC, Then, TransactionEnvironment
from .messages import AddPartitions, CommitDone, VerifyPartitions
from .rules import NEW_PROTOCOL, Decision, Transaction, TransactionStep

ProducerPartition = tuple[int, int]
"""A producer id, and a partition of ``__consumer_offsets``."""

ELSEWHERE_ERRORS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""Errors of the coordinator on another node that would tell the client to look for another one of its group."""


class CommitReply:
    """``ReplyTo`` for offsets that are passed on to a group. It passes the reply on and notifies TransactionsActor."""

    __slots__ = ("_done", "_ref", "_reply")

    def __init__(self, reply: ReplyTo, ref: ActorRef, done: CommitDone) -> None:
        self._reply = reply
        self._ref = ref
        self._done = done

    def set(self, value: Any = None) -> None:
        self._ref.tell(self._done)
        self._reply.set(value)

    def set_exception(self, exc_info: Any = None) -> None:
        self._ref.tell(self._done)
        self._reply.set_exception(exc_info)


class PendingCheck:
    """Offsets that wait for the coordinator of their transaction on another node. ``epoch``: of their partition."""

    __slots__ = ("epoch", "key", "reply", "request")

    def __init__(self, request: TxnOffsetCommit, reply: ReplyTo, key: ProducerPartition, epoch: int) -> None:
        self.request = request
        self.reply = reply
        self.key = key
        self.epoch = epoch


class TransactionalCommits:
    """Checks that the transaction is open, passes its offsets on to their group, and counts those in flight.

    ``groups``: by producer id the groups with offsets of an open transaction. No marker is written while offsets of its
    transaction are in flight: behind the marker in the log they would stay pending forever. The counts outlive the
    unloading of a partition, so that this holds when it is loaded again. For the same reason a marker ends the checks
    that wait for another node (Kafka's verification guard): the answer may be older than the decision.
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
        self._in_flight: dict[ProducerPartition, int] = {}
        self._checks: dict[ProducerPartition, set[PendingCheck]] = {}
        self.groups: dict[int, set[str]] = {}

    def are_in_flight(self, transaction: Transaction) -> bool:
        if not self._in_flight:
            return False
        producer_id = transaction.value.producer_id
        return any(
            topic == OFFSETS_TOPIC and (producer_id, partition) in self._in_flight
            for topic, partition in transaction.value.partitions
        )

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
        directory = self._environment.directory
        key = request.producer_id, directory.partitions.number_of(request.group_id)
        self._in_flight[key] = self._in_flight.get(key, 0) + 1
        self.groups.setdefault(request.producer_id, set()).add(request.group_id)
        done = CommitDone(request.transactional_id, *key)
        directory.post(request, CommitReply(reply, self._owner, done))

    def count_done(self, done: CommitDone) -> bool:
        """A group has replied. True if no more offsets of this producer and partition are in flight."""
        key = done.producer_id, done.partition
        count = self._in_flight.pop(key) - 1
        if count:
            self._in_flight[key] = count
        return not count

    def has_in_flight(self, key: ProducerPartition) -> bool:
        return key in self._in_flight

    def take_groups(self, producer_id: int, partitions: Collection[int]) -> set[str]:
        """Remove and return the groups in these partitions with offsets of a producer's transaction."""
        groups = self.groups.pop(producer_id, set())
        number_of = self._environment.directory.partitions.number_of
        kept = {group_id for group_id in groups if number_of(group_id) not in partitions}
        if kept:
            self.groups[producer_id] = kept
        return groups - kept

    # The coordinator of the transaction is another node --------------------------------------------------------------

    def commit_elsewhere(self, request: TxnOffsetCommit, reply: ReplyTo | None) -> object:
        """Pass offsets on to the group when the other node has said that the transaction is open."""
        assert reply is not None, "requests have a reply"
        peers, partitions = self._environment.peers, self._environment.directory.partitions
        assert peers is not None, "only called in a cluster"
        number = partitions.number_of(request.group_id)
        check = PendingCheck(request, reply, (request.producer_id, number), partitions[number].epoch)
        self._checks.setdefault(check.key, set()).add(check)
        peers.check(check_request(request, (OFFSETS_TOPIC, number)), partial(self._tell_checked, check))
        return DEFERRED

    def _tell_checked(self, check: PendingCheck, error: ErrorCode) -> None:
        self._owner.tell(ContinueWork(partial(self._finish_check, check, error)))

    def _finish_check(self, check: PendingCheck, error: ErrorCode) -> None:
        checks, request = self._checks.get(check.key, set()), check.request
        is_current = check in checks
        checks.discard(check)
        if not checks:
            self._checks.pop(check.key, None)
        partition = self._environment.directory.partitions[check.key[1]]
        if error is not ErrorCode.NONE:
            error = commit_error_code(request, ELSEWHERE_ERRORS.get(error, error))
        elif not is_current or partition.epoch != check.epoch:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE  # the client asks again, and so does this node
        if error is ErrorCode.NONE:
            self._pass_on(request, check.reply)
        else:
            deliver_reply(check.reply, error_reply(request, error))

    def end_checks(self, key: ProducerPartition) -> None:
        """A marker of this producer is about to be appended to this partition."""
        self._checks.pop(key, None)


def check_request(request: TxnOffsetCommit, partition: tuple[str, int]) -> AddPartitions | VerifyPartitions:
    """What the coordinator of the transaction is asked before offsets are committed."""
    producer = request.transactional_id, request.producer_id, request.producer_epoch
    if request.adds_partition_to_transaction:
        return AddPartitions(*producer, frozenset({partition}), NEW_PROTOCOL)
    return VerifyPartitions(*producer, (partition,))


def commit_error_code(request: TxnOffsetCommit, error: ErrorCode) -> ErrorCode:
    """The error code of a commit that its transaction refuses (Kafka's mapping)."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not request.supports_transaction_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error
