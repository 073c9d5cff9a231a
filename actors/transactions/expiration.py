"""Expiry of transactional ids that were not used for a long time, as in Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from ..errors import ErrorCode
from ..messages import ContinueWork
from ..records import TransactionValue
from .environment import Then, TransactionEnvironment
from .rules import Transaction
from .table import TransactionTable
from .timeouts import Timeouts

PIECE = 64
"""Transactional ids that are copied together from the table."""

PIECES_PER_TURN = 16
"""Pieces that are checked in one turn; takes about a millisecond."""

MAX_PENDING = 1000
"""Maximum number of tombstones in flight, so that ids that expire together do not flood the log."""


class Expiration:
    """The scan for expired transactional ids, in small parts.

    ``write`` appends a record, see ``Steps``. ``tell_after_turn`` sends a message to the owner after the turns of other
    actors. The next scan is scheduled when all ids are checked.
    """

    def __init__(
        self,
        environment: TransactionEnvironment,
        table: TransactionTable,
        timeouts: Timeouts,
        write: Callable[[Transaction, TransactionValue | None, Then], None],
        tell_after_turn: Callable[[Any], None],
    ) -> None:
        self._environment = environment
        self._table = table
        self._timeouts = timeouts
        self._write = write
        self._tell_after_turn = tell_after_turn
        self._remaining: Iterator[list[Transaction]] = iter(())
        self._pending = 0
        self._is_paused = False

    def start(self) -> None:
        self._remaining = self._table.pieces(PIECE)
        self._run_part()

    def _run_part(self) -> None:
        if self._pending >= MAX_PENDING:
            self._is_paused = True
            return
        pieces = list(islice(self._remaining, PIECES_PER_TURN))
        for piece in pieces:
            self._check(piece)
        if pieces:
            self._tell_after_turn(ContinueWork(self._run_part))
        else:
            self._timeouts.schedule_scan()

    def _check(self, piece: list[Transaction]) -> None:
        now_ms = self._environment.clock.wall_ms()
        expiration_ms = self._environment.settings.transactional_id_expiration_ms
        for transaction in piece:
            if transaction.is_expired(now_ms, expiration_ms):
                transaction.step = transaction.expire()
                self._pending += 1
                self._write(transaction, None, partial(self._handle_tombstone_written, transaction))

    def _handle_tombstone_written(self, transaction: Transaction, error: ErrorCode) -> None:
        if error is ErrorCode.NONE and self._table.has(transaction):
            self._table.remove(transaction)
        transaction.step = None
        self._pending -= 1
        if self._is_paused and not self._pending:
            self._is_paused = False
            self._run_part()
