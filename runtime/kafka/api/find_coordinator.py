"""FindCoordinator (key 10): the broker that coordinates a group or transactional id."""

from __future__ import annotations

from typing import Any

from ....actors.errors import ErrorCode
from ....actors.steps import Steps
from ..authorization.authorize import ALL_ALLOWED, authorize_in_steps
from ..authorization.checks import DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID
from ..call import Call
from ..cluster_view import Broker
from ..codec.codes import NO_THROTTLE

GROUP, TRANSACTION = 0, 1  # key types of KIP-98
SHARE = 2  # KIP-932: recognized, not served


CHECKS = {GROUP: DESCRIBE_GROUP, TRANSACTION: DESCRIBE_TRANSACTIONAL_ID}
KEYS_FROM = 4  # KIP-699: several keys
NO_BROKER = Broker(-1, "", -1)


def handle(call: Call) -> Steps[None]:
    request = call.request
    key_type = getattr(request, "key_type", GROUP)
    keys = request.coordinator_keys if call.version >= KEYS_FROM else (request.key,)
    check = CHECKS.get(key_type)
    verdicts = ALL_ALLOWED if check is None else (yield from authorize_in_steps(call, check, keys))
    found = {"throttle_time": NO_THROTTLE}
    if call.version >= KEYS_FROM:
        coordinators = (
            call.make("Coordinator", key=key, **_coordinator_fields(call, key_type, key, verdicts.error_of(key)))
            for key in keys
        )
        yield from call.respond_in_steps(call.make("FindCoordinatorResponse", **found, coordinators=coordinators))
    else:
        fields = _coordinator_fields(call, key_type, request.key, verdicts.error_of(request.key))
        call.respond(call.make("FindCoordinatorResponse", **found, **fields))


def _coordinator_fields(call: Call, key_type: int, key: str, denial: ErrorCode) -> dict[str, Any]:
    error = denial if key_type in CHECKS else ErrorCode.INVALID_REQUEST
    broker = NO_BROKER
    if error is ErrorCode.NONE:
        coordinator = call.services.cluster.find_coordinator(
            key, call.connection.listener, is_transactional_id=key_type == TRANSACTION
        )
        broker = coordinator or NO_BROKER
        error = ErrorCode.NONE if coordinator else ErrorCode.COORDINATOR_NOT_AVAILABLE
    node_id, host, port = broker
    message = _message(call.version, key_type, error)
    return {"error_code": error, "error_message": message, "node_id": node_id, "host": host, "port": port}


def _message(version: int, key_type: int, error: ErrorCode) -> str:
    """Return Kafka's error message: before v4 always one, "NONE" for success; later only for unknown key types."""
    if version >= KEYS_FROM and key_type in (*CHECKS, SHARE):
        return ""
    if error is ErrorCode.NONE:
        return "NONE"
    if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return "The coordinator is not available."
    if key_type in CHECKS:
        return CHECKS[key_type].denial.message
    return (
        "This most likely occurs because of a request being malformed by the client library or the message was sent to "
        "an incompatible broker. See the broker logs for more details."
    )
