"""ListTransactions (66): the transactional ids, filtered by state, producer and (v1) age.

Version 2, which also filters by a regular expression, is not served: evaluating a client's expression can take
unbounded time and would block the event loop.
"""

from __future__ import annotations

from typing import Any

from ....actors.transactions.rules import Transaction, TransactionState
from ..authorize import authorize
from ..call import Call
from ..checks import LISTED_TRANSACTIONAL_ID
from ..codec.codes import NO_THROTTLE, kafka_error
from .describe_transactions import state_name

STATES = {state_name(state): state for state in TransactionState}
ANY_AGE = -1


def handle(call: Call) -> None:
    request = call.request
    unknown = tuple(dict.fromkeys(name for name in request.state_filters if name not in STATES))
    states = {STATES[name] for name in request.state_filters if name in STATES}
    producers, age_ms = set(request.producer_id_filters), getattr(request, "duration_filter", ANY_AGE)
    now_ms = call.services.clock.wall_ms()
    matches_none = bool(unknown) and not states
    matching = [
        transaction
        for transaction in call.services.transaction_table.values()
        if not matches_none
        and (not states or transaction.state in states)
        and (not producers or transaction.value.producer_id in producers)
        and (age_ms < 0 or now_ms - transaction.value.start_timestamp_ms > age_ms)
    ]
    verdicts = authorize(call, LISTED_TRANSACTIONAL_ID, (transaction.transactional_id for transaction in matching))
    shown = (transaction for transaction in matching if verdicts.allows(transaction.transactional_id))
    call.respond(
        call.make(
            "ListTransactionsResponse",
            throttle_time=NO_THROTTLE,
            error_code=kafka_error(call.services.transaction_table.listing_error),
            unknown_state_filters=unknown,
            transaction_states=tuple(listed(call, transaction) for transaction in shown),
        )
    )


def listed(call: Call, transaction: Transaction) -> Any:
    return call.make(
        "TransactionState",
        transactional_id=transaction.transactional_id,
        producer_id=transaction.value.producer_id,
        transaction_state=state_name(transaction.state),
    )
