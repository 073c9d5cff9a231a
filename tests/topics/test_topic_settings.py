"""Settings that topics are given: valid values, the file, and what they do to records in memory.

The expected messages were read from Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from topics_helpers import open_catalogue, open_copy, producer_batch

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.runtime.disk.group_commit import immediate_outcome
from callboard.runtime.topics.catalogue import TopicCatalogue
from callboard.runtime.topics.setting_values import VALUE_CHARS_MAX, check_overrides
from callboard.runtime.topics.settings import TOPIC_SETTINGS
from callboard.runtime.topics.store import NewTopic
from callboard.runtime.topics.topic import Topic

BATCH_BYTES = len(producer_batch())
REPLICAS = "leader.replication.throttled.replicas"
REPLICAS_FORMAT = (
    f"{REPLICAS} must be the literal '*' or a list of replicas in the following format:"
    " [partitionId]:[brokerId],[partitionId]:[brokerId],..."
)

INVALID = [
    ("cleanup.policy", "compact,bad", "bad", "String must be one of: compact, delete"),
    ("compression.gzip.level", "0", "0", "Value must be between 1 and 9 or equal to -1"),
    ("compression.lz4.level", "18", "18", "Value must be no more than 17"),
    ("segment.bytes", "1", "1", "Value must be at least 1048576"),
    ("max.message.bytes", "2147483648", "2147483648", "Not a number of type INT"),
    ("retention.bytes", str(2**63), str(2**63), "Not a number of type LONG"),
    ("retention.ms", "1.5", "1.5", "Not a number of type LONG"),
    ("retention.ms", "-2", "-2", "Value must be at least -1"),
    ("min.cleanable.dirty.ratio", "x", "x", "Not a number of type DOUBLE"),
    ("min.cleanable.dirty.ratio", "1.1", "1.1", "Value must be no more than 1"),
    ("message.timestamp.type", "x", "x", "String must be one of: CreateTime, LogAppendTime"),
    ("preallocate", "yes", "yes", "Expected value to be either true or false"),
    (REPLICAS, "0:1,x", "[0:1, x]", REPLICAS_FORMAT),
]
CONTRADICTING = [
    (
        {"remote.storage.enable": "true"},
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
    ),
    (
        {"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "50"},
        "conflict topic config setting min.compaction.lag.ms (100) > max.compaction.lag.ms (50)",
    ),
    ({"foo": "1", "bar": "2", "retention.ms": "x"}, "Unknown topic config name: bar"),
]

VALID = [
    ("cleanup.policy", " compact , delete ", "compact,delete"),
    ("cleanup.policy", "", ""),
    ("max.message.bytes", " 12 ", "12"),
    ("max.message.bytes", "+5", "5"),
    ("preallocate", "True ", "true"),
    ("retention.bytes", "-2", "-2"),
    ("min.cleanable.dirty.ratio", "0.7", "0.7"),
    (REPLICAS, "*", "*"),
]


def created(catalogue: TopicCatalogue, settings: Mapping[str, str], partitions: int = 1) -> Topic:
    new = NewTopic("kept", partitions, check_overrides(settings))
    [topic] = immediate_outcome(partial(catalogue.create_many, [new]))
    assert isinstance(topic, Topic)
    return topic


def alter(catalogue: TopicCatalogue, topic: Topic, settings: Mapping[str, str]) -> CoordinatorError | None:
    refusal: CoordinatorError | None = immediate_outcome(partial(catalogue.alter, topic, lambda _: settings))
    return refusal


def refusal_of(given: Mapping[str, str]) -> tuple[ErrorCode, str]:
    with pytest.raises(CoordinatorError) as caught:
        check_overrides(given)
    return caught.value.code, str(caught.value)


@pytest.mark.parametrize(("name", "given", "shown", "reason"), INVALID)
def test_invalid_topic_setting_is_refused_with_message_of_kafka(name: str, given: str, shown: str, reason: str) -> None:
    message = f"Invalid value {shown} for configuration {name}: {reason}"
    assert refusal_of({name: given}) == (ErrorCode.INVALID_CONFIG, message)


@pytest.mark.parametrize(("given", "message"), CONTRADICTING)
def test_unknown_and_contradicting_topic_settings_are_refused(given: dict[str, str], message: str) -> None:
    assert refusal_of(given) == (ErrorCode.INVALID_CONFIG, message)


@pytest.mark.parametrize(("name", "given", "kept"), VALID)
def test_valid_topic_setting_is_kept_in_its_usual_form(name: str, given: str, kept: str) -> None:
    assert check_overrides({name: given}) == {name: kept}


def test_defaults_of_topic_settings_are_valid() -> None:
    defaults = {setting.name: setting.default for setting in TOPIC_SETTINGS}
    assert check_overrides(defaults) == defaults


def test_topic_setting_with_very_long_value_is_refused() -> None:
    with pytest.raises(CoordinatorError, match="at most 4096 characters"):
        check_overrides({REPLICAS: ",".join(["1:1"] * VALUE_CHARS_MAX)})


def test_settings_of_topic_survive_restart_and_changes(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    catalogue = open_catalogue(tmp_path)
    topic = created(catalogue, {"cleanup.policy": "compact", "retention.ms": "1000"})
    assert alter(catalogue, topic, {"max.message.bytes": "100"}) is None
    immediate_outcome(partial(catalogue.grow, topic, 3))
    assert topic.policy.overrides == {"max.message.bytes": "100"}
    again = open_copy(tmp_path, tmp_path / "copy").get("kept")
    assert again is not None
    assert (again.policy.overrides, len(again.partitions)) == ({"max.message.bytes": "100"}, 3)


def test_refused_change_of_topic_settings_changes_nothing(tmp_path: Path) -> None:
    catalogue = open_catalogue(tmp_path)
    topic = created(catalogue, {"retention.ms": "1000"})
    file = (tmp_path / "topics.json").read_bytes()
    refusal = alter(catalogue, topic, {"retention.ms": "x"})
    assert refusal is not None
    assert refusal.code is ErrorCode.INVALID_CONFIG
    assert topic.policy.overrides == {"retention.ms": "1000"}
    assert (tmp_path / "topics.json").read_bytes() == file


def test_settings_of_coordinator_topic_cannot_change(tmp_path: Path) -> None:
    catalogue = open_catalogue(tmp_path)
    internal = catalogue.get("__consumer_offsets")
    assert internal is not None
    refusal = alter(catalogue, internal, {"retention.ms": "1"})
    assert refusal is not None
    assert refusal.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_settings_count_as_memory(tmp_path: Path) -> None:
    catalogue = open_catalogue(tmp_path)
    topic = created(catalogue, {})
    before = catalogue.memory_bytes
    assert alter(catalogue, topic, {REPLICAS: ",".join(["1:1"] * 1000)}) is None
    assert catalogue.memory_bytes >= before + 4000
    assert alter(catalogue, topic, {}) is None
    assert catalogue.memory_bytes == before


def test_change_of_settings_does_not_change_version_that_groups_watch(tmp_path: Path) -> None:
    catalogue = open_catalogue(tmp_path)
    topic = created(catalogue, {})
    version = catalogue.files.table.version
    alter(catalogue, topic, {"retention.ms": "1"})
    assert catalogue.files.table.version == version


def test_append_above_max_message_bytes_is_refused_until_the_setting_is_deleted(tmp_path: Path) -> None:
    catalogue = open_catalogue(tmp_path)
    topic = created(catalogue, {"max.message.bytes": str(BATCH_BYTES - 1)})
    with pytest.raises(CoordinatorError) as caught:
        topic.append(0, producer_batch())
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    alter(catalogue, topic, {})
    assert topic.append(0, producer_batch()) == 0


def test_retention_bytes_of_topic_limits_each_partition(tmp_path: Path) -> None:
    topic = created(open_catalogue(tmp_path), {"retention.bytes": str(2 * BATCH_BYTES)}, partitions=2)
    for index in (0, 0, 0, 0, 1, 1, 1):
        topic.append(index, producer_batch())
    assert [(log.start_offset, log.end_offset) for log in topic.partitions] == [(2, 4), (1, 3)]
    assert topic.held_bytes == 4 * BATCH_BYTES


@pytest.mark.parametrize("settings", [{"retention.bytes": "-1"}, {"cleanup.policy": "compact", "retention.bytes": "1"}])
def test_topic_without_limit_or_only_compacted_drops_nothing_by_size(tmp_path: Path, settings: dict[str, Any]) -> None:
    topic = created(open_catalogue(tmp_path), settings)
    for _ in range(5):
        topic.append(0, producer_batch())
    assert topic.partitions[0].start_offset == 0
