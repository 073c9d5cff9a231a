"""Completion of a decided transaction: its markers, and the record that says that all markers are written."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

from ..base import ActorRef
from ..errors import ErrorCode
from ..messages import Append, ContinueWork
from ..ports import Entry
from ..records import MarkerRecord
from .commits import TransactionalCommits
from .environment import OFFSETS_TOPIC, Then, TransactionEnvironment
from .peers import TopicPartition
from .received_markers import send_marker
from .rules import PREPARE_COMMIT, PREPARED_STATES, Transaction, TransactionStep
from .table import TransactionTable
from .timeouts import COMPLETE, MOVING_RETRY_MS, RETRY_MAX_MS, RETRY_MS, Timeouts

MARKERS_PER_TURN = 64
"""Partitions of topics in which a transaction is ended in one turn; takes about a millisecond."""

MOVING_ERRORS = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Errors of a partition that moves to another node of the cluster."""

log = logging.getLogger("callboard.actors")


class Completion:
    """Writes markers when no offsets of the transaction are in flight, then completes it."""

    def __init__(
        self,
        environment: TransactionEnvironment,
        owner: ActorRef,
        table: TransactionTable,
        append: Callable[[Transaction, TransactionStep, Then], None],
        timeouts: Timeouts,
        commits: TransactionalCommits,
        tell_after_turn: Callable[[Any], None],
    ) -> None:
        self._environment = environment
        self._owner = owner
        self._table = table
        self._append = append
        self._timeouts = timeouts
        self._commits = commits
        self._tell_after_turn = tell_after_turn

    def complete(self, transaction: Transaction) -> None:
        """Complete a decided transaction. Other requests have to wait until the markers are durable."""
        transaction.step = transaction.complete(self._environment.clock.wall_ms())
        if not self._commits.are_in_flight(transaction):
            self._write_markers(transaction)

    def handle_commits_done(self, transactional_id: str) -> None:
        """No more offsets of a transactional id are in flight for some partition."""
        transaction = self._table.get(transactional_id)
        if (
            transaction is not None
            and transaction.state in PREPARED_STATES
            and not self._commits.are_in_flight(transaction)
        ):
            self._write_markers(transaction)

    def _write_markers(self, transaction: Transaction) -> None:
        self._end_in_topics(transaction, iter(transaction.value.partitions), [])

    def _end_in_topics(
        self, transaction: Transaction, remaining: Iterator[TopicPartition], others: list[TopicPartition]
    ) -> None:
        """End the transaction in some of its partitions, then in more after the turns of other actors.

        ``others``: the partitions of offsets, and those that other nodes lead.
        """
        if not self._table.has(transaction):  # unloaded; its next owner writes all markers
            return
        value, marker = transaction.value, self._marker_of(transaction)
        piece = list(islice(remaining, MARKERS_PER_TURN))
        for topic, partition in piece:
            if topic == OFFSETS_TOPIC or self._is_elsewhere((topic, partition)):
                others.append((topic, partition))
            else:
                self._environment.topics.end_transaction(topic, partition, marker, value.last_update_timestamp_ms)
        if len(piece) < MARKERS_PER_TURN:
            self._append_markers(transaction, others)
        else:
            self._tell_after_turn(ContinueWork(partial(self._end_in_topics, transaction, remaining, others)))

    def _is_elsewhere(self, topic_partition: TopicPartition) -> bool:
        """Whether another node has this partition, or will have it."""
        peers = self._environment.peers
        if peers is None:
            return False
        topic, partition = topic_partition
        if topic != OFFSETS_TOPIC:
            return not peers.leads(topic)
        return self._environment.directory.partitions[partition].answers.marker is ErrorCode.NOT_COORDINATOR

    def _append_markers(self, transaction: Transaction, targets: Collection[TopicPartition]) -> None:
        """Append markers to partitions of offsets, and let the other nodes append theirs."""
        marker = self._marker_of(transaction)
        transaction.markers_missing, transaction.markers_failed = len(targets), {}
        elsewhere = [target for target in targets if self._is_elsewhere(target)]
        for target in targets:
            if target not in elsewhere:
                self._append_marker(transaction, marker, target)
        if elsewhere and self._environment.peers is not None:
            done = partial(self._tell_written_elsewhere, transaction, marker)
            self._environment.peers.write_marker(marker, elsewhere, done)
        if not targets:
            self._finish(transaction)

    def _append_marker(self, transaction: Transaction, marker: MarkerRecord, target: TopicPartition) -> None:
        topic, partition = target
        handle_written = partial(self._handle_marker_written, transaction, marker, target)
        if topic != OFFSETS_TOPIC:  # it has come back to this node
            time_ms = transaction.value.last_update_timestamp_ms
            self._environment.topics.end_transaction(topic, partition, marker, time_ms)
            handle_written(ErrorCode.NONE)
            return
        error = self._environment.directory.partitions[partition].answers.marker
        if error is ErrorCode.NONE:
            self._commits.end_checks((marker.producer_id, partition))
            self._environment.writer.tell(Append(self._owner, Entry(partition, (marker,)), handle_written))
        else:
            handle_written(error)

    def _tell_written_elsewhere(
        self, transaction: Transaction, marker: MarkerRecord, errors: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        self._owner.tell(ContinueWork(partial(self._handle_written_elsewhere, transaction, marker, errors)))

    def _handle_written_elsewhere(
        self, transaction: Transaction, marker: MarkerRecord, errors: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        for target, error in errors.items():
            self._handle_marker_written(transaction, marker, target, error)

    def _handle_marker_written(
        self, transaction: Transaction, marker: MarkerRecord, target: TopicPartition, error: ErrorCode
    ) -> None:
        if error is ErrorCode.NONE:
            self._send_marker_to_groups(marker, target)
        else:
            transaction.markers_failed[target] = error
        transaction.markers_missing -= 1
        if transaction.markers_missing or not self._table.has(transaction):  # unloaded: its next owner writes all again
            return
        if transaction.markers_failed:
            self._schedule_retry(transaction, "a marker", next(iter(transaction.markers_failed.values())))
        else:
            self._finish(transaction)

    def _schedule_retry(self, transaction: Transaction, missing: str, error: ErrorCode) -> None:
        """Schedule another attempt. It is repeated until it succeeds, because the decision is durable."""
        is_moving = error in MOVING_ERRORS and self._environment.peers is not None
        delay_ms = MOVING_RETRY_MS if is_moving else min(RETRY_MS << transaction.attempts, RETRY_MAX_MS)
        transaction.attempts += 1
        name, level = transaction.transactional_id, logging.DEBUG if is_moving else logging.ERROR
        log.log(level, "the transaction of %r is decided, but %s could not be written (%s)", name, missing, error.name)
        self._timeouts.schedule_at((COMPLETE, name), delay_ms)

    def retry(self, transactional_id: str) -> None:
        """Append only what is missing: the failed markers, or, if all markers are durable, the completion record.

        Does nothing for a deadline that was set before the transactional id was unloaded.
        """
        transaction = self._table.get(transactional_id)
        if transaction is None or not transaction.attempts or transaction.markers_missing:
            return
        if transaction.step is None:
            transaction.step = transaction.complete(self._environment.clock.wall_ms())
        self._append_markers(transaction, transaction.markers_failed)

    def _send_marker_to_groups(self, marker: MarkerRecord, target: TopicPartition) -> None:
        """Send a durable marker to the groups of a partition, if this node has them."""
        topic, partition = target
        if topic == OFFSETS_TOPIC:
            groups = self._commits.take_groups(marker.producer_id, (partition,))
            send_marker(self._environment.directory, groups, marker)

    def _finish(self, transaction: Transaction) -> None:
        assert transaction.step is not None
        self._append(transaction, transaction.step, partial(self._handle_completion_written, transaction))

    def _handle_completion_written(self, transaction: Transaction, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            transaction.attempts = 0
        elif self._table.has(transaction):
            self._schedule_retry(transaction, "the completion record", error)

    def _marker_of(self, transaction: Transaction) -> MarkerRecord:
        """The marker of a transaction that is being completed."""
        value = transaction.value
        is_committed = transaction.state is PREPARE_COMMIT
        epoch = self._table.partitions[self._table.number_of(transaction.transactional_id)].epoch
        return MarkerRecord(value.producer_id, value.producer_epoch, is_committed, epoch)
