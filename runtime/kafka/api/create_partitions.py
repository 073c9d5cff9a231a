"""CreatePartitions (37): a topic gets more partitions. The answer comes when they are durable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ....actors.errors import CoordinatorError, ErrorCode
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error


def handle(call: Call) -> None:
    """Each topic for itself; a name that stands there twice is refused once, and nothing is done for it."""
    times = Counter(topic.name for topic in call.request.topics)
    asked = {topic.name: topic for topic in call.request.topics}
    outcomes: dict[str, CoordinatorError | None] = {}

    def done(name: str, refusal: CoordinatorError | None) -> None:
        outcomes[name] = refusal
        if len(outcomes) == len(asked):
            call.finish(lambda: encode(call, [(each, outcomes[each]) for each in asked]))

    if not asked:
        call.reply_bytes(encode(call, []))
    for name, topic in asked.items():
        try:
            grow(call, topic, times[name], partial(done, name))
        except CoordinatorError as refusal:
            done(name, refusal)


def encode(call: Call, outcomes: Sequence[tuple[str, CoordinatorError | None]]) -> bytes:
    results = tuple(result(call, name, refusal) for name, refusal in outcomes)
    return call.schema.write(call.make("CreatePartitionsResponse", throttle_time=NO_THROTTLE, results=results))


def result(call: Call, name: str, refusal: CoordinatorError | None) -> Any:
    return call.make(
        "CreatePartitionsTopicResult",
        name=name,
        error_code=kafka_error(refusal.code if refusal else ErrorCode.NONE),
        error_message=str(refusal) or None if refusal else None,
    )


def grow(call: Call, asked: Any, times: int, done: Callable[[CoordinatorError | None], None]) -> None:
    """Raises CoordinatorError with Kafka's code, or calls ``done`` when it is known what became of it."""
    if times > 1:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
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
    if call.request.validate_only:
        done(None)
    else:
        call.node.topics.grow(topic, asked.count, done)


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
