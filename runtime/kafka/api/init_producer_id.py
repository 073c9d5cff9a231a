"""InitProducerId (22): a number for an idempotent producer, never given twice.

Transactions are not served: a transactional id is refused with a code that ends the producer. Every "not available"
would be asked again for ever.
"""

from __future__ import annotations

from ....actors.errors import CoordinatorError, ErrorCode
from ..call import Call
from ..codes import NO_THROTTLE, kafka_error

NO_PRODUCER = -1


def handle(call: Call) -> None:
    error, producer_id = ErrorCode.NONE, NO_PRODUCER
    try:
        check(call)
        producer_id = call.node.topics.new_producer_id()
    except CoordinatorError as refusal:
        error = refusal.code
    call.reply(
        call.make(
            "InitProducerIdResponse",
            throttle_time=NO_THROTTLE,
            error_code=kafka_error(error),
            producer_id=producer_id,
            producer_epoch=NO_PRODUCER if error else 0,
        )
    )


def check(call: Call) -> None:
    """Raise CoordinatorError unless a new id may be given. A producer that wants its epoch raised gets a new id too."""
    request = call.request
    if request.transactional_id:
        raise CoordinatorError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"transactional id {request.transactional_id!r}: topics here take no transactions",
        )
    producer_id = getattr(request, "producer_id", NO_PRODUCER)
    epoch = getattr(request, "producer_epoch", NO_PRODUCER)
    if request.transactional_id == "" or (producer_id == NO_PRODUCER) != (epoch == NO_PRODUCER):
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST, "expected no transactional id, and a producer id and epoch or neither"
        )
