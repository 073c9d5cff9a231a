"""Settings of topics in CreateTopics, DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.

The expected values and messages were read from Kafka 4.3.1.
"""

from __future__ import annotations

from typing import Any

import pytest
from topic_api_helpers import ApiRequest, FakeServices, create_topics, known_fields, newest, node

from callboard.actors.errors import ErrorCode
from callboard.runtime.settings.dynamic import ConfigSource

__all__ = ["node"]

TOPIC = 2
SET, DELETE, APPEND, SUBTRACT = range(4)

Operation = tuple[str, int, str | None]


def alter(node: FakeServices, *operations: Operation, validate_only: bool = False, name: str = "t") -> tuple[int, str]:
    """Change single settings; return the error."""

    def build(types: Any) -> Any:
        configs = tuple(
            types.AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in operations
        )
        resource = types.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=configs)
        return types.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)

    [result] = ApiRequest(
        node, "incremental_alter_configs", newest("incremental_alter_configs"), build
    ).answer.responses
    return result.error_code, result.error_message or ""


def replace(node: FakeServices, settings: dict[str, str]) -> int:
    """Replace all settings; return the error code."""

    def build(types: Any) -> Any:
        configs = tuple(types.AlterableConfig(name=key, value=value) for key, value in settings.items())
        resource = types.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=configs)
        return types.AlterConfigsRequest(resources=(resource,), validate_only=False)

    [result] = ApiRequest(node, "alter_configs", newest("alter_configs"), build).answer.responses
    return int(result.error_code)


def described(node: FakeServices, *names: str, version: int = newest("describe_configs")) -> dict[str, dict[str, Any]]:
    """All settings of the topics, by topic and name."""

    def build(types: Any) -> Any:
        resources = tuple(
            types.DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)
            for name in names
        )
        return known_fields(
            types.DescribeConfigsRequest, resources=resources, include_synonyms=True, include_documentation=False
        )

    results = ApiRequest(node, "describe_configs", version, build).answer.results
    return {result.resource_name: {config.name: config for config in result.configs} for result in results}


def own(node: FakeServices, name: str = "t") -> dict[str, str]:
    """The settings that the topic was given."""
    return {
        key: config.value
        for key, config in described(node, name)[name].items()
        if config.config_source == ConfigSource.TOPIC
    }


def test_create_topics_keeps_settings_and_returns_them(node: FakeServices) -> None:
    settings = {"cleanup.policy": "compact", "retention.ms": " 1000 "}
    results = create_topics(node, {"name": "t", "configs": settings}, {"name": "plain"})
    tables = {name: {config.name: config for config in result.configs} for name, result in results.items()}
    assert tables["t"]["cleanup.policy"].value == "compact"
    assert tables["t"]["retention.ms"].config_source == ConfigSource.TOPIC
    assert tables["plain"]["cleanup.policy"].value == "delete"
    assert own(node) == {"cleanup.policy": "compact", "retention.ms": "1000"}
    assert own(node, "plain") == {}


def test_create_topics_with_invalid_setting_is_refused(node: FakeServices) -> None:
    result = create_topics(node, {"name": "t", "configs": {"retention.ms": "x"}})["t"]
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert result.error_message == "Invalid value x for configuration retention.ms: Not a number of type LONG"
    assert node.topics.get("t") is None


def test_describe_configs_of_topics_with_different_settings_in_one_request(node: FakeServices) -> None:
    create_topics(node, {"name": "t", "configs": {"cleanup.policy": "compact"}}, {"name": "plain"})
    configs = described(node, "t", "plain", "__consumer_offsets")
    values = {name: table["cleanup.policy"].value for name, table in configs.items()}
    assert values == {"t": "compact", "plain": "delete", "__consumer_offsets": "compact"}
    synonyms = [(synonym.name, synonym.value, synonym.source) for synonym in configs["t"]["cleanup.policy"].synonyms]
    assert synonyms == [
        ("cleanup.policy", "compact", ConfigSource.TOPIC),
        ("log.cleanup.policy", "delete", ConfigSource.DEFAULT),
    ]


@pytest.mark.parametrize(
    ("operations", "settings"),
    [
        ([("cleanup.policy", APPEND, "delete")], {"cleanup.policy": "compact,delete", "retention.ms": "1000"}),
        ([("cleanup.policy", APPEND, "compact")], {"cleanup.policy": "compact", "retention.ms": "1000"}),
        ([("cleanup.policy", SUBTRACT, "compact")], {"cleanup.policy": "", "retention.ms": "1000"}),
        ([("cleanup.policy", DELETE, None)], {"retention.ms": "1000"}),
        ([("foo", DELETE, None)], {"cleanup.policy": "compact", "retention.ms": "1000"}),
        (
            [("retention.ms", SET, " 77 "), ("segment.ms", SET, "5")],
            {"cleanup.policy": "compact", "retention.ms": "77", "segment.ms": "5"},
        ),
    ],
)
def test_incremental_alter_configs_of_topic(
    node: FakeServices, operations: list[Operation], settings: dict[str, str]
) -> None:
    create_topics(node, {"name": "t", "configs": {"cleanup.policy": "compact", "retention.ms": "1000"}})
    assert alter(node, *operations, validate_only=True) == (0, "")
    assert own(node) == {"cleanup.policy": "compact", "retention.ms": "1000"}
    assert alter(node, *operations) == (0, "")
    assert own(node) == settings


def test_incremental_alter_configs_append_to_default_keeps_default(node: FakeServices) -> None:
    create_topics(node, {"name": "t"})
    assert alter(node, ("cleanup.policy", APPEND, "compact")) == (0, "")
    assert own(node) == {"cleanup.policy": "delete,compact"}


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (("retention.ms", APPEND, "5"), "Can't APPEND to key retention.ms because its type is not LIST."),
        (("foo", SUBTRACT, "5"), "Can't SUBTRACT to key foo because its type is not LIST."),
        (("foo", SET, "5"), "Unknown topic config name: foo"),
        (
            ("cleanup.policy", APPEND, "bad"),
            "Invalid value bad for configuration cleanup.policy: String must be one of: compact, delete",
        ),
    ],
)
def test_incremental_alter_configs_of_topic_with_invalid_operation_is_refused(
    node: FakeServices, operation: Operation, message: str
) -> None:
    create_topics(node, {"name": "t", "configs": {"retention.ms": "1000"}})
    for validate_only in (True, False):
        assert alter(node, operation, validate_only=validate_only) == (ErrorCode.INVALID_CONFIG, message)
    assert own(node) == {"retention.ms": "1000"}


def test_incremental_alter_configs_of_unknown_topic_is_refused(node: FakeServices) -> None:
    refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'missing' does not exist."
    assert alter(node, ("retention.ms", SET, "5"), name="missing") == refusal


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("not a name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (".", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_REQUEST),
    ],
)
def test_incremental_alter_configs_of_invalid_topic_name_is_refused(
    node: FakeServices, name: str, code: ErrorCode
) -> None:
    assert alter(node, ("retention.ms", SET, "5"), name=name)[0] == code


def test_alter_configs_replaces_settings_of_topic(node: FakeServices) -> None:
    create_topics(node, {"name": "t", "configs": {"cleanup.policy": "compact", "retention.ms": "1000"}})
    assert replace(node, {"retention.bytes": "5"}) == 0
    assert own(node) == {"retention.bytes": "5"}
    assert replace(node, {"foo": "5"}) == ErrorCode.INVALID_CONFIG
    assert own(node) == {"retention.bytes": "5"}
