"""InitProducerId (22): a new producer id, or the one of a transactional id with its next epoch."""

from __future__ import annotations

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.steps import Steps
from ....actors.transactions.messages import InitProducerId, ProducerIdAssigned
from ..authorization.authorize import (
    ALL_ALLOWED,
    CLUSTER,
    Verdicts,
    allows_everything,
    authorize,
    authorize_in_steps,
)
from ..authorization.checks import WRITE_IDEMPOTENTLY, WRITE_TRANSACTIONAL_ID
from ..call import Call
from ..codec.codes import NO_THROTTLE, milliseconds, producer_error
from ..refusals import report_over_limit

NO_PRODUCER = -1
FENCED_FROM = 4


def handle(call: Call) -> Steps[None] | None:
    """Whether a client may write to any topic at all may depend on many ACLs: that is decided in steps."""
    name = call.request.transactional_id
    if name is None and not allows_everything(call):
        return _handle_in_steps(call)
    _answer(call, ALL_ALLOWED if name is None else authorize(call, WRITE_TRANSACTIONAL_ID, (name,)))
    return None


def _handle_in_steps(call: Call) -> Steps[None]:
    _answer(call, (yield from authorize_in_steps(call, WRITE_IDEMPOTENTLY, CLUSTER)))


def _answer(call: Call, verdicts: Verdicts) -> None:
    request = call.request
    producer_id = int(getattr(request, "producer_id", NO_PRODUCER))
    epoch = getattr(request, "producer_epoch", NO_PRODUCER)
    name = request.transactional_id
    if verdicts.error:
        call.respond_with_bytes(encode(call, ProducerIdAssigned(verdicts.error)))
    elif name == "" or (producer_id == NO_PRODUCER) != (epoch == NO_PRODUCER):
        call.respond_with_bytes(encode(call, ProducerIdAssigned(ErrorCode.INVALID_REQUEST)))
    elif call.services.is_loading:  # the ids in use are not known yet
        call.respond_with_bytes(encode(call, ProducerIdAssigned(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)))
    elif name is None:
        call.services.producer_ids.call_when_available(
            lambda: call.encode_and_respond(lambda: encode(call, new_producer(call)))
        )
    else:
        timeout_ms = milliseconds(request.transaction_timeout)
        message = InitProducerId(name, timeout_ms, producer_id, epoch)
        # Sent even if no id could be reserved: most transactional ids already have one.
        call.services.producer_ids.call_when_available(lambda: call.ask_transactions(message, encode))


def new_producer(call: Call) -> ProducerIdAssigned:
    """Allocate an id for a producer without transactions, also if it requests the next epoch."""
    try:
        return ProducerIdAssigned(ErrorCode.NONE, call.services.producer_ids.allocate(), 0)
    except CoordinatorError as refusal:
        return ProducerIdAssigned(refusal.code)


def encode(call: Call, answer: ProducerIdAssigned) -> bytes:
    if answer.limit:
        report_over_limit(call, answer.limit)
    response = call.make(
        "InitProducerIdResponse",
        throttle_time=NO_THROTTLE,
        error_code=producer_error(answer.error, call.version >= FENCED_FROM),
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )
    return call.schema.write(response)
