"""FindCoordinator (key 10): this broker, for every group and transactional id."""

from __future__ import annotations

from typing import Any

from ....actors.errors import ErrorCode
from ..call import Call
from ..codec.codes import NO_THROTTLE

GROUP, TRANSACTION = 0, 1  # key types of KIP-98
SHARE = 2  # KIP-932: recognized, not served


def handle(call: Call) -> None:
    key_type = getattr(call.request, "key_type", GROUP)
    error = ErrorCode.NONE if key_type in (GROUP, TRANSACTION) else ErrorCode.INVALID_REQUEST
    if call.version >= 4:  # as in Kafka, share groups get no message
        message = "" if key_type in (GROUP, TRANSACTION, SHARE) else _message(error)
        coordinators = tuple(
            call.make("Coordinator", key=key, **_coordinator_fields(call, error, message))
            for key in call.request.coordinator_keys
        )
        call.respond(call.make("FindCoordinatorResponse", throttle_time=NO_THROTTLE, coordinators=coordinators))
    else:
        call.respond(
            call.make(
                "FindCoordinatorResponse",
                throttle_time=NO_THROTTLE,
                **_coordinator_fields(call, error, _message(error)),
            )
        )


def _coordinator_fields(call: Call, error: ErrorCode, message: str) -> dict[str, Any]:
    services = call.services
    is_ok = error is ErrorCode.NONE
    return {
        "error_code": error,
        "error_message": message,
        "node_id": services.node_id if is_ok else -1,
        "host": services.advertised_host if is_ok else "",
        "port": services.advertised_port if is_ok else -1,
    }


def _message(error: ErrorCode) -> str:
    """Return Kafka's error message. In v1-v3 it is "NONE" for success."""
    if error is ErrorCode.NONE:
        return "NONE"
    return (
        "This most likely occurs because of a request being malformed by the client library or the message was sent to "
        "an incompatible broker. See the broker logs for more details."
    )
