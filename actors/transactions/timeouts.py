"""Deadlines of transactional ids: timeouts of open transactions, attempts to complete, and the scan for expired ids."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable

from ..base import ActorRef
from ..errors import CoordinatorError, ErrorCode
from ..timer.messages import Cancel, Schedule
from .environment import Then, TransactionEnvironment
from .rules import Transaction, TransactionStep
from .table import TransactionTable

log = logging.getLogger("callboard.actors")

EXPIRATION_SCAN = ("expiration scan",)
"""The name of the deadline of the scan for expired transactional ids. Timeouts are named by their transactional id."""

COMPLETE = "complete"
"""With a transactional id: the name of the deadline for the next attempt to complete a decided transaction."""

RETRY_MS = 1000
"""Delay before a timed-out transaction with a step in flight is checked again, and before the first new attempt to
complete a transaction."""

MOVING_RETRY_MS = 100
"""Delay between attempts to write a marker to a partition that moves to another node."""

RETRY_MAX_MS = 60_000
"""Maximum delay between attempts to complete a transaction. It doubles after each attempt; the disk may be full."""


class Timeouts:
    """The deadlines. ``append`` appends a step; see ``Steps``."""

    def __init__(
        self,
        environment: TransactionEnvironment,
        owner: ActorRef,
        table: TransactionTable,
        append: Callable[[Transaction, TransactionStep, Then], None],
    ) -> None:
        self._environment = environment
        self._owner = owner
        self._table = table
        self._append = append
        self._scheduled: set[str] = set()  # transactional ids with a deadline at the timer

    def schedule(self, transaction: Transaction) -> None:
        """Schedule the timeout. A deadline of an earlier transaction is reused; it is scheduled again when it fires."""
        due_ms, name = transaction.due_ms(), transaction.transactional_id
        if due_ms is not None and name not in self._scheduled:
            self._scheduled.add(name)
            self.schedule_at(name, due_ms - self._environment.clock.wall_ms())

    def schedule_at(self, name: Hashable, delay_ms: int) -> None:
        """Schedule the deadline of this name, ``delay_ms`` from now."""
        due_ms = self._environment.clock.monotonic_ms() + max(delay_ms, 0) + 1
        self._environment.timer.tell(Schedule(self._owner, name, due_ms))

    def schedule_scan(self) -> None:
        """Schedule the next scan for expired transactional ids."""
        settings = self._environment.settings
        self.schedule_at(EXPIRATION_SCAN, settings.transaction_remove_expired_transaction_cleanup_interval_ms)

    def cancel(self, transactional_ids: Iterable[str]) -> None:
        """Cancel all deadlines of transactional ids that are not served any more."""
        for name in transactional_ids:
            self._environment.timer.tell(Cancel(self._owner, (COMPLETE, name)))
            if name in self._scheduled:
                self._scheduled.discard(name)
                self._environment.timer.tell(Cancel(self._owner, name))

    def check(self, transactional_id: str) -> None:
        """A deadline has passed: abort the transaction if it has timed out, otherwise schedule the remaining time."""
        self._scheduled.discard(transactional_id)
        transaction = self._table.get(transactional_id)
        if transaction is None:
            return
        due_ms, now_ms = transaction.due_ms(), self._environment.clock.wall_ms()
        if due_ms is None or now_ms <= due_ms:
            self.schedule(transaction)
        elif transaction.step is not None or not self._abort(transaction, now_ms):
            self._scheduled.add(transactional_id)
            self.schedule_at(transactional_id, RETRY_MS)

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


def ignore_outcome(_error: ErrorCode) -> None:
    """For steps of the coordinator itself: no request waits for them."""
