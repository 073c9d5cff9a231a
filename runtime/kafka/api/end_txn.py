"""EndTxn (26): commit or abort a transaction. Answered when that is durable; from v5 with the next epoch (KIP-890)."""

from __future__ import annotations

from ....actors.transactions.messages import EndTransaction, ProducerIdAssigned
from ..authorization.authorize import authorize
from ..authorization.checks import WRITE_TRANSACTIONAL_ID
from ..call import Call
from ..codec.codes import NO_THROTTLE, producer_error

FENCED_FROM = 2
NEXT_EPOCH_FROM = 5


def handle(call: Call) -> None:
    request = call.request
    denial = authorize(call, WRITE_TRANSACTIONAL_ID, (request.transactional_id,)).error
    if denial:
        call.respond_with_bytes(encode(call, ProducerIdAssigned(denial)))
        return
    message = EndTransaction(
        request.transactional_id,
        int(request.producer_id),
        request.producer_epoch,
        request.committed,
        raises_epoch=call.version >= NEXT_EPOCH_FROM,
    )
    call.ask_transactions(message, encode)


def encode(call: Call, answer: ProducerIdAssigned) -> bytes:
    response = call.make(
        "EndTxnResponse",
        throttle_time=NO_THROTTLE,
        error_code=producer_error(answer.error, call.version >= FENCED_FROM),
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )
    return call.schema.write(response)
