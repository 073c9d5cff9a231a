"""CreateTopics (19). Answered when the topics are durable, so a client may use them at once.

A replication factor other than 1 is refused, as in a Kafka cluster of one broker. Names of topic settings are checked;
the settings have no effect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.steps import Steps
from ...settings.table import PARTITIONS_MAX
from ...topics.settings import NAMES as TOPIC_NAMES
from ...topics.settings import TOPIC_SETTINGS
from ...topics.topic import Topic
from ..authorize import Verdicts, authorize_in_steps
from ..call import Body, Call
from ..checks import CREATE_TOPIC, DESCRIBE_NEW_TOPIC_CONFIGS
from ..codec.codes import NO_THROTTLE, kafka_error
from ..codec.step_writer import write_in_steps
from .describe_configs import topic_config

SETTINGS_FROM = 5  # KIP-525
USE_DEFAULT = -1
REPLICAS = 1
CHECKS_PER_STEP = 16  # each takes about 5 us

CreateOutcome = Topic | CoordinatorError | int
"""The created topic, the refusal, or the number of partitions that are to be created."""


def handle(call: Call) -> Steps[None]:
    requests = {topic.name: topic for topic in call.request.topics}
    outcomes = yield from check_all(call, requests)
    to_create = [(name, outcome) for name, outcome in outcomes.items() if isinstance(outcome, int)]
    if call.request.validate_only or not to_create:
        call.encode_and_respond(lambda: encode(call, outcomes))
    else:
        call.services.topic_admin.create(to_create, partial(finish, call, outcomes))


def finish(call: Call, outcomes: dict[str, CreateOutcome], created: Sequence[Topic | CoordinatorError]) -> None:
    """Answer with the created topics and the refusals."""
    names = [name for name, outcome in outcomes.items() if isinstance(outcome, int)]
    call.encode_and_respond(lambda: encode(call, {**outcomes, **dict(zip(names, created, strict=True))}))


def encode(call: Call, outcomes: Mapping[str, CreateOutcome]) -> Body:
    return write_in_steps(call.make("CreateTopicsResponse", throttle_time=NO_THROTTLE, topics=answers(call, outcomes)))


def answers(call: Call, outcomes: Mapping[str, CreateOutcome]) -> Iterator[Any]:
    """Yield the results. The settings of a new topic are the same for all, so they are encoded once."""
    settings: tuple[bytes, ...] = ()
    if call.version >= SETTINGS_FROM:
        settings = tuple(call.schema.write_item(config) for config in described_settings(call))
    verdicts = yield from authorize_in_steps(call, DESCRIBE_NEW_TOPIC_CONFIGS, outcomes)
    for name, outcome in outcomes.items():
        yield answer(call, name, outcome, settings if verdicts.allows(name) else (), verdicts.error_of(name))


def check_all(call: Call, requests: dict[str, Any]) -> Steps[dict[str, CreateOutcome]]:
    """Return for each name the number of partitions to create, or the refusal."""
    occurrences = Counter(topic.name for topic in call.request.topics)
    verdicts = yield from authorize_in_steps(call, CREATE_TOPIC, requests)
    default = call.services.settings.num_partitions
    total = sum(max(partitions_of(topic, default), 0) for topic in requests.values())
    outcomes: dict[str, CreateOutcome] = {}
    already_requested = 0
    for number, (name, topic) in enumerate(requests.items(), 1):
        try:
            check_total(total)
            check_request(name, occurrences[name], verdicts)
            outcomes[name] = check(call, topic, partitions_of(topic, default), already_requested)
            already_requested += partitions_of(topic, default)
        except CoordinatorError as refusal:
            outcomes[name] = refusal
        if number % CHECKS_PER_STEP == 0:
            yield
    return outcomes


def partitions_of(topic: Any, default: int) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return default if topic.num_partitions == USE_DEFAULT else int(topic.num_partitions)


def check_total(partitions: int) -> None:
    if partitions > PARTITIONS_MAX:
        raise CoordinatorError(
            ErrorCode.POLICY_VIOLATION, f"{partitions} partitions in one request: expected at most {PARTITIONS_MAX}"
        )


def check_request(name: str, occurrences: int, verdicts: Verdicts) -> None:
    """Raise CoordinatorError if a topic occurs more than once, or is denied."""
    if occurrences > 1:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"topic {name!r} occurs twice in the request")
    if not verdicts.allows(name):
        raise CoordinatorError(verdicts.code, "Authorization failed.")


def check(call: Call, topic: Any, partitions: int, already_requested: int) -> int:
    """Return the number of partitions. Raises CoordinatorError if the topic cannot be created.

    ``already_requested``: partitions of other topics of this request.
    """
    call.services.topic_admin.check_new(topic.name, partitions, already_requested)
    check_settings(topic.configs)
    if topic.assignments:
        check_assignments(topic, call.services.cluster.node_id)
    elif topic.replication_factor not in (REPLICAS, USE_DEFAULT):
        raise CoordinatorError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {topic.replication_factor}: expected {REPLICAS}, or {USE_DEFAULT} for the default",
        )
    return partitions


def check_settings(configs: Iterable[Any]) -> None:
    for config in configs:
        if config.name not in TOPIC_NAMES:
            raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"unknown topic setting {config.name!r}")
        if config.value is None:
            raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"no value for topic setting {config.name!r}")


def check_assignments(topic: Any, node_id: int) -> None:
    """Check a manual assignment: partitions 0, 1, 2, ... each on this broker, without partition count and factor."""
    if (topic.num_partitions, topic.replication_factor) != (USE_DEFAULT, USE_DEFAULT):
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
    """Return the settings of a new topic, which are the same for all topics."""
    configs = (topic_config(call, "", setting) for setting in TOPIC_SETTINGS)
    return tuple(
        call.make(
            "CreatableTopicConfigs",
            name=config.name,
            value=config.value,
            read_only=False,
            config_source=config.source,
            is_sensitive=False,
        )
        for config in configs
    )


def answer(
    call: Call, name: str, outcome: CreateOutcome, settings: tuple[bytes, ...], settings_error: ErrorCode
) -> Any:
    """Return the result of a topic. ``settings_error``: why its settings are not described."""
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
        topic_config_error_code=0 if refusal else int(settings_error),
    )
