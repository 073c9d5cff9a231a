"""IncrementalAlterConfigs (44): change settings of this broker, or of all, one by one. At once, and durably.

Only what groups look up each time can be changed (``config.DYNAMIC``); everything else is refused with Kafka's words
for a setting that cannot be changed while the server runs. Kafka takes names that it does not know, and forgets them;
we refuse them, because nobody would notice a misspelt one. A topic's settings are the server's.

Who may change settings of the broker is said by ``--dynamic-settings``: there is no authorizer that could.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.messages import SettingsChanged
from ...common.logs import get_logger
from ...settings.dynamic import InvalidSetting, SettingValues, find_dynamic, parse
from ...settings.table import Setting
from ...topics.settings import NAMES as TOPIC_NAMES
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error
from .describe_configs import BROKER, BROKER_LOGGER, GROUP, TOPIC

log = get_logger("callboard.runtime")

CLIENT_ID_CHARS_MAX = 100  # of a line in the log

SET, DELETE, APPEND, SUBTRACT = range(4)
OPERATIONS = ("set", "delete", "append", "subtract")

Done = Callable[[Exception | None], None]

Change = Callable[[SettingValues, Sequence[Any]], dict[str, float | bool]]
"""Makes of the values that a resource has, and of what is asked, the values that it is to have."""


def handle(call: Call) -> None:
    alter(call, changed, "IncrementalAlterConfigsResponse")


def alter(call: Call, change: Change, response: str) -> None:
    """Each resource for itself; used by AlterConfigs (33) too."""
    resources = call.request.resources
    times = Counter((one.resource_type, one.resource_name) for one in resources)
    outcomes: dict[int, CoordinatorError | None] = {}

    def done(number: int, failure: Exception | None) -> None:
        outcomes[number] = None if failure is None else as_refusal(failure)
        if len(outcomes) == len(resources):
            refusals = [outcomes[each] for each in range(len(resources))]
            log_unauthorized(call, refusals)
            call.finish(lambda: encode(call, refusals, response))

    if not resources:
        call.reply_bytes(encode(call, [], response))
    for number, one in enumerate(resources):
        try:
            if times[one.resource_type, one.resource_name] > 1:
                raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            alter_one(call, one, change, partial(done, number))
        except CoordinatorError as refusal:
            done(number, refusal)


def as_refusal(failure: Exception) -> CoordinatorError:
    if isinstance(failure, CoordinatorError):
        return failure
    if isinstance(failure, InvalidSetting):
        return CoordinatorError(ErrorCode.INVALID_REQUEST, str(failure))
    if isinstance(failure, OSError):
        code, text = ErrorCode.KAFKA_STORAGE_ERROR, f"the settings cannot be written: {failure.strerror}"
        return CoordinatorError(code, text)
    return CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the change has failed: {failure!r}")


def encode(call: Call, refusals: Sequence[CoordinatorError | None], response: str) -> bytes:
    responses = tuple(answer(call, *one) for one in zip(call.request.resources, refusals, strict=True))
    return call.schema.write(call.make(response, throttle_time=NO_THROTTLE, responses=responses))


def answer(call: Call, resource: Any, refusal: CoordinatorError | None) -> Any:
    return call.make(
        "AlterConfigsResourceResponse",
        error_code=kafka_error(refusal.code if refusal else ErrorCode.NONE),
        error_message=str(refusal) if refusal else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def alter_one(call: Call, resource: Any, change: Change, done: Done) -> None:
    """Change one resource, and call ``done`` when that is durable. Raises CoordinatorError with Kafka's code."""
    check_values(resource.configs)
    if resource.resource_type == TOPIC:
        refuse_topic(call, resource)
    elif resource.resource_type == GROUP:
        refuse_group(resource)
    elif resource.resource_type == BROKER_LOGGER and change is changed:  # AlterConfigs does not know of loggers
        refuse_logger(call, resource)
    elif resource.resource_type != BROKER:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    else:
        alter_broker(call, resource, change, done)
        return
    done(None)


