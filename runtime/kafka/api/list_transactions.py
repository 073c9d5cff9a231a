"""ListTransactions (66): the transactional ids, filtered by state, producer and (v1) age.

Version 2 filters by a regular expression too. It is not served: an expression of a client's can take for ever, and
everybody would wait for it.
"""

from __future__ import annotations

from typing import Any

from ....actors.errors import ErrorCode
from ....actors.transactions.rules import Transaction, TransactionState
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error
from .describe_transactions import name_of

STATES = {name_of(state): state for state in TransactionState}
ANY_AGE = -1


def handle(call: Call) -> None:
    request = call.request
    unknown = tuple(dict.fromkeys(name for name in request.state_filters if name not in STATES))
    states = {STATES[name] for name in request.state_filters if name in STATES}
    producers, age_ms = set(request.producer_id_filters), getattr(request, "duration_filter", ANY_AGE)
    now_ms = call.node.clock.wall_ms()
    nothing = bool(unknown) and not states
    found = (
        listed(call, transaction)
        for transaction in call.node.transaction_table.values()
        if not nothing
        and (not states or transaction.state in states)
        and (not producers or transaction.value.producer_id in producers)
        and (age_ms < 0 or now_ms - transaction.value.start_timestamp_ms > age_ms)
    )
    call.reply(
        call.make(
            "ListTransactionsResponse",
            throttle_time=NO_THROTTLE,
            error_code=kafka_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if call.node.is_loading else ErrorCode.NONE),
            unknown_state_filters=unknown,
            transaction_states=tuple(found),
        )
    )


def listed(call: Call, transaction: Transaction) -> Any:
    return call.make(
        "TransactionState",
        transactional_id=transaction.transactional_id,
        producer_id=transaction.value.producer_id,
        transaction_state=name_of(transaction.state),
    )
