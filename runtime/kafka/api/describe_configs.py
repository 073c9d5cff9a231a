"""DescribeConfigs (32): the settings of this broker, those changed for all brokers, and those of topics.

Unknown settings that a client names are left out, as in Kafka; this includes Kafka's settings that this server does not
have. A group has the settings of the consumer protocol, whether it exists or not; Kafka also has those of share groups
and of Streams. There are no loggers whose levels could be read or changed (KIP-412).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.steps import Steps, pieces
from ...security.resources import CLUSTER_NAME
from ...settings.dynamic import ConfigSource, ConfigType, Synonym, config_type_of
from ...settings.group_configs import GROUP_SETTINGS, GroupSetting
from ...settings.group_configs import Overrides as GroupOverrides
from ...settings.listener_limits import is_limit
from ...settings.listeners import format_listeners
from ...settings.rows import Setting
from ...settings.table import BY_NAME, SETTINGS
from ...topics.names import check_name
from ...topics.setting_values import Overrides
from ...topics.settings import INTERNAL_TOPIC_SETTINGS, TOPIC_SETTINGS, TopicSetting
from ..authorization.authorize import CLUSTER, Verdicts, authorize_in_steps
from ..authorization.checks import (
    DESCRIBE_BROKER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
    Check,
)
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32  # resource types
BROKERS = (BROKER, BROKER_LOGGER)  # checked as the cluster

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")  # as Java's parseInt; int() also takes 1_0 and blanks

CONFIGS_PER_STEP = 4  # each takes 50 us to encode

CHECKS: Mapping[int, Check] = {
    TOPIC: DESCRIBE_TOPIC_CONFIGS,
    BROKER: DESCRIBE_BROKER_CONFIGS,
    BROKER_LOGGER: DESCRIBE_BROKER_CONFIGS,
    GROUP: DESCRIBE_GROUP_CONFIGS,
}
"""The check of each type of resource."""


class Config(NamedTuple):
    """A described setting. Its first synonym is the effective value; without synonyms it has no default."""

    name: str
    value: str
    source: ConfigSource
    type: ConfigType
    is_dynamic: bool
    synonyms: tuple[Synonym, ...]
    doc: str


class ConfigSet(NamedTuple):
    """The settings of a resource. Resources with the same ``key`` have the same settings."""

    key: object
    configs: Iterator[Config]


class ResourceAccess(NamedTuple):
    """Which of the requested resources the client may access. ``verdicts``: by type of resource."""

    checks: Mapping[int, Check]
    verdicts: Mapping[int, Verdicts]

    def refusal(self, resource: Any) -> CoordinatorError | None:
        """Return the error of a denied resource; None if it is allowed, or has a type that is not known."""
        verdicts = self.verdicts.get(resource.resource_type)
        name = CLUSTER_NAME if resource.resource_type in BROKERS else resource.resource_name
        if verdicts is None or verdicts.allows(name):
            return None
        return CoordinatorError(*self.checks[resource.resource_type].denial)


def check_access(call: Call, checks: Mapping[int, Check]) -> Steps[ResourceAccess]:
    verdicts: dict[int, Verdicts] = {}
    names: dict[int, list[str]] = {}
    for resources in pieces(call.request.resources):
        for resource in resources:
            names.setdefault(resource.resource_type, []).append(resource.resource_name)
        yield
    for resource_type in names:
        if resource_type in checks:
            items = CLUSTER if resource_type in BROKERS else names[resource_type]
            verdicts[resource_type] = yield from authorize_in_steps(call, checks[resource_type], items)
    return ResourceAccess(checks, verdicts)


def handle(call: Call) -> Steps[None]:
    """Answer. As in Kafka, the denied resources follow the others."""
    access = yield from check_access(call, CHECKS)
    yield from call.respond_in_steps(
        call.make("DescribeConfigsResponse", throttle_time=NO_THROTTLE, results=results(call, access))
    )


def results(call: Call, access: ResourceAccess) -> Iterator[Any]:
    """Yield the results. All results of a request with the same settings share their bytes."""
    encoded_configs: dict[object, tuple[bytes, ...]] = {}
    denied: list[Any] = []
    for resource in call.request.resources:
        refusal = access.refusal(resource)
        if refusal is not None:
            denied.append(resource)
        else:
            yield from result(call, resource, encoded_configs)
    for resource in denied:
        yield entity(call, resource, access.refusal(resource), ())


def result(call: Call, resource: Any, encoded_configs: dict[object, tuple[bytes, ...]]) -> Iterator[Any]:
    """Yield the result of a resource, after pauses while its settings are encoded."""
    try:
        described_set = find(call, resource.resource_type, resource.resource_name)
    except CoordinatorError as error:
        yield entity(call, resource, error, ())
        return
    keys = resource.configuration_keys
    configs = encoded_configs.get((described_set.key, keys))
    if configs is None:
        configs = yield from encode_configs(call, described_set.configs, frozenset(keys or ()))
        encoded_configs[described_set.key, keys] = configs
    yield entity(call, resource, None, configs)


def encode_configs(call: Call, configs: Iterable[Config], names: frozenset[str]) -> Steps[tuple[bytes, ...]]:
    """The encoded settings with these names; without names, all."""
    encoded: list[bytes] = []
    for piece in pieces(configs, CONFIGS_PER_STEP):
        chosen = (config for config in piece if not names or config.name in names)
        encoded += (call.schema.write_item(described(call, config)) for config in chosen)
        yield
    return tuple(encoded)


def entity(call: Call, resource: Any, refusal: CoordinatorError | None, configs: tuple[bytes, ...]) -> Any:
    return call.make(
        "DescribeConfigsResult",
        error_code=kafka_error(refusal.code if refusal else ErrorCode.NONE),
        error_message=str(refusal) if refusal else "",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def find(call: Call, resource_type: int, name: str) -> ConfigSet:
    """Return the settings of a resource. Raises CoordinatorError."""
    if resource_type == TOPIC:
        return topic_configs(call, name)
    if resource_type == BROKER:
        if not name:
            return ConfigSet(BROKERS, all_brokers_configs(call))
        check_broker(call, name)
        return ConfigSet(BROKER, broker_configs(call))
    if resource_type in (BROKER_LOGGER, GROUP) and not name:
        label = "Broker id" if resource_type == BROKER_LOGGER else "Group name"
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"{label} must not be empty")
    if resource_type == GROUP:
        return group_configs(call, name)
    if resource_type == BROKER_LOGGER:
        check_broker(call, name)
        return ConfigSet(BROKER_LOGGER, iter(()))
    raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"resource type {resource_type}: expected a topic or a broker")


def topic_configs(call: Call, name: str) -> ConfigSet:
    """Return the settings of a topic. Topics that were given the same settings have all in common."""
    check_name(name)
    topic = call.services.topics.get(name)
    if topic is None:
        raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    overrides = internal_overrides(call, name) if topic.is_internal else topic.policy.overrides
    configs = (topic_config(call, overrides, setting) for setting in TOPIC_SETTINGS)
    return ConfigSet((TOPIC, *overrides.items()), configs)


def group_configs(call: Call, name: str) -> ConfigSet:
    """Return the settings of a group. Groups that were given the same settings have all in common."""
    own = call.services.configs.groups.given.get(name, {})
    return ConfigSet((GROUP, *own.items()), (group_config(call, own, setting) for setting in GROUP_SETTINGS))


def group_config(call: Call, own: GroupOverrides, setting: GroupSetting) -> Config:
    """Return a setting of a group: the one it was given, else that of the server."""
    given = [Synonym(setting.name, str(own[setting.name]), ConfigSource.GROUP)] if setting.name in own else []
    synonyms = (*given, *call.services.configs.synonyms(BY_NAME[setting.default]))
    _, value, source = synonyms[0]
    return Config(setting.name, value, source, ConfigType.INT, True, synonyms, setting.doc)


def internal_overrides(call: Call, name: str) -> Overrides:
    segment_bytes = str(call.services.settings.offsets_topic_segment_bytes)
    return {**INTERNAL_TOPIC_SETTINGS.get(name, {}), "segment.bytes": segment_bytes}


def all_brokers_configs(call: Call) -> Iterator[Config]:
    """Return those that were changed, also limits of single listeners."""
    configs = call.services.configs
    settings = (*SETTINGS, *configs.listener_limits.rows)
    return (for_all_brokers(call, setting) for setting in settings if setting.name in configs.all_brokers)


def broker_configs(call: Call) -> Iterator[Config]:
    yield node_id(call)
    yield advertised_listeners(call)
    for setting in (*SETTINGS, *call.services.configs.listener_limits.set_rows()):
        yield broker_config(call, setting)


def check_broker(call: Call, name: str, kind: str = "Broker") -> None:
    """Raise CoordinatorError unless the name is the id of this broker. ``kind``: Kafka's word in this request."""
    if not _INTEGER.fullmatch(name):
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"{kind} id must be an integer, but it is: {name}")
    if int(name) != call.services.cluster.node_id:
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {call.services.cluster.node_id}, but received {name}",
        )


