"""What a request names twice, or many of its items have in common, is read and encoded once."""

from __future__ import annotations

from typing import Any

import pytest
from topic_api_helpers import ApiRequest, FakeServices, fetch, known_fields, made, metadata, newest
from topic_api_helpers import node as node  # a fixture
from topics_helpers import producer_batch

from callboard.actors.errors import ErrorCode
from callboard.runtime.kafka.api import api_versions, describe_configs
from callboard.runtime.kafka.api import metadata as metadata_api

BROKER = 4
RESOURCES = 40


def count_calls(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[None]:
    """A list that grows by one item with each call of a function."""
    calls: list[None] = []
    original = getattr(module, name)

    def counted(*values: Any) -> Any:
        calls.append(None)
        return original(*values)

    monkeypatch.setattr(module, name, counted)
    return calls


def test_fetch_of_a_partition_twice_answers_the_last_entry_once(node: FakeServices) -> None:
    """Kafka keeps the partitions in a LinkedHashMap (FetchRequest.fetchData)."""
    topic = made(node)
    topic.append(0, producer_batch(3))
    [only, other] = fetch(node, ("plays", 0, 99), ("plays", 1, 0), ("plays", 0, 0))
    assert (only.partition_index, only.error_code, other.partition_index) == (0, ErrorCode.NONE, 1)
    assert bytes(only.records) == bytes(topic.partitions[0].read(0, 1000))


def test_describe_configs_encodes_equal_settings_once(node: FakeServices, monkeypatch: pytest.MonkeyPatch) -> None:
    described = count_calls(monkeypatch, describe_configs, "described")

    def build(types: Any) -> Any:
        resource = known_fields(
            types.DescribeConfigsResource, resource_type=BROKER, resource_name="1", configuration_keys=None
        )
        return known_fields(types.DescribeConfigsRequest, resources=(resource,) * RESOURCES)

    results = ApiRequest(node, "describe_configs", newest("describe_configs"), build).answer.results
    assert len(results) == RESOURCES
    assert all(result == results[0] for result in results)
    assert len(described) == len(results[0].configs) > 10


def test_metadata_encodes_one_entry_for_all_partitions_with_the_same_leader(
    node: FakeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = count_calls(monkeypatch, metadata_api, "partition_entry")
    for number in range(30):
        made(node, f"topic-{number}", 2)
    topics = metadata(node, [f"topic-{number}" for number in range(30)]).topics
    assert [len(topic.partitions) for topic in topics] == [2] * 30
    assert len(entries) == 1


def test_api_versions_is_encoded_once_for_all_clients(node: FakeServices, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = count_calls(monkeypatch, api_versions, "_api_version")

    def ask(name: str) -> Any:
        def build(types: Any) -> Any:
            return types.ApiVersionsRequest(client_software_name=name, client_software_version="1")

        return ApiRequest(node, "api_versions", newest("api_versions"), build).answer

    api_versions._body.cache_clear()
    first, second, refused = ask("one"), ask("other"), ask("?")
    assert first == second
    assert len(first.api_keys) == len(entries)
    assert (refused.error_code, refused.api_keys) == (ErrorCode.INVALID_REQUEST, ())
