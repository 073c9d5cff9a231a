"""ListConfigResources (key 74): the resources that have settings (KIP-1142). There are no client metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.steps import Steps, distinct, pieces
from ..authorization.authorize import authorize
from ..authorization.checks import DESCRIBE_BROKER_CONFIGS
from ..call import Call
from ..codec.codes import NO_THROTTLE
from .describe_configs import BROKER, BROKER_LOGGER, GROUP, TOPIC

CLIENT_METRICS = 16
TYPES_FROM = 1  # KIP-1142: before, there were client metrics only


def _groups(call: Call) -> Iterable[str]:
    return tuple(call.services.configs.groups.given)


def _client_metrics(_call: Call) -> Iterable[str]:
    return ()


def _brokers(call: Call) -> Iterable[str]:
    return [str(node_id) for node_id, _, _ in call.services.cluster.brokers(call.connection.listener)]


def _topics(call: Call) -> Iterable[str]:
    return call.services.topics.names()


RESOURCES: Mapping[int, Callable[[Call], Iterable[str]]] = {
    GROUP: _groups,
    CLIENT_METRICS: _client_metrics,
    BROKER_LOGGER: _brokers,
    BROKER: _brokers,
    TOPIC: _topics,
}
"""The names of the resources of each type, in Kafka's order. Groups are those with settings of their own."""


def handle(call: Call) -> Steps[None]:
    error = authorize(call, DESCRIBE_BROKER_CONFIGS).error
    requested = yield from distinct(getattr(call.request, "resource_types", ()))
    types = RESOURCES if call.version >= TYPES_FROM else (CLIENT_METRICS,)
    if not error and any(each not in types for each in requested):
        error = ErrorCode.UNSUPPORTED_VERSION
    wanted = frozenset(requested or types)
    resources = () if error else _resources(call, [each for each in types if each in wanted])
    response = call.make(
        "ListConfigResourcesResponse", throttle_time=NO_THROTTLE, error_code=error, config_resources=resources
    )
    yield from call.respond_in_steps(response)


def _resources(call: Call, types: Iterable[int]) -> Iterator[Any]:
    for resource_type in types:
        for names in pieces(RESOURCES[resource_type](call)):
            for name in names:
                yield call.make("ConfigResource", resource_name=name, resource_type=resource_type)
            yield None
