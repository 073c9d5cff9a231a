"""InitProducerId (22): an id that was never given before, or a transactional id's own with its next epoch."""

from __future__ import annotations

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.transactions.messages import InitProducerId, ProducerGiven
from ..call import Call
from ..codec.codes import NO_THROTTLE, milliseconds, producer_error

NO_PRODUCER = -1
FENCED_FROM = 4


def handle(call: Call) -> None:
    request = call.request
    producer_id = int(getattr(request, "producer_id", NO_PRODUCER))
    epoch = getattr(request, "producer_epoch", NO_PRODUCER)
    if request.transactional_id == "" or (producer_id == NO_PRODUCER) != (epoch == NO_PRODUCER):
        call.reply_bytes(encode(call, ProducerGiven(ErrorCode.INVALID_REQUEST)))
    elif call.node.is_loading:  # then it is not known yet which ids are in use
        call.reply_bytes(encode(call, ProducerGiven(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)))
    elif request.transactional_id is None:
        call.node.topics.producer_ids.call_when_available(lambda: call.finish(lambda: encode(call, new_producer(call))))
    else:
        timeout_ms = milliseconds(request.transaction_timeout)
        message = InitProducerId(request.transactional_id, timeout_ms, producer_id, epoch)
        # Even if no id could be reserved: most transactional ids have one already.
        call.node.topics.producer_ids.call_when_available(lambda: call.ask_transactions(message, encode))


def new_producer(call: Call) -> ProducerGiven:
    """For one without transactions. If it wants its epoch raised it gets a new id too."""
    try:
        return ProducerGiven(ErrorCode.NONE, call.node.topics.new_producer_id(), 0)
    except CoordinatorError as refusal:
        return ProducerGiven(refusal.code)


def encode(call: Call, answer: ProducerGiven) -> bytes:
    response = call.make(
        "InitProducerIdResponse",
        throttle_time=NO_THROTTLE,
        error_code=producer_error(answer.error, call.version >= FENCED_FROM),
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )
    return call.schema.write(response)