def broker_config(call: Call, setting: Setting) -> Config:
    synonyms = tuple(call.services.configs.synonyms(setting))
    return config_of(setting, synonyms)


def for_all_brokers(call: Call, setting: Setting) -> Config:
    """Return the value for all brokers, whatever this broker overrides."""
    synonyms = (
        synonym for synonym in call.services.configs.synonyms(setting) if synonym.source is ConfigSource.ALL_BROKERS
    )
    return config_of(setting, tuple(synonyms))


def config_of(setting: Setting, synonyms: tuple[Synonym, ...]) -> Config:
    """As in Kafka, a limit of a single listener is described as read-only, although it can be changed."""
    name, value, source = synonyms[0]
    is_dynamic = setting.is_dynamic and not is_limit(setting.name)
    return Config(name, value, source, config_type_of(setting), is_dynamic, synonyms, setting.doc)


def node_id(call: Call) -> Config:
    """Return the id of this broker, which is not a setting here; clients need it to distinguish brokers."""
    only = Synonym("node.id", str(call.services.cluster.node_id), ConfigSource.STATIC)
    return Config(*only, ConfigType.INT, False, (only,), "The id of this broker.")


def advertised_listeners(call: Call) -> Config:
    """Return the advertised listeners, which are not a setting here; clients' tools show them."""
    addresses = call.services.cluster.addresses
    only = Synonym("advertised.listeners", format_listeners(addresses), ConfigSource.STATIC)
    return Config(*only, ConfigType.LIST, False, (only,), "The addresses that clients connect to.")