def check_values(configs: Sequence[Any]) -> None:
    """Raise CoordinatorError for what no resource takes: a name twice, no value where there must be one."""
    if len({one.name for one in configs}) < len(configs):
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    missing = [one.name for one in configs if one.value is None and getattr(one, "config_operation", SET) != DELETE]
    if missing:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(missing)}")
    for one in configs:
        operation = getattr(one, "config_operation", SET)
        if not 0 <= operation < len(OPERATIONS):
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")


def refuse_topic(call: Call, resource: Any) -> None:
    """Kafka's refusals first; and a topic in memory has no settings of its own."""
    name = resource.resource_name
    if call.node.topics.get(name) is None:
        raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    for config in resource.configs:
        if config.name not in TOPIC_NAMES:
            raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {config.name}")
    if resource.configs:
        raise CoordinatorError(
            ErrorCode.POLICY_VIOLATION, "topics lie in memory here and have the server's settings, none of their own"
        )


def refuse_group(resource: Any) -> None:
    """No group has settings here (see ``describe_configs``), so none is known."""
    if not resource.resource_name:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    for config in resource.configs:
        raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {config.name}")


def refuse_logger(call: Call, resource: Any) -> None:
    check_node(call, resource.resource_name)
    for config in resource.configs:
        raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"Logger {config.name} does not exist!")


def check_may_change(call: Call) -> None:
    """Raise CoordinatorError for a client that may not change settings of the broker."""
    allowed = call.node.options.dynamic_settings
    if allowed == "all" or (allowed == "local" and call.connection.is_local):
        return
    raise CoordinatorError(
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        f"this server was started with --dynamic-settings {allowed}: "
        + ("nobody may change its settings" if allowed == "none" else "clients on its own machine may change settings"),
    )


def log_unauthorized(call: Call, refusals: Sequence[CoordinatorError | None]) -> None:
    """One line for a request, so that a client cannot fill the disk with a request of many resources."""
    codes = [refusal.code for refusal in refusals if refusal is not None]
    if ErrorCode.CLUSTER_AUTHORIZATION_FAILED in codes:
        log.warning(
            "a change of settings was refused",
            asked_by=author(call),
            resources=codes.count(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            dynamic_settings=call.node.options.dynamic_settings,
        )


def author(call: Call) -> str:
    """Who asks, for the log."""
    client_id = call.client_id
    if len(client_id) > CLIENT_ID_CHARS_MAX:
        client_id = f"{client_id[:CLIENT_ID_CHARS_MAX]}..."
    return f"{call.connection.peer}, client id {client_id!r}"


def alter_broker(call: Call, resource: Any, change: Change, done: Done) -> None:
    check_may_change(call)
    configs, name = call.node.configs, resource.resource_name
    if name:
        check_node(call, name)

    def make(broker: SettingValues, all_brokers: SettingValues) -> tuple[SettingValues, SettingValues]:
        mine = change(broker if name else all_brokers, resource.configs)
        return (mine, all_brokers) if name else (broker, mine)

    def changed_settings(failure: Exception | None) -> None:
        if failure is None:
            call.node.groups.coordinator.tell(SettingsChanged())
        done(failure)

    if not call.request.validate_only:
        configs.change(make, changed_settings, changed_by=author(call))
        return
    try:
        configs.check(*make(configs.broker, configs.all_brokers))
    except InvalidSetting as error:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, str(error)) from error
    done(None)


def check_node(call: Call, name: str) -> None:
    try:
        node_id = int(name)
    except ValueError:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
    if node_id != call.node.node_id:
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {call.node.node_id}, but received {name}"
        )


def changed(table: SettingValues, asked: Sequence[Any]) -> dict[str, float | bool]:
    """The values with what is asked done to them. Raises InvalidSetting and CoordinatorError."""
    values = dict(table)
    for one in asked:
        if one.config_operation in (APPEND, SUBTRACT):
            raise CoordinatorError(
                ErrorCode.INVALID_CONFIG,
                f"Config value {OPERATIONS[one.config_operation]} is not allowed for config key: {one.name}",
            )
        setting = dynamic_setting(one.name)
        if one.config_operation == DELETE:
            values.pop(setting.name, None)
        else:
            values[setting.name] = parse(setting, one.value)
    return values


def dynamic_setting(name: str) -> Setting:
    setting = find_dynamic(name)
    if setting is None:
        raise InvalidSetting(f"Cannot update these configs dynamically: [{name}]")
    return setting
