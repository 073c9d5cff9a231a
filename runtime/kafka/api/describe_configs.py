"""DescribeConfigs (32): the settings of this broker, what was changed for all brokers, and what topics have.

Kafka's other settings are not here: what a client asks for by name and is not known is left out, as Kafka does. Groups
are a kind of resource too, but all settings that Kafka has for one are of protocols that are not served here (KIP-848
and later), so a group has none. Nor are there loggers whose levels could be seen or changed (KIP-412).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ....actors.errors import CoordinatorError, ErrorCode
from ...settings.dynamic import Source, Synonym, Type, type_of
from ...settings.table import BY_NAME, SETTINGS, Address, Setting
from ...topics.names import check_name
from ...topics.settings import INTERNAL_TOPIC_SETTINGS, TOPIC_SETTINGS, TopicSetting
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32  # resource types


class Config(NamedTuple):
    """A setting as it is described. Its first synonym is what holds; without one it has no default either."""

    name: str
    value: str
    source: Source
    type: Type
    is_dynamic: bool
    synonyms: tuple[Synonym, ...]
    doc: str


def handle(call: Call) -> None:
    results = tuple(result(call, asked) for asked in call.request.resources)
    call.reply(call.make("DescribeConfigsResponse", throttle_time=NO_THROTTLE, results=results))


def result(call: Call, asked: Any) -> Any:
    refusal: CoordinatorError | None = None
    found: Iterable[Config] = ()
    try:
        found = find(call, asked.resource_type, asked.resource_name)
    except CoordinatorError as error:
        refusal = error
    keys = asked.configuration_keys
    return call.make(
        "DescribeConfigsResult",
        error_code=kafka_error(refusal.code if refusal else ErrorCode.NONE),
        error_message=str(refusal) if refusal else "",
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=tuple(described(call, config) for config in found if not keys or config.name in keys),
    )


def find(call: Call, resource_type: int, name: str) -> list[Config]:
    """The settings of a resource. Raises CoordinatorError with Kafka's code."""
    if resource_type == TOPIC:
        check_name(name)
        if call.node.topics.get(name) is None:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return [topic_config(call, name, setting) for setting in TOPIC_SETTINGS]
    if resource_type == BROKER:
        if not name:
            return [
                for_all_brokers(call, setting) for setting in SETTINGS if setting.name in call.node.configs.all_brokers
            ]
        check_broker(call, name)
        return [node_id(call), advertised_listeners(call), *(broker_config(call, setting) for setting in SETTINGS)]
    if resource_type in (BROKER_LOGGER, GROUP):
        if not name:
            what = "Broker id" if resource_type == BROKER_LOGGER else "Group name"
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"{what} must not be empty")
        if resource_type == BROKER_LOGGER:
            check_broker(call, name)
        return []
    raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"resource type {resource_type}: expected a topic or a broker")


def check_broker(call: Call, name: str) -> None:
    """Raise CoordinatorError unless a name is our node id."""
    try:
        node_id = int(name)
    except ValueError:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
    if node_id != call.node.node_id:
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {call.node.node_id}, but received {name}"
        )


def broker_config(call: Call, setting: Setting) -> Config:
    synonyms = tuple(call.node.configs.synonyms(setting))
    return config_of(setting, synonyms)


def for_all_brokers(call: Call, setting: Setting) -> Config:
    """What was changed for all brokers, whatever this one has for itself."""
    synonyms = (one for one in call.node.configs.synonyms(setting) if one.source is Source.ALL_BROKERS)
    return config_of(setting, tuple(synonyms))


def config_of(setting: Setting, synonyms: tuple[Synonym, ...]) -> Config:
    name, value, source = synonyms[0]
    return Config(name, value, source, type_of(setting), setting.is_dynamic, synonyms, setting.doc)


def node_id(call: Call) -> Config:
    """It is no setting, but clients tell brokers apart by it."""
    only = Synonym("node.id", str(call.node.node_id), Source.STATIC)
    return Config(*only, Type.INT, False, (only,), "The number of this broker.")


def advertised_listeners(call: Call) -> Config:
    """Nor is this, and clients' tools show it."""
    address = Address(call.node.advertised_host, call.node.advertised_port)
    only = Synonym("advertised.listeners", f"PLAINTEXT://{address}", Source.STATIC)
    return Config(*only, Type.LIST, False, (only,), "Where clients reach this broker.")


def topic_config(call: Call, topic: str, setting: TopicSetting) -> Config:
    """A client's topic has no settings of its own: what it has comes from the server, or is Kafka's default."""
    synonyms = (*own_synonyms(call, topic, setting), *default_synonyms(call, setting))
    _, value, source = synonyms[0] if synonyms else Synonym(setting.name, setting.default, Source.DEFAULT)
    return Config(setting.name, value, source, setting.type, True, synonyms, setting.doc)


def own_synonyms(call: Call, topic: str, setting: TopicSetting) -> list[Synonym]:
    """What one of the coordinator's own topics has for itself."""
    own = dict(INTERNAL_TOPIC_SETTINGS.get(topic, {}))
    if own:
        own["segment.bytes"] = str(call.node.settings.offsets_topic_segment_bytes)
    return [Synonym(setting.name, own[setting.name], Source.TOPIC)] if setting.name in own else []


def default_synonyms(call: Call, setting: TopicSetting) -> list[Synonym]:
    followed = BY_NAME.get((setting.synonym or "").replace(".", "_"))
    if followed is not None:
        return call.node.configs.synonyms(followed)
    return [Synonym(setting.synonym, setting.default, Source.DEFAULT)] if setting.synonym is not None else []


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
