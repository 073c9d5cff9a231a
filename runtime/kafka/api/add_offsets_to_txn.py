"""AddOffsetsToTxn (25): add the offsets of a group to a transaction."""

from __future__ import annotations

from ....actors.errors import ErrorCode
from ....actors.transactions.messages import AddOffsets
from ..authorization.authorize import authorize
from ..authorization.checks import READ_GROUP, WRITE_TRANSACTIONAL_ID
from ..call import Call
from ..codec.codes import NO_THROTTLE, producer_error

FENCED_FROM = 2


def handle(call: Call) -> None:
    request = call.request
    denial = authorize(call, WRITE_TRANSACTIONAL_ID, (request.transactional_id,)).error
    denial = denial or authorize(call, READ_GROUP, (request.group_id,)).error
    if denial:
        call.respond_with_bytes(encode(call, denial))
        return
    message = AddOffsets(
        request.transactional_id, int(request.producer_id), request.producer_epoch, str(request.group_id)
    )
    call.ask_transactions(message, encode)


def encode(call: Call, error: ErrorCode) -> bytes:
    error_code = producer_error(error, call.version >= FENCED_FROM)
    return call.schema.write(call.make("AddOffsetsToTxnResponse", throttle_time=NO_THROTTLE, error_code=error_code))
