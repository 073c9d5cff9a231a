"""DescribeCluster (60): the brokers, and which of them is the controller."""

from __future__ import annotations

from typing import Any

from ....actors.errors import ErrorCode
from ...security.resources import CLUSTER_NAME, ResourceType
from ..authorization.authorize import authorize, authorized_operations
from ..authorization.checks import DESCRIBE_CLUSTER
from ..call import Call
from ..cluster_view import NO_NODE
from ..codec.codes import NO_THROTTLE, kafka_error

BROKERS = 1  # endpoint types (KIP-919)
CONTROLLERS = 2
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
    cluster, listener = call.services.cluster, call.connection.listener
    brokers = tuple(
        call.make("DescribeClusterBroker", broker_id=node_id, host=host, port=port, rack=None, is_fenced=False)
        for node_id, host, port in cluster.brokers(listener)
    )
    is_requested = call.request.include_cluster_authorized_operations
    respond(
        call,
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id(listener) if brokers else NO_NODE,
        brokers=brokers,
        cluster_authorized_operations=cluster_operations(call) if is_requested else NOT_REQUESTED,
    )


def cluster_operations(call: Call) -> int:
    """Return the operations that the client may carry out on the cluster; 0 if it may not describe it."""
    if authorize(call, DESCRIBE_CLUSTER).error:
        return 0
    return authorized_operations(call, ResourceType.CLUSTER, CLUSTER_NAME)


def refuse(call: Call, error: ErrorCode, message: str) -> None:
    respond(call, error, error_message=message, cluster_id="", brokers=())


def respond(call: Call, error: ErrorCode = ErrorCode.NONE, **values: Any) -> None:
    code = kafka_error(error)
    call.respond(call.make("DescribeClusterResponse", throttle_time=NO_THROTTLE, error_code=code, **values))
