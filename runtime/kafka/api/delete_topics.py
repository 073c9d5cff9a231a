"""DeleteTopics (20): by name, from v6 also by id. Answered when the deletion is durable.

The committed offsets of the topics are deleted afterwards (``actors/coordinator/topic_cleanup.py``), as in Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.steps import Steps, counted, pieces
from ...common.shared_bytes import SharedBytes
from ...topics.topic import Topic
from ..audit.audited import record_in_steps
from ..audit.audited_topics import deletion
from ..authorization.authorize import Verdicts, authorize_in_steps
from ..authorization.checks import DELETE_TOPIC, DESCRIBE_TO_DELETE
from ..call import Call, release_later
from ..codec.codes import kafka_error
from ..codec.step_writer import write_in_steps
from ..quotas.mutation_quota import charge, mutation_quota, throttle

CHECKS_PER_STEP = 16  # each takes about 5 us


class DeleteOutcome(NamedTuple):
    """The outcome of one requested deletion. ``topic`` is set unless the request was refused."""

    name: str | None
    topic_id: UUID | None
    topic: Topic | None = None
    refusal: CoordinatorError | None = None


class Access(NamedTuple):
    """Which topics the client may describe, and which it may delete."""

    describe: Verdicts
    delete: Verdicts


def handle(call: Call) -> Steps[None]:
    requested = yield from counted(requested_topics(call))
    names: list[str] = []
    for keys in pieces(requested):
        names += (name for key in keys if (name := resolve_name(call, *key)) is not None)
        yield
    describe = yield from authorize_in_steps(call, DESCRIBE_TO_DELETE, names)
    access = Access(describe, (yield from authorize_in_steps(call, DELETE_TOPIC, names)))
    outcomes: list[DeleteOutcome] = []
    for piece in pieces(requested.items(), CHECKS_PER_STEP):
        outcomes += (check(call, access, *key, count) for key, count in piece)
        yield
    yield from delete(call, outcomes)
    release_later(call, requested, names)


def encode(call: Call, outcomes: list[DeleteOutcome], final: Iterable[DeleteOutcome]) -> Steps[bytes | SharedBytes]:
    if call.services.audit.is_on:
        final = list(final)
        deleted = (outcome.topic for outcome in final if outcome.refusal is None)
        yield from record_in_steps(call, (None if topic is None else deletion(topic) for topic in deleted))
    responses = (answer(call, outcome) for outcome in final)
    body = yield from write_in_steps(
        call.make("DeleteTopicsResponse", throttle_time=throttle(call), responses=responses)
    )
    release_later(call, outcomes)
    return body


def requested_topics(call: Call) -> Iterator[tuple[str | None, UUID | None]]:
    """Return the requested names and ids."""
    if call.version >= 6:
        return ((state.name, state.topic_id) for state in call.request.topics)
    return ((name, None) for name in call.request.topic_names)


def resolve_name(call: Call, name: str | None, topic_id: UUID | None) -> str | None:
    """Return the name of a requested topic, None for an unknown id."""
    if name is not None:
        return name
    topic = call.services.topics.by_id(topic_id)
    return None if topic is None else topic.name


def check(call: Call, access: Access, name: str | None, topic_id: UUID | None, count: int) -> DeleteOutcome:
    try:
        if count > 1:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"topic {name or topic_id} occurs twice in the request")
        if call.services.is_loading:
            raise CoordinatorError(ErrorCode.REQUEST_TIMED_OUT, "the log is still being loaded; try again")
        check_key(name, topic_id)
        denied = check_access(call, access, name, topic_id)
        if denied is not None:
            return denied
        topic = find(call, name, topic_id)
        call.services.topic_admin.check_deletable(topic)
        charge(mutation_quota(call), len(topic.partitions))
        return DeleteOutcome(topic.name, topic.topic_id, topic)
    except CoordinatorError as refusal:
        return DeleteOutcome(name, topic_id, refusal=refusal.with_traceback(None))


def check_key(name: str | None, topic_id: UUID | None) -> None:
    if (name is None) == (topic_id is None):
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "expected a topic's name or its id, not both")


def check_access(call: Call, access: Access, name: str | None, topic_id: UUID | None) -> DeleteOutcome | None:
    """Return the outcome of a topic that is denied, None if it is not.

    A client that may not describe it learns neither whether the name exists, nor the name that belongs to the id.
    """
    resolved = resolve_name(call, name, topic_id)
    refusal = CoordinatorError(*DELETE_TOPIC.denial)
    if resolved is None:
        return None
    if not access.describe.allows(resolved):
        return DeleteOutcome(name, topic_id, refusal=refusal)
    if not access.delete.allows(resolved):
        return DeleteOutcome(resolved, topic_id, refusal=refusal)
    return None


def find(call: Call, name: str | None, topic_id: UUID | None) -> Topic:
    """Return the requested topic. Raises CoordinatorError."""
    topics = call.services.topics
    topic: Topic | None = topics.by_id(topic_id) if name is None else topics.get(name)
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise CoordinatorError(code, "there is no such topic")
    return topic


def delete(call: Call, checked: list[DeleteOutcome]) -> Steps[None]:
    """Delete the topics that were not refused. A topic that is requested by name and by id is kept, as in Kafka."""
    times = Counter[UUID | None]()
    for piece in pieces(checked):
        times.update(outcome.topic_id for outcome in piece if outcome.topic)
        yield
    twice = CoordinatorError(ErrorCode.INVALID_REQUEST, "the topic is given by its name and by its id")
    outcomes: list[DeleteOutcome] = []
    for piece in pieces(checked):
        outcomes += (
            outcome._replace(topic=None, refusal=twice) if times[outcome.topic_id] > 1 else outcome for outcome in piece
        )
        yield
    topics = [outcome.topic for outcome in outcomes if outcome.topic]
    if topics:
        call.services.topic_admin.delete(topics, partial(finish, call, outcomes))
    else:
        call.encode_and_respond(lambda: encode(call, outcomes, outcomes))


def finish(call: Call, outcomes: list[DeleteOutcome], refusals: Sequence[CoordinatorError | None]) -> None:
    """Answer with the refusals: those of the request, and those of ``TopicAdmin`` for the topics, in their order."""
    call.encode_and_respond(lambda: encode(call, outcomes, final_outcomes(outcomes, iter(refusals))))


def final_outcomes(
    outcomes: Iterable[DeleteOutcome], refusals: Iterator[CoordinatorError | None]
) -> Iterator[DeleteOutcome]:
    return (outcome._replace(refusal=next(refusals)) if outcome.topic else outcome for outcome in outcomes)


def answer(call: Call, outcome: DeleteOutcome) -> Any:
    refusal = outcome.refusal
    return call.make(
        "DeletableTopicResult",
        name=outcome.name,
        topic_id=outcome.topic_id,
        error_code=kafka_error(refusal.code if refusal else ErrorCode.NONE),
        error_message=(str(refusal) or None) if refusal else None,
    )