def topic_config(call: Call, overrides: Overrides, setting: TopicSetting) -> Config:
    """Return a setting of a topic: the one it was given, else that of the server, else Kafka's default."""
    synonyms = (*own_synonyms(overrides, setting), *default_synonyms(call, setting))
    _, value, source = synonyms[0] if synonyms else Synonym(setting.name, setting.default, ConfigSource.DEFAULT)
    return Config(setting.name, value, source, setting.type, True, synonyms, setting.doc)


def own_synonyms(overrides: Overrides, setting: TopicSetting) -> list[Synonym]:
    """Return the value that the topic was given."""
    text = overrides.get(setting.name)
    return [] if text is None else [Synonym(setting.name, text, ConfigSource.TOPIC)]


def default_synonyms(call: Call, setting: TopicSetting) -> list[Synonym]:
    server_setting = BY_NAME.get((setting.synonym or "").replace(".", "_"))
    if server_setting is not None:
        return call.services.configs.synonyms(server_setting)
    return [Synonym(setting.synonym, setting.default, ConfigSource.DEFAULT)] if setting.synonym is not None else []


def described(call: Call, config: Config) -> Any:
    request = call.request
    synonyms = config.synonyms if request.include_synonyms else ()
    return call.make(
        "DescribeConfigsResourceResult",
        name=config.name,
        value=config.value,
        read_only=not config.is_dynamic,
        config_source=config.source,
        is_sensitive=False,
        synonyms=tuple(
            call.make("DescribeConfigsSynonym", name=name, value=value, source=source)
            for name, value, source in synonyms
        ),
        config_type=config.type,
        documentation=config.doc if getattr(request, "include_documentation", False) else None,
    )
