"""FindCoordinator (key 10): this node, for every group and every transactional id."""

from __future__ import annotations

from typing import Any

from ....actors.errors import ErrorCode
from ..call import Call
from ..codec.codes import NO_THROTTLE

GROUP, TRANSACTION = 0, 1  # key types of KIP-98
SHARE = 2  # KIP-932: known, and not served


def handle(call: Call) -> None:
    key_type = getattr(call.request, "key_type", GROUP)
    error = ErrorCode.NONE if key_type in (GROUP, TRANSACTION) else ErrorCode.INVALID_REQUEST
    if call.version >= 4:
        text = "" if key_type in (GROUP, TRANSACTION, SHARE) else _text(error)  # only the whole request's error has one
        coordinators = tuple(
            call.make("Coordinator", key=key, **_place(call, error, text)) for key in call.request.coordinator_keys
        )
        call.reply(call.make("FindCoordinatorResponse", throttle_time=NO_THROTTLE, coordinators=coordinators))
    else:
        call.reply(call.make("FindCoordinatorResponse", throttle_time=NO_THROTTLE, **_place(call, error, _text(error))))


def _place(call: Call, error: ErrorCode, text: str) -> dict[str, Any]:
    node = call.node
    found = error is ErrorCode.NONE
    return {
        "error_code": error,
        "error_message": text,
        "node_id": node.node_id if found else -1,
        "host": node.advertised_host if found else "",
        "port": node.advertised_port if found else -1,
    }


def _text(error: ErrorCode) -> str:
    """Kafka's constant texts: v1-v3 say NONE for success."""
    if error is ErrorCode.NONE:
        return "NONE"
    return (
        "This most likely occurs because of a request being malformed by the client library or the message was sent to "
        "an incompatible broker. See the broker logs for more details."
    )
