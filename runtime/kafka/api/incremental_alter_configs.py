"""IncrementalAlterConfigs (44): change single settings of this broker, or of all. Answered when they are durable.

Only settings that groups read at each use can be changed (``config.DYNAMIC``). Others are refused with Kafka's message
for a setting that cannot be changed while the server runs. Kafka ignores unknown names; this server refuses them, so
that a misspelt name is noticed. Topics have the settings of the server.

``--dynamic-settings`` limits the clients that may change settings, whatever the authorizer allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.steps import Steps
from ...common.logs import get_logger
from ...settings.admin import dynamic_setting, parse_change
from ...settings.dynamic import InvalidSetting, SettingValues
from ...topics.settings import NAMES as TOPIC_NAMES
from ..call import Body, Call
from ..checks import ACT_AS_BROKER, ALTER_BROKER_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_TOPIC_CONFIGS, Check
from ..codec.codes import NO_THROTTLE, kafka_error
from ..codec.step_writer import write_in_steps
from .describe_configs import BROKER, BROKER_LOGGER, GROUP, TOPIC, check_access

log = get_logger("callboard.runtime")

CLIENT_ID_CHARS_MAX = 100  # in a log line

SET, DELETE, APPEND, SUBTRACT = range(4)
OPERATIONS = ("set", "delete", "append", "subtract")

ALTER_CHECKS: Mapping[int, Check] = {
    TOPIC: ALTER_TOPIC_CONFIGS,
    BROKER: ALTER_BROKER_CONFIGS,
    GROUP: ALTER_GROUP_CONFIGS,
}
"""The check of each type of resource. Loggers can be altered by IncrementalAlterConfigs only."""

Done = Callable[[Exception | None], None]


class NotAllowedHere(CoordinatorError):
    """``--dynamic-settings`` does not let the client change settings."""


Change = Callable[[SettingValues, Sequence[Any]], dict[str, float | bool]]
"""Computes the new values of a resource from the old ones and the request."""


def handle(call: Call) -> Steps[None]:
    return alter(
        call, apply_operations, {**ALTER_CHECKS, BROKER_LOGGER: ACT_AS_BROKER}, "IncrementalAlterConfigsResponse"
    )


def alter(call: Call, change: Change, checks: Mapping[int, Check], response: str) -> Steps[None]:
    """Alter each resource separately. Also used by AlterConfigs (33)."""
    resources = call.request.resources
    occurrences = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    outcomes: dict[int, CoordinatorError | None] = {}
    access = yield from check_access(call, checks)

    def done(number: int, failure: Exception | None) -> None:
        outcomes[number] = None if failure is None else as_refusal(failure)
        if len(outcomes) == len(resources):
            refusals = [outcomes[each] for each in range(len(resources))]
            log_not_allowed(call, refusals)
            call.encode_and_respond(lambda: encode(call, refusals, response))

    if not resources:
        call.encode_and_respond(lambda: encode(call, [], response))
    for number, resource in enumerate(resources):
        try:
            if occurrences[resource.resource_type, resource.resource_name] > 1:
                raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            denial = access.refusal(resource)
            if denial is not None:
                raise denial
            alter_resource(call, resource, change, partial(done, number))
        except CoordinatorError as refusal:
            done(number, refusal)
        yield


def as_refusal(failure: Exception) -> CoordinatorError:
    if isinstance(failure, CoordinatorError):
        return failure
    if isinstance(failure, InvalidSetting):
        return CoordinatorError(ErrorCode.INVALID_REQUEST, str(failure))
    if isinstance(failure, OSError):
        code, text = ErrorCode.KAFKA_STORAGE_ERROR, f"the settings cannot be written: {failure.strerror}"
        return CoordinatorError(code, text)
    return CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the change has failed: {failure!r}")


def encode(call: Call, refusals: Sequence[CoordinatorError | None], response: str) -> Body:
    responses = (answer(call, *pair) for pair in zip(call.request.resources, refusals, strict=True))
    return write_in_steps(call.make(response, throttle_time=NO_THROTTLE, responses=responses))


def answer(call: Call, resource: Any, refusal: CoordinatorError | None) -> Any:
    return call.make(
        "AlterConfigsResourceResponse",
        error_code=kafka_error(refusal.code if refusal else ErrorCode.NONE),
        error_message=str(refusal) if refusal else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def alter_resource(call: Call, resource: Any, change: Change, done: Done) -> None:
    """Change a resource and call ``done`` when that is durable. Raises CoordinatorError."""
    check_values(resource.configs)
    if resource.resource_type == TOPIC:
        refuse_topic(call, resource)
    elif resource.resource_type == GROUP:
        refuse_group(resource)
    elif resource.resource_type == BROKER_LOGGER and change is apply_operations:  # AlterConfigs has no loggers
        refuse_logger(call, resource)
    elif resource.resource_type != BROKER:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    else:
        alter_broker(call, resource, change, done)
        return
    done(None)


def check_values(configs: Sequence[Any]) -> None:
    """Raise CoordinatorError for a repeated name, a missing value or an unknown operation."""
    if len({config.name for config in configs}) < len(configs):
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    set_configs = (config for config in configs if getattr(config, "config_operation", SET) != DELETE)
    missing = [config.name for config in set_configs if config.value is None]
    if missing:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(missing)}")
    for config in configs:
        operation = getattr(config, "config_operation", SET)
        if not 0 <= operation < len(OPERATIONS):
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")


def refuse_topic(call: Call, resource: Any) -> None:
    """Refuse with Kafka's errors, or because topics in memory have no settings of their own."""
    name = resource.resource_name
    if call.services.topics.get(name) is None:
        raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    for config in resource.configs:
        if config.name not in TOPIC_NAMES:
            raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {config.name}")
    if resource.configs:
        raise CoordinatorError(
            ErrorCode.POLICY_VIOLATION, "topics are in memory and have the settings of the server, none of their own"
        )


