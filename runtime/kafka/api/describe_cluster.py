"""DescribeCluster (60): this broker, which is also the controller."""

from __future__ import annotations

from typing import Any

from ....actors.errors import ErrorCode
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error

BROKERS = 1  # endpoint types (KIP-919)
CONTROLLERS = 2
ALL_CLUSTER_OPERATIONS = 8096  # bit set of all operations: there is no authorization
NOT_REQUESTED = -(2**31)


def handle(call: Call) -> None:
    endpoint_type = getattr(call.request, "endpoint_type", BROKERS)
    if endpoint_type == CONTROLLERS:
        refuse(call, ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker's endpoint, not a controller's")
    elif endpoint_type != BROKERS:
        refuse(call, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {endpoint_type}: expected 1 or 2")
    else:
        answer(call)


def answer(call: Call) -> None:
    services = call.services
    broker = call.make(
        "DescribeClusterBroker",
        broker_id=services.node_id,
        host=services.advertised_host,
        port=services.advertised_port,
        rack=None,
        is_fenced=False,
    )
    operations = ALL_CLUSTER_OPERATIONS if call.request.include_cluster_authorized_operations else NOT_REQUESTED
    respond(
        call,
        cluster_id=services.cluster_id,
        controller_id=services.node_id,
        brokers=(broker,),
        cluster_authorized_operations=operations,
    )


def refuse(call: Call, error: ErrorCode, message: str) -> None:
    respond(call, error, error_message=message, cluster_id="", brokers=())


def respond(call: Call, error: ErrorCode = ErrorCode.NONE, **values: Any) -> None:
    code = kafka_error(error)
    call.respond(call.make("DescribeClusterResponse", throttle_time=NO_THROTTLE, error_code=code, **values))
