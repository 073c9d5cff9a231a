"""IncrementalAlterConfigs (44): change single settings of this broker, or of all. Answered when they are durable.

Only settings that groups read at each use can be changed (``config.DYNAMIC``). Others are refused with Kafka's message
for a setting that cannot be changed while the server runs. Kafka ignores unknown names; this server refuses them, so
that a misspelt name is noticed. Topics keep all settings of Kafka, see ``topics.settings``. Groups have those of the
consumer protocol, see ``settings.group_configs``.

``--dynamic-settings`` limits the clients that may change settings, whatever the authorizer allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.steps import Steps, counted, pieces
from ...common.logs import get_logger
from ...common.shared_bytes import SharedBytes
from ...settings.admin import dynamic_setting, parse_change
from ...settings.dynamic import ConfigType, InvalidSetting, SettingValues
from ...settings.rows import SettingValue, list_items
from ...topics.names import check_name
from ...topics.setting_values import Overrides, check_overrides
from ...topics.settings import BY_NAME as TOPIC_SETTINGS
from ...topics.topic import Topic
from ..audit.audited import SeenChange, recorded
from ..authorization.checks import ACT_AS_BROKER, ALTER_BROKER_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_TOPIC_CONFIGS, Check
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error
from ..codec.step_writer import write_in_steps
from ..connections.client_ids import shown_client_id
from ..refusals import as_refusal
from .describe_configs import BROKER, BROKER_LOGGER, GROUP, TOPIC, check_access, check_broker

log = get_logger("callboard.runtime")

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


class Changes(NamedTuple):
    """The rules of one of the two APIs: they compute the new values of a resource from the old ones and the request.

    ``texts`` is for topics and groups. Both raise CoordinatorError. ``broker`` also raises InvalidSetting.
    """

    broker: Callable[[SettingValues, Sequence[Any]], dict[str, SettingValue]]
    texts: Callable[[Sequence[Any], Overrides], Overrides]
    has_loggers: bool


def handle(call: Call) -> Steps[None]:
    changes = Changes(apply_operations, apply_to_texts, has_loggers=True)
    return alter(call, changes, {**ALTER_CHECKS, BROKER_LOGGER: ACT_AS_BROKER}, "IncrementalAlterConfigsResponse")


def alter(call: Call, changes: Changes, checks: Mapping[int, Check], response: str) -> Steps[None]:
    """Alter each resource separately. Also used by AlterConfigs (33)."""
    resources = call.request.resources
    occurrences = yield from counted((resource.resource_type, resource.resource_name) for resource in resources)
    outcomes: dict[int, CoordinatorError | None] = {}
    access = yield from check_access(call, checks)

    def done(number: int, failure: Exception | None) -> None:
        outcomes[number] = None if failure is None else as_refusal(failure, "settings")
        if len(outcomes) == len(resources):
            call.encode_and_respond(lambda: encode(call, outcomes, response))

    if not resources:
        call.encode_and_respond(lambda: encode(call, outcomes, response))
    for number, resource in enumerate(resources):
        try:
            if occurrences[resource.resource_type, resource.resource_name] > 1:
                raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            denial = access.refusal(resource)
            if denial is not None:
                raise denial
            alter_resource(call, resource, changes, partial(done, number))
        except CoordinatorError as refusal:
            done(number, refusal.with_traceback(None))  # its frames refer to the outcomes: a cycle
        yield


def encode(call: Call, outcomes: Mapping[int, CoordinatorError | None], response: str) -> Steps[bytes | SharedBytes]:
    """``outcomes``: by the position of the resource in the request."""
    yield from log_not_allowed(call, outcomes.values())
    responses = (answer(call, resource, outcomes[number]) for number, resource in enumerate(call.request.resources))
    return (yield from write_in_steps(call.make(response, throttle_time=NO_THROTTLE, responses=responses)))


def answer(call: Call, resource: Any, refusal: CoordinatorError | None) -> Any:
    return call.make(
        "AlterConfigsResourceResponse",
        error_code=kafka_error(refusal.code if refusal else ErrorCode.NONE),
        error_message=str(refusal) if refusal else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def alter_resource(call: Call, resource: Any, changes: Changes, done: Done) -> None:
    """Change a resource and call ``done`` when that is durable. Raises CoordinatorError."""
    check_values(resource.configs)
    if resource.resource_type == TOPIC:
        alter_topic(call, resource, changes, done)
    elif resource.resource_type == BROKER:
        alter_broker(call, resource, changes, done)
    elif resource.resource_type == GROUP:
        alter_group(call, resource, changes, done)
    elif resource.resource_type == BROKER_LOGGER and changes.has_loggers:
        refuse_logger(call, resource)
        done(None)
    else:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


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


def alter_topic(call: Call, resource: Any, changes: Changes, done: Done) -> None:
    topic = existing_topic(call, resource.resource_name)
    change = SeenChange(lambda overrides: check_overrides(changes.texts(resource.configs, overrides)))
    call.services.topic_admin.check_alter(topic, change)
    if call.request.validate_only:
        done(None)
    else:
        call.services.topic_admin.alter(
            topic, change, recorded(call, done, partial(change.alteration, f"Topic:{topic.name}"))
        )


def existing_topic(call: Call, name: str) -> Topic:
    """Return the topic of this name. Raises CoordinatorError."""
    if not name:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_name(name)
    topic = call.services.topics.get(name)
    if topic is None:
        raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    return topic


def alter_group(call: Call, resource: Any, changes: Changes, done: Done) -> None:
    """Change the settings of a group, which need not exist."""
    if not resource.resource_name:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    admin, name = call.services.settings_admin.groups, resource.resource_name
    change = SeenChange(partial(changes.texts, resource.configs), value_of=int)
    admin.check_alter(name, change)
    if call.request.validate_only:
        done(None)
    else:
        admin.alter(name, change, recorded(call, done, partial(change.alteration, f"Group:{name}")))


def refuse_logger(call: Call, resource: Any) -> None:
    check_broker(call, resource.resource_name, "Node")
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


def log_not_allowed(call: Call, refusals: Iterable[CoordinatorError | None]) -> Steps[None]:
    """Log one line per request, so that a request with many resources cannot fill the disk.

    A denial by the authorizer is the authorizer's to log.
    """
    refused = 0
    for piece in pieces(refusals):
        refused += sum(isinstance(refusal, NotAllowedHere) for refusal in piece)
        yield
    if refused:
        log.warning(
            "a change of settings was refused",
            asked_by=author(call),
            resources=refused,
            dynamic_settings=call.services.options.dynamic_settings,
        )


def author(call: Call) -> str:
    """Describe the client, for the log."""
    return f"{call.connection.peer}, client id {shown_client_id(call.connection.client_id)!r}"


def alter_broker(call: Call, resource: Any, changes: Changes, done: Done) -> None:
    check_may_change(call)
    admin, name = call.services.settings_admin, resource.resource_name
    if name:
        check_broker(call, name, "Node")

    change = SeenChange(lambda table: changes.broker(table, resource.configs))

    def make(broker: SettingValues, all_brokers: SettingValues) -> tuple[SettingValues, SettingValues]:
        values = change(broker if name else all_brokers)
        return (values, all_brokers) if name else (broker, values)

    if not call.request.validate_only:
        done = recorded(call, done, partial(change.alteration, f"Broker:{name}"))
        admin.change(make, done, changed_by=author(call))
        return
    try:
        admin.check(make)
    except InvalidSetting as error:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, str(error)) from error
    done(None)


def apply_operations(table: SettingValues, operations: Sequence[Any]) -> dict[str, SettingValue]:
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


def apply_to_texts(operations: Sequence[Any], overrides: Overrides) -> Overrides:
    """Return the settings of a topic or a group after the requested operations; the values are not checked yet."""
    changed = dict(overrides)
    for operation in operations:
        name = operation.name
        if operation.config_operation == DELETE:
            changed.pop(name, None)
        elif operation.config_operation == SET:
            changed[name] = operation.value
        else:
            changed[name] = change_items(changed.get(name), operation)
    return changed


def change_items(text: str | None, operation: Any) -> str:
    """Return the items of a list after APPEND or SUBTRACT."""
    setting, verb = TOPIC_SETTINGS.get(operation.name), OPERATIONS[operation.config_operation].upper()
    if setting is None or setting.type is not ConfigType.LIST:
        raise CoordinatorError(
            ErrorCode.INVALID_CONFIG, f"Can't {verb} to key {operation.name} because its type is not LIST."
        )
    items = list_items(setting.default if text is None else text)
    named = list_items(operation.value)
    if operation.config_operation == APPEND:
        return ",".join([*items, *dict.fromkeys(item for item in named if item not in items)])
    return ",".join(item for item in items if item not in named)
