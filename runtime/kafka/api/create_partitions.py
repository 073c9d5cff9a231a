"""CreatePartitions (37): a topic gets more partitions. The answer comes when they are durable."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ....actors.errors import CoordinatorError, ErrorCode
from ..call import Call
from ..codes import NO_THROTTLE, kafka_error


def handle(call: Call) -> None:
    """Each topic for itself; a name that stands there twice is refused once, and nothing is done for it."""
    times = Counter(topic.name for topic in call.request.topics)
    asked = {topic.name: topic for topic in call.request.topics}
    results = tuple(result(call, topic, times[name]) for name, topic in asked.items())
    call.reply(call.make("CreatePartitionsResponse", throttle_time=NO_THROTTLE, results=results))


def result(call: Call, topic: Any, times: int) -> Any:
    refusal: CoordinatorError | None = None
    try:
        if times > 1:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        grow(call, topic)
    except CoordinatorError as error:
        refusal = error
    return call.make(
        "CreatePartitionsTopicResult",
        name=topic.name,
        error_code=kafka_error(refusal.code if refusal else ErrorCode.NONE),
        error_message=str(refusal) or None if refusal else None,
    )


def grow(call: Call, asked: Any) -> None:
    """Raises CoordinatorError with Kafka's code."""
    topic = call.node.topics.get(asked.name)
    if topic is None:
        raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    have = len(topic.partitions)
    if asked.count == have:
        raise CoordinatorError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
    if asked.count < have:
        raise CoordinatorError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {asked.name} currently has {have} partition(s); {asked.count} would not be an increase.",
        )
    if asked.assignments is not None:
        check_assignments(asked.assignments, asked.count - have, call.node.node_id)
    call.node.topics.check_growable(topic, asked.count)
    if not call.request.validate_only:
        call.node.topics.grow(topic, asked.count)


def check_assignments(assignments: tuple[Any, ...], added: int, node_id: int) -> None:
    if len(assignments) != added:
        raise CoordinatorError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but {len(assignments)} assignment(s) were specified.",
        )
    for assignment in assignments:
        if assignment.broker_ids != (node_id,):
            raise CoordinatorError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"a partition on {list(assignment.broker_ids)}: expected [{node_id}]",
            )
