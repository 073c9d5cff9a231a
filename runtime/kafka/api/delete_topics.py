"""DeleteTopics (20): by name, from v6 also by id. The answer comes when the change is durable.

What groups have committed of them is deleted afterwards (``actors/coordinator/topic_cleanup.py``), as in Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.messages import TopicsDeleted
from ...topics.topic import Topic
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error


class Outcome(NamedTuple):
    """What became of one topic that was to be deleted; ``topic`` is set as long as nothing is against it."""

    name: str | None
    topic_id: UUID | None
    topic: Topic | None = None
    refusal: CoordinatorError | None = None


def handle(call: Call) -> None:
    delete(call, [examine(call, *asked, times) for asked, times in wanted(call).items()])


def encode(call: Call, outcomes: Iterable[Outcome]) -> bytes:
    responses = tuple(answer(call, outcome) for outcome in outcomes)
    return call.schema.write(call.make("DeleteTopicsResponse", throttle_time=NO_THROTTLE, responses=responses))


def wanted(call: Call) -> Counter[tuple[str | None, UUID | None]]:
    """The names and ids that are asked for, in order, and how often each."""
    if call.version >= 6:
        return Counter((state.name, state.topic_id) for state in call.request.topics)
    return Counter((name, None) for name in call.request.topic_names)


def examine(call: Call, name: str | None, topic_id: UUID | None, times: int) -> Outcome:
    try:
        if times > 1:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"topic {name or topic_id} stands twice in the request")
        if call.node.is_loading:
            raise CoordinatorError(ErrorCode.REQUEST_TIMED_OUT, "the log is still being loaded; try again")
        topic = find(call, name, topic_id)
        call.node.topics.check_deletable(topic)
        return Outcome(topic.name, topic.topic_id, topic)
    except CoordinatorError as refusal:
        return Outcome(name, topic_id, refusal=refusal)


def find(call: Call, name: str | None, topic_id: UUID | None) -> Topic:
    """The topic that is meant. Raises CoordinatorError with Kafka's code."""
    if (name is None) == (topic_id is None):
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "expected a topic's name or its id, not both")
    topics = call.node.topics
    topic: Topic | None = topics.by_id(topic_id) if name is None else topics.get(name)
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise CoordinatorError(code, "there is no such topic")
    return topic


def delete(call: Call, outcomes: list[Outcome]) -> None:
    """Delete what may go, all at once. A topic that was given by name and by id stays, as in Kafka."""
    times = Counter(outcome.topic_id for outcome in outcomes if outcome.topic)
    twice = CoordinatorError(ErrorCode.INVALID_REQUEST, "the topic is given by its name and by its id")
    outcomes = [
        outcome._replace(topic=None, refusal=twice) if times[outcome.topic_id] > 1 else outcome for outcome in outcomes
    ]
    going = [outcome.topic for outcome in outcomes if outcome.topic]
    if going:
        call.node.topics.delete_many(going, partial(finish, call, outcomes))
    else:
        call.reply_bytes(encode(call, outcomes))


def finish(call: Call, outcomes: list[Outcome], refusals: Sequence[CoordinatorError | None]) -> None:
    """The change is durable, or it is known why not. Groups forget their offsets before anybody can commit again."""
    going = [outcome for outcome in outcomes if outcome.topic]
    told = {one.topic_id: refusal for one, refusal in zip(going, refusals, strict=True)}
    gone = frozenset(one.topic.name for one in going if one.topic and told[one.topic_id] is None)
    if gone:
        call.node.groups.coordinator.tell(TopicsDeleted(gone))
    ended = [one._replace(refusal=told[one.topic_id]) if one.topic else one for one in outcomes]
    call.finish(lambda: encode(call, ended))


def answer(call: Call, outcome: Outcome) -> Any:
    refusal = outcome.refusal
    return call.make(
        "DeletableTopicResult",
        name=outcome.name,
        topic_id=outcome.topic_id,
        error_code=kafka_error(refusal.code if refusal else ErrorCode.NONE),
        error_message=str(refusal) if refusal else None,
    )