def refuse_group(resource: Any) -> None:
    """Refuse all settings: groups have none (see ``describe_configs``)."""
    if not resource.resource_name:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    for config in resource.configs:
        raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {config.name}")


def refuse_logger(call: Call, resource: Any) -> None:
    check_node(call, resource.resource_name)
    for config in resource.configs:
        raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"Logger {config.name} does not exist!")


def check_may_change(call: Call) -> None:
    """Raise NotAllowedHere if the client may not change settings of the broker."""
    allowed = call.services.options.dynamic_settings
    if allowed == "all" or (allowed == "local" and call.connection.is_local):
        return
    raise NotAllowedHere(
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        f"this server was started with --dynamic-settings {allowed}: "
        + ("nobody may change its settings" if allowed == "none" else "clients on its own machine may change settings"),
    )


def log_not_allowed(call: Call, refusals: Sequence[CoordinatorError | None]) -> None:
    """Log one line per request, so that a request with many resources cannot fill the disk.

    A denial by the authorizer is the authorizer's to log.
    """
    refused = sum(isinstance(refusal, NotAllowedHere) for refusal in refusals)
    if refused:
        log.warning(
            "a change of settings was refused",
            asked_by=author(call),
            resources=refused,
            dynamic_settings=call.services.options.dynamic_settings,
        )


def author(call: Call) -> str:
    """Describe the client, for the log."""
    client_id = call.connection.client_id
    if len(client_id) > CLIENT_ID_CHARS_MAX:
        client_id = f"{client_id[:CLIENT_ID_CHARS_MAX]}..."
    return f"{call.connection.peer}, client id {client_id!r}"


def alter_broker(call: Call, resource: Any, change: Change, done: Done) -> None:
    check_may_change(call)
    admin, name = call.services.settings_admin, resource.resource_name
    if name:
        check_node(call, name)

    def make(broker: SettingValues, all_brokers: SettingValues) -> tuple[SettingValues, SettingValues]:
        values = change(broker if name else all_brokers, resource.configs)
        return (values, all_brokers) if name else (broker, values)

    if not call.request.validate_only:
        admin.change(make, done, changed_by=author(call))
        return
    try:
        admin.check(make)
    except InvalidSetting as error:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, str(error)) from error
    done(None)


def check_node(call: Call, name: str) -> None:
    try:
        node_id = int(name)
    except ValueError:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
    if node_id != call.services.cluster.node_id:
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {call.services.cluster.node_id}, but received {name}",
        )


def apply_operations(table: SettingValues, operations: Sequence[Any]) -> dict[str, float | bool]:
    """Return the values after the requested operations. Raises InvalidSetting and CoordinatorError."""
    values = dict(table)
    for operation in operations:
        if operation.config_operation in (APPEND, SUBTRACT):
            raise CoordinatorError(
                ErrorCode.INVALID_CONFIG,
                f"Config value {OPERATIONS[operation.config_operation]} is not allowed for config key: "
                f"{operation.name}",
            )
        if operation.config_operation == DELETE:
            values.pop(dynamic_setting(operation.name).name, None)
        else:
            name, value = parse_change(operation.name, operation.value)
            values[name] = value
    return values
