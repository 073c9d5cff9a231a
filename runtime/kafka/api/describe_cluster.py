"""DescribeCluster (60): one broker, this one, which is its own controller."""

from __future__ import annotations

from typing import Any

from ....actors.errors import ErrorCode
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error

BROKERS = 1  # endpoint types (KIP-919)
CONTROLLERS = 2
ALL_CLUSTER_OPERATIONS = 8096  # bits of what one may do to a cluster; nothing is forbidden here
NOT_ASKED = -(2**31)


def handle(call: Call) -> None:
    wanted = getattr(call.request, "endpoint_type", BROKERS)
    if wanted == CONTROLLERS:
        refuse(call, ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker's endpoint, not a controller's")
    elif wanted != BROKERS:
        refuse(call, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {wanted}: expected 1 or 2")
    else:
        answer(call)


def answer(call: Call) -> None:
    node = call.node
    broker = call.make(
        "DescribeClusterBroker",
        broker_id=node.node_id,
        host=node.advertised_host,
        port=node.advertised_port,
        rack=None,
        is_fenced=False,
    )
    operations = ALL_CLUSTER_OPERATIONS if call.request.include_cluster_authorized_operations else NOT_ASKED
    reply(
        call,
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        brokers=(broker,),
        cluster_authorized_operations=operations,
    )


def refuse(call: Call, error: ErrorCode, message: str) -> None:
    reply(call, error, error_message=message, cluster_id="", brokers=())


def reply(call: Call, error: ErrorCode = ErrorCode.NONE, **values: Any) -> None:
    code = kafka_error(error)
    call.reply(call.make("DescribeClusterResponse", throttle_time=NO_THROTTLE, error_code=code, **values))
