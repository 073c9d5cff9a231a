"""CreatePartitions (37): add partitions to topics. Answered when they are durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.steps import Steps, counted, pieces
from ...common.shared_bytes import SharedBytes
from ..audit.audited import recorded
from ..audit.audited_topics import Growth
from ..authorization.authorize import Verdicts, authorize_in_steps
from ..authorization.checks import ALTER_TOPIC
from ..call import Call
from ..codec.codes import kafka_error
from ..codec.step_writer import write_in_steps
from ..quotas.mutation_quota import charge, mutation_quota, throttle
from ..refusals import report_refusals


def handle(call: Call) -> Steps[None]:
    """Grow each topic separately. A name that occurs twice in the request is refused, with one result."""
    occurrences = yield from counted(topic.name for topic in call.request.topics)
    requests: dict[str, Any] = {}
    for topics in pieces(call.request.topics):
        requests.update((topic.name, topic) for topic in topics)
        yield
    verdicts = yield from authorize_in_steps(call, ALTER_TOPIC, requests)
    outcomes: dict[str, CoordinatorError | None] = {}

    def done(name: str, refusal: CoordinatorError | None) -> None:
        outcomes[name] = refusal
        if len(outcomes) == len(requests):
            call.encode_and_respond(lambda: encode(call, requests, outcomes))

    if not requests:
        call.encode_and_respond(lambda: encode(call, requests, outcomes))
    for name, topic in requests.items():
        try:
            check_request(name, occurrences[name], verdicts)
            grow(call, topic, partial(done, name))
        except CoordinatorError as refusal:
            done(name, refusal.with_traceback(None))  # its frames refer to the outcomes: a cycle
        yield


def encode(
    call: Call, names: Iterable[str], outcomes: Mapping[str, CoordinatorError | None]
) -> Steps[bytes | SharedBytes]:
    yield from report_refusals(call, outcomes.values())
    results = (result(call, name, outcomes[name]) for name in names)
    response = call.make("CreatePartitionsResponse", throttle_time=throttle(call), results=results)
    return (yield from write_in_steps(response))


def result(call: Call, name: str, refusal: CoordinatorError | None) -> Any:
    return call.make(
        "CreatePartitionsTopicResult",
        name=name,
        error_code=kafka_error(refusal.code if refusal else ErrorCode.NONE),
        error_message=str(refusal) or None if refusal else None,
    )


def check_request(name: str, occurrences: int, verdicts: Verdicts) -> None:
    """Raise CoordinatorError if a topic occurs more than once, or is denied."""
    if occurrences > 1:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    if not verdicts.allows(name):
        raise CoordinatorError(verdicts.code, "")


def grow(call: Call, request: Any, done: Callable[[CoordinatorError | None], None]) -> None:
    """Call ``done`` with the outcome. Raises CoordinatorError if the request is invalid."""
    topic = call.services.topics.get(request.name)
    if topic is None:
        raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    count = len(topic.partitions)
    if request.count == count:
        raise CoordinatorError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if request.count < count:
        raise CoordinatorError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {request.name} currently has {count} partition(s); {request.count} would not be an increase.",
        )
    if request.assignments is not None:
        check_assignments(
            request.assignments, request.count - count, call.services.cluster.leader(topic.name, 0).node_id
        )
    call.services.topic_admin.check_growable(topic, request.count)
    charge(mutation_quota(call), request.count - count)
    if call.request.validate_only:
        done(None)
    else:
        growth = Growth(topic, request.count)
        call.services.topic_admin.grow(topic, request.count, recorded(call, done, growth.alteration), growth)


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
