"""CreateTopics (19). The answer comes when the topics are durable, so a client may use them at once.

One broker has one replica of everything: a replication factor other than 1 is refused, as by a Kafka of one node. A
topic's settings are checked by name and have no effect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ....actors.errors import CoordinatorError, ErrorCode
from ...settings.table import PARTITIONS_MAX
from ...topics.settings import NAMES as TOPIC_NAMES
from ...topics.settings import TOPIC_SETTINGS
from ...topics.topic import Topic
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error
from .describe_configs import topic_config

SETTINGS_FROM = 5  # KIP-525
BY_DEFAULT = -1
REPLICAS = 1

Outcome = Topic | CoordinatorError | int
"""The topic that was made, why it was not, or the partitions it would have had."""


def handle(call: Call) -> None:
    asked = {topic.name: topic for topic in call.request.topics}
    outcomes: dict[str, Outcome] = examine(call, asked)
    wanted = [(name, outcome) for name, outcome in outcomes.items() if isinstance(outcome, int)]
    if call.request.validate_only or not wanted:
        call.reply_bytes(encode(call, outcomes))
    else:
        call.node.topics.create_many(wanted, partial(finish, call, outcomes))


def finish(call: Call, outcomes: dict[str, Outcome], created: Sequence[Topic | CoordinatorError]) -> None:
    """The topics are durable, or it is known why not."""
    names = [name for name, outcome in outcomes.items() if isinstance(outcome, int)]
    call.finish(lambda: encode(call, {**outcomes, **dict(zip(names, created, strict=True))}))


def encode(call: Call, outcomes: Mapping[str, Outcome]) -> bytes:
    settings = described_settings(call) if call.version >= SETTINGS_FROM else ()
    topics = tuple(answer(call, name, outcome, settings) for name, outcome in outcomes.items())
    return call.schema.write(call.make("CreateTopicsResponse", throttle_time=NO_THROTTLE, topics=topics))


def examine(call: Call, asked: dict[str, Any]) -> dict[str, Outcome]:
    """For each name the number of partitions to make, or the refusal."""
    times = Counter(topic.name for topic in call.request.topics)
    default = call.node.settings.num_partitions
    total = sum(max(partitions_of(topic, default), 0) for topic in asked.values())
    outcomes: dict[str, Outcome] = {}
    beside = 0
    for name, topic in asked.items():
        try:
            check_total(total)
            outcomes[name] = check(call, topic, times[name], partitions_of(topic, default), beside)
            beside += partitions_of(topic, default)
        except CoordinatorError as refusal:
            outcomes[name] = refusal
    return outcomes


def partitions_of(topic: Any, default: int) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return default if topic.num_partitions == BY_DEFAULT else int(topic.num_partitions)


def check_total(partitions: int) -> None:
    if partitions > PARTITIONS_MAX:
        raise CoordinatorError(
            ErrorCode.POLICY_VIOLATION, f"{partitions} partitions in one request: expected at most {PARTITIONS_MAX}"
        )


def check(call: Call, topic: Any, times: int, partitions: int, beside: int) -> int:
    """The partitions of a topic that may be made beside others. Raises CoordinatorError with Kafka's code."""
    if times > 1:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} stands twice in the request")
    call.node.topics.check_new(topic.name, partitions, beside)
    check_settings(topic.configs)
    if topic.assignments:
        check_assignments(topic, call.node.node_id)
    elif topic.replication_factor not in (REPLICAS, BY_DEFAULT):
        raise CoordinatorError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {topic.replication_factor}: expected {REPLICAS}, or {BY_DEFAULT} for the default",
        )
    return partitions


def check_settings(configs: Iterable[Any]) -> None:
    for config in configs:
        if config.name not in TOPIC_NAMES:
            raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"unknown topic setting {config.name!r}")
        if config.value is None:
            raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"no value for topic setting {config.name!r}")


def check_assignments(topic: Any, node_id: int) -> None:
    """A topic with a manual assignment: partitions 0, 1, 2, ... each on this broker, and no numbers beside it."""
    if (topic.num_partitions, topic.replication_factor) != (BY_DEFAULT, BY_DEFAULT):
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST, "a manual assignment: expected -1 partitions and replication factor -1"
        )
    indexes = sorted(assignment.partition_index for assignment in topic.assignments)
    if indexes != list(range(len(indexes))):
        raise CoordinatorError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "expected each partition from 0 on, once")
    for assignment in topic.assignments:
        if assignment.broker_ids != (node_id,):
            raise CoordinatorError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {assignment.partition_index} on {list(assignment.broker_ids)}: expected [{node_id}]",
            )


def described_settings(call: Call) -> tuple[Any, ...]:
    """What every new topic has, whatever its request says."""
    found = (topic_config(call, "", setting) for setting in TOPIC_SETTINGS)
    return tuple(
        call.make(
            "CreatableTopicConfigs",
            name=config.name,
            value=config.value,
            read_only=False,
            config_source=config.source,
            is_sensitive=False,
        )
        for config in found
    )


def answer(call: Call, name: str, outcome: Outcome, settings: tuple[Any, ...]) -> Any:
    refusal = outcome if isinstance(outcome, CoordinatorError) else None
    partitions = len(outcome.partitions) if isinstance(outcome, Topic) else outcome
    return call.make(
        "CreatableTopicResult",
        name=name,
        topic_id=outcome.topic_id if isinstance(outcome, Topic) else None,
        error_code=kafka_error(refusal.code if refusal else ErrorCode.NONE),
        error_message=str(refusal) if refusal else None,
        num_partitions=-1 if refusal else partitions,
        replication_factor=-1 if refusal else REPLICAS,
        configs=() if refusal else settings,
    )
