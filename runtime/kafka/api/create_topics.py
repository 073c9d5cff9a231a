"""CreateTopics (19). Answered when the topics are durable, so a client may use them at once.

A replication factor other than 1 is refused, as in a Kafka cluster of one broker. A topic keeps the settings that it is
given, see ``topics.settings``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.steps import Steps, pieces
from ...common.shared_bytes import SharedBytes
from ...settings.table import PARTITIONS_MAX
from ...topics.setting_values import Overrides, check_overrides
from ...topics.settings import TOPIC_SETTINGS
from ...topics.store import NewTopic
from ...topics.topic import Topic
from ..audit.audited import record_in_steps
from ..audit.audited_topics import creation
from ..authorization.authorize import Verdicts, authorize_in_steps
from ..authorization.checks import CREATE_TOPIC, DESCRIBE_NEW_TOPIC_CONFIGS
from ..call import Call
from ..codec.codes import kafka_error
from ..codec.step_writer import write_in_steps
from ..quotas.mutation_quota import charge, mutation_quota, throttle
from ..refusals import report_refusals
from .describe_configs import Config, topic_config

SETTINGS_FROM = 5  # KIP-525
USE_DEFAULT = -1
REPLICAS = 1
CHECKS_PER_STEP = 16  # each takes about 5 us

CreateOutcome = Topic | CoordinatorError | NewTopic
"""The created topic, the refusal, or the topic that is to be created."""


def handle(call: Call) -> Steps[None]:
    requests: dict[str, Any] = {}
    occurrences = Counter[str]()
    for topics in pieces(call.request.topics):
        requests.update((topic.name, topic) for topic in topics)
        occurrences.update(topic.name for topic in topics)
        yield
    to_create: list[NewTopic] = []
    outcomes = yield from check_all(call, requests, occurrences, to_create)
    if call.request.validate_only or not to_create:
        call.encode_and_respond(lambda: encode(call, outcomes))
    else:
        call.services.topic_admin.create(to_create, partial(finish, call, outcomes))


def finish(call: Call, outcomes: dict[str, CreateOutcome], created: Sequence[Topic | CoordinatorError]) -> None:
    """Answer with the created topics and the refusals."""
    names = [name for name, outcome in outcomes.items() if isinstance(outcome, NewTopic)]
    call.encode_and_respond(lambda: encode(call, {**outcomes, **dict(zip(names, created, strict=True))}))


def encode(call: Call, outcomes: dict[str, CreateOutcome]) -> Steps[bytes | SharedBytes]:
    yield from report_refusals(call, outcomes.values())
    yield from record_in_steps(call, map(creation, outcomes.values()))
    response = call.make("CreateTopicsResponse", throttle_time=throttle(call), topics=answers(call, outcomes))
    return (yield from write_in_steps(response))


def answers(call: Call, outcomes: dict[str, CreateOutcome]) -> Iterator[Any]:
    """Yield the results. Topics that were given the same settings share their bytes."""
    encoded: dict[object, tuple[bytes, ...]] = {}
    verdicts = yield from authorize_in_steps(call, DESCRIBE_NEW_TOPIC_CONFIGS, outcomes)
    for name in list(outcomes):
        outcome = outcomes.pop(name)  # so that thousands of outcomes are not freed at once
        settings: tuple[bytes, ...] = ()
        if call.version >= SETTINGS_FROM and verdicts.allows(name) and not isinstance(outcome, CoordinatorError):
            count = len(encoded)
            settings = described_settings(call, overrides_of_outcome(outcome), encoded)
            if len(encoded) > count:
                yield None  # a pause: encoding all settings of a topic takes half a millisecond
        yield answer(call, name, outcome, settings, verdicts.error_of(name))


def check_all(
    call: Call, requests: dict[str, Any], occurrences: dict[str, int], to_create: list[NewTopic]
) -> Steps[dict[str, CreateOutcome]]:
    """Return for each name the topic to create, or the refusal. Adds those to create to ``to_create``.

    Empties ``requests`` and ``occurrences``: what is freed in one piece takes long.
    """
    verdicts = yield from authorize_in_steps(call, CREATE_TOPIC, requests)
    default, total = call.services.settings.num_partitions, 0
    for topics in pieces(requests.values()):
        total += sum(max(partitions_of(topic, default), 0) for topic in topics)
        yield
    outcomes: dict[str, CreateOutcome] = {}
    already_requested, quota = 0, mutation_quota(call)
    for number, name in enumerate(list(requests), 1):
        topic = requests.pop(name)
        try:
            check_total(total)
            check_request(name, occurrences.pop(name), verdicts)
            new_topic = check(call, topic, partitions_of(topic, default), already_requested)
            charge(quota, new_topic.partitions)
            outcomes[name] = new_topic
            to_create.append(new_topic)
            already_requested += partitions_of(topic, default)
        except CoordinatorError as refusal:
            outcomes[name] = refusal.with_traceback(None)  # its frames refer to the outcomes: a cycle
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


def check(call: Call, topic: Any, partitions: int, already_requested: int) -> NewTopic:
    """Return the topic to create. Raises CoordinatorError if the topic cannot be created.

    ``already_requested``: partitions of other topics of this request.
    """
    call.services.topic_admin.check_new(topic.name, partitions, already_requested)
    settings = check_overrides(given_settings(topic.configs))
    if topic.assignments:
        check_assignments(topic, call.services.cluster.leader(topic.name, 0).node_id)
    elif topic.replication_factor not in (REPLICAS, USE_DEFAULT):
        raise CoordinatorError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {topic.replication_factor}: expected {REPLICAS}, or {USE_DEFAULT} for the default",
        )
    return NewTopic(topic.name, partitions, settings)


def given_settings(configs: Iterable[Any]) -> dict[str, str]:
    """Return the texts by name. Raises CoordinatorError for a missing value."""
    texts: dict[str, str] = {}
    for config in configs:
        if config.value is None:
            raise CoordinatorError(
                ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {config.name}"
            )
        texts[config.name] = config.value
    return texts


def check_assignments(topic: Any, node_id: int) -> None:
    """Check a manual assignment: partitions 0, 1, 2, ... each on the leader, without partition count and factor."""
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


def overrides_of_outcome(outcome: Topic | NewTopic) -> Overrides:
    return outcome.policy.overrides if isinstance(outcome, Topic) else outcome.settings


def described_settings(call: Call, overrides: Overrides, encoded: dict[object, tuple[bytes, ...]]) -> tuple[bytes, ...]:
    """Return the encoded settings of a new topic. ``encoded``: those of topics before it."""
    key = tuple(overrides.items())
    if key not in encoded:
        configs = (topic_config(call, overrides, setting) for setting in TOPIC_SETTINGS)
        encoded[key] = tuple(call.schema.write_item(described_setting(call, config)) for config in configs)
    return encoded[key]


def described_setting(call: Call, config: Config) -> Any:
    return call.make(
        "CreatableTopicConfigs",
        name=config.name,
        value=config.value,
        read_only=False,
        config_source=config.source,
        is_sensitive=False,
    )


def answer(
    call: Call, name: str, outcome: CreateOutcome, settings: tuple[bytes, ...], settings_error: ErrorCode
) -> Any:
    """Return the result of a topic. ``settings_error``: why its settings are not described."""
    refusal = outcome if isinstance(outcome, CoordinatorError) else None
    partitions = (
        len(outcome.partitions)
        if isinstance(outcome, Topic)
        else outcome.partitions
        if isinstance(outcome, NewTopic)
        else -1
    )
    return call.make(
        "CreatableTopicResult",
        name=name,
        topic_id=outcome.topic_id if isinstance(outcome, Topic) else None,
        error_code=kafka_error(refusal.code if refusal else ErrorCode.NONE),
        error_message=(str(refusal) or None) if refusal else None,
        num_partitions=partitions,
        replication_factor=-1 if refusal else REPLICAS,
        configs=() if refusal else settings,
        topic_config_error_code=0 if refusal else int(settings_error),
    )
