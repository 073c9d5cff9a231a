"""ListTransactions (66): the transactional ids, filtered by state, producer and (v1) age.

Version 2, which also filters by a regular expression, is not served: evaluating a client's expression can take
unbounded time and would block the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ....actors.steps import Steps, distinct, pieces
from ....actors.transactions.rules import Transaction, TransactionState
from ...common.shared_bytes import SharedBytes
from ..authorization.authorize import audience, authorize
from ..authorization.checks import LISTED_TRANSACTIONAL_ID
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error
from ..codec.step_writer import write_in_steps
from .describe_transactions import state_name

STATES = {state_name(state): state for state in TransactionState}
ANY_AGE = -1

PIECE = 16
"""Transactional ids per piece of work; encoding one takes about 10 microseconds."""


class Filters(NamedTuple):
    """Which transactional ids are listed. Empty sets and a negative age match all. ``unknown``: names of no state."""

    states: frozenset[TransactionState]
    unknown: tuple[str, ...]
    producers: frozenset[int]
    age_ms: int

    @property
    def match_none(self) -> bool:
        return bool(self.unknown) and not self.states

    def match(self, transaction: Transaction, now_ms: int) -> bool:
        """``now_ms``: wall-clock time."""
        return (
            (not self.states or transaction.state in self.states)
            and (not self.producers or transaction.value.producer_id in self.producers)
            and (self.age_ms < 0 or now_ms - transaction.value.start_timestamp_ms > self.age_ms)
        )


def handle(call: Call) -> Steps[None]:
    request = call.request
    names = yield from distinct(request.state_filters)
    unknown: list[str] = []
    for piece in pieces(names):
        unknown += (name for name in piece if name not in STATES)
        yield
    filters = Filters(
        frozenset(STATES[name] for name in STATES if name in names),
        tuple(unknown),
        frozenset(request.producer_id_filters),
        getattr(request, "duration_filter", ANY_AGE),
    )
    call.encode_and_respond(
        lambda: call.services.shared_steps.result(
            (call.schema.name, call.version, filters, audience(call)), lambda: _encode(call, filters)
        )
    )


def _encode(call: Call, filters: Filters) -> Steps[bytes | SharedBytes]:
    table, now_ms = call.services.transaction_table, call.services.clock.wall_ms()
    items: list[bytes] = []
    for piece in () if filters.match_none else table.pieces(PIECE):
        items += _encode_piece(call, [transaction for transaction in piece if filters.match(transaction, now_ms)])
        yield
    response = call.make(
        "ListTransactionsResponse",
        throttle_time=NO_THROTTLE,
        error_code=kafka_error(table.listing_error),
        unknown_state_filters=filters.unknown,
        transaction_states=items,
    )
    return (yield from write_in_steps(response))


def _encode_piece(call: Call, matching: Iterable[Transaction]) -> list[bytes]:
    verdicts = authorize(call, LISTED_TRANSACTIONAL_ID, (transaction.transactional_id for transaction in matching))
    return [
        call.schema.write_item(listed(call, transaction))
        for transaction in matching
        if verdicts.allows(transaction.transactional_id)
    ]


def listed(call: Call, transaction: Transaction) -> Any:
    return call.make(
        "TransactionState",
        transactional_id=transaction.transactional_id,
        producer_id=transaction.value.producer_id,
        transaction_state=state_name(transaction.state),
    )
