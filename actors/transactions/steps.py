"""Steps: appends the records of transactional ids, and applies each step when its record is durable."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..base import ActorRef
from ..errors import ErrorCode
from ..group.contexts import APPEND_ERRORS
from ..messages import Append
from ..ports import Entry
from ..records import TransactionRecord, TransactionValue
from .commits import TransactionalCommits
from .completion import Completion
from .environment import Then, TransactionEnvironment
from .expiration import Expiration
from .received_markers import ReceivedMarkers
from .rules import PREPARED_STATES, Transaction, TransactionStep
from .table import TransactionTable
from .timeouts import Timeouts


class Steps:
    """The steps of all transactions, and what follows from them: markers and timeouts."""

    def __init__(
        self,
        environment: TransactionEnvironment,
        owner: ActorRef,
        table: TransactionTable,
        tell_after_turn: Callable[[Any], None],
    ) -> None:
        self._environment = environment
        self._owner = owner
        self._table = table
        self.timeouts = Timeouts(environment, owner, table, self.append)
        self.expiration = Expiration(environment, table, self.timeouts, self.write, tell_after_turn)
        self.commits = TransactionalCommits(environment, owner, self.append)
        self.received = ReceivedMarkers(environment, owner, self.commits)
        self.completion = Completion(
            environment, owner, table, self.append, self.timeouts, self.commits, tell_after_turn
        )

    def append(self, transaction: Transaction, step: TransactionStep, then: Then) -> None:
        """Append a step. ``then`` is called with the outcome after the step has taken effect or failed."""
        transaction.step = step
        self.write(transaction, step.value, partial(self._handle_step_written, transaction, then))

    def write(self, transaction: Transaction, value: TransactionValue | None, context: Then) -> None:
        """Append a record. ``context`` is called with the error of the log."""
        name, environment = transaction.transactional_id, self._environment
        partition = environment.offsets_partitions + self._table.number_of(name)
        environment.writer.tell(Append(self._owner, Entry(partition, (TransactionRecord(name, value),)), context))

    def _handle_step_written(self, transaction: Transaction, then: Then, error: ErrorCode) -> None:
        if not self._table.has(transaction):  # unloaded: as in Kafka, the client has to ask the new owner
            then(ErrorCode.NOT_COORDINATOR)
            return
        if error is ErrorCode.NONE:
            self._table.apply_step(transaction)
        else:
            event_log, now_ms = self._environment.directory.event_log, self._environment.clock.monotonic_ms()
            event_log.log_refused_record("transactional_id", transaction.transactional_id, error, now_ms)
            transaction.step = None
        if error is ErrorCode.NONE and transaction.state in PREPARED_STATES:
            self.completion.complete(transaction)
        self.timeouts.schedule(transaction)
        then(APPEND_ERRORS.get(error, error))

    def resume(self, transaction: Transaction) -> None:
        """Continue after loading: schedule the timeout of an open transaction, write the markers of a decided one."""
        if transaction.state in PREPARED_STATES:
            self.completion.complete(transaction)
        self.timeouts.schedule(transaction)
