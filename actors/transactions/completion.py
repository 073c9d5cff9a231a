"""Completion of a decided transaction: its markers, and the record that says that all markers are written."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import pykka

from ..base import ActorRef
from ..errors import ErrorCode
from ..messages import Append, ContinueWork
from ..ports import Entry
from ..records import MarkerRecord
from .commits import TransactionalCommits
from .environment import OFFSETS_TOPIC, Then, TransactionEnvironment
from .rules import PREPARE_COMMIT, PREPARED_STATES, Transaction, TransactionStep
from .table import TransactionTable
from .timeouts import COMPLETE, RETRY_MAX_MS, RETRY_MS, Timeouts

MARKERS_PER_TURN = 64
"""Partitions of topics in which a transaction is ended in one turn; takes about a millisecond."""

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
        if not self._commits.are_in_flight(transaction.transactional_id):
            self._write_markers(transaction)

    def handle_commits_done(self, transactional_id: str) -> None:
        """No more offsets of a transactional id are in flight."""
        transaction = self._table.get(transactional_id)
        if transaction is not None and transaction.state in PREPARED_STATES:
            self._write_markers(transaction)

    def _write_markers(self, transaction: Transaction) -> None:
        self._end_in_topics(transaction, iter(transaction.value.partitions), [])

    def _end_in_topics(
        self, transaction: Transaction, remaining: Iterator[tuple[str, int]], offsets_partitions: list[int]
    ) -> None:
        """End the transaction in some of its partitions, then in others after the turns of other actors."""
        if not self._table.has(transaction):  # unloaded; its next owner writes all markers
            return
        value, marker = transaction.value, marker_of(transaction)
        piece = list(islice(remaining, MARKERS_PER_TURN))
        for topic, partition in piece:
            if topic == OFFSETS_TOPIC:
                offsets_partitions.append(partition)
            else:
                self._environment.topics.end_transaction(topic, partition, marker, value.last_update_timestamp_ms)
        if len(piece) < MARKERS_PER_TURN:
            self._append_markers(transaction, offsets_partitions)
        else:
            self._tell_after_turn(
                ContinueWork(partial(self._end_in_topics, transaction, remaining, offsets_partitions))
            )

    def _append_markers(self, transaction: Transaction, partitions: Collection[int]) -> None:
        marker = marker_of(transaction)
        transaction.markers_missing, transaction.markers_failed = len(partitions), {}
        for partition in partitions:
            handle_written = partial(self._handle_marker_written, transaction, marker, partition)
            error = self._environment.directory.partitions[partition].answers.marker
            if error is ErrorCode.NONE:
                self._environment.writer.tell(Append(self._owner, Entry(partition, (marker,)), handle_written))
            else:
                handle_written(error)
        if not partitions:
            self._finish(transaction)

    def _handle_marker_written(
        self, transaction: Transaction, marker: MarkerRecord, partition: int, error: ErrorCode
    ) -> None:
        transaction.markers_missing -= 1
        if error is not ErrorCode.NONE:
            transaction.markers_failed[partition] = error
        if transaction.markers_missing:
            return
        if not self._table.has(transaction):  # unloaded; its next owner writes all markers again
            self._send_marker_to_groups(marker, transaction.markers_failed)
        elif transaction.markers_failed:
            self._schedule_retry(transaction, "a marker", next(iter(transaction.markers_failed.values())))
        else:
            self._send_marker_to_groups(marker, {})
            self._finish(transaction)

    def _schedule_retry(self, transaction: Transaction, missing: str, error: ErrorCode) -> None:
        """Schedule another attempt. It is repeated until it succeeds, because the decision is durable."""
        delay_ms = min(RETRY_MS << transaction.attempts, RETRY_MAX_MS)
        transaction.attempts += 1
        name = transaction.transactional_id
        log.error("the transaction of %r is decided, but %s could not be written (%s)", name, missing, error.name)
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

    def _send_marker_to_groups(self, marker: MarkerRecord, failed: Mapping[int, ErrorCode]) -> None:
        """Send a durable marker to the groups of all partitions except those where it could not be written."""
        directory = self._environment.directory
        for group_id in self._take_groups(marker.producer_id, failed):
            ref = directory.groups.get(group_id)
            if ref is not None:
                with suppress(pykka.ActorDeadError):  # the group was deleted, with its pending offsets
                    ref.tell(marker)

    def _take_groups(self, producer_id: int, failed: Mapping[int, ErrorCode]) -> Collection[str]:
        groups = self._commits.groups.pop(producer_id, set())
        number_of = self._environment.directory.partitions.number_of
        kept = {group_id for group_id in groups if failed and number_of(group_id) in failed}
        if kept:
            self._commits.groups[producer_id] = kept
        return groups - kept if kept else groups

    def _finish(self, transaction: Transaction) -> None:
        assert transaction.step is not None
        self._append(transaction, transaction.step, partial(self._handle_completion_written, transaction))

    def _handle_completion_written(self, transaction: Transaction, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            transaction.attempts = 0
        elif self._table.has(transaction):
            self._schedule_retry(transaction, "the completion record", error)


def marker_of(transaction: Transaction) -> MarkerRecord:
    """The marker of a transaction that is being completed."""
    value = transaction.value
    return MarkerRecord(value.producer_id, value.producer_epoch, transaction.state is PREPARE_COMMIT)
