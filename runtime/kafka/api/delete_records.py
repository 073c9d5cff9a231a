"""DeleteRecords (21): move the start offset of partitions. Records are in memory, so nothing is made durable.

Committed offsets stay. A consumer whose offset was deleted gets OFFSET_OUT_OF_RANGE and resets, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.steps import Steps
from ...security.audit import Change
from ...topics.topic import Topic
from ..audit.audited import record
from ..authorization.authorize import Verdicts, authorize_in_steps
from ..authorization.checks import DELETE_RECORDS
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error
from .list_offsets import leader_error

NO_LOW_WATERMARK = -1


def handle(call: Call) -> Steps[None]:
    """Delete from each partition separately. If a topic or partition occurs twice, the last one counts, as in Kafka."""
    requests = {topic.name: topic for topic in call.request.topics}
    verdicts = yield from authorize_in_steps(call, DELETE_RECORDS, requests)
    topics = (
        call.make("DeleteRecordsTopicResult", name=name, partitions=results(call, verdicts, topic))
        for name, topic in requests.items()
    )
    yield from call.respond_in_steps(call.make("DeleteRecordsResponse", throttle_time=NO_THROTTLE, topics=topics))


def results(call: Call, verdicts: Verdicts, request: Any) -> Iterator[Any]:
    topic = call.services.topics.get(request.name)
    offsets = {partition.partition_index: partition.offset for partition in request.partitions}
    denial = verdicts.error_of(request.name)
    for index, offset in offsets.items():
        yield (yield from result(call, topic, index, offset, denial))


def result(call: Call, topic: Topic | None, index: int, offset: int, denial: ErrorCode) -> Steps[Any]:
    low_watermark, error = NO_LOW_WATERMARK, ErrorCode.NONE
    try:
        if denial:
            raise CoordinatorError(denial, "")
        if topic is None:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
        if leader_error(call, topic):
            raise CoordinatorError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node leads the topic")
        log = topic.peek(index)
        before = NO_LOW_WATERMARK if log is None else log.start_offset
        low_watermark = yield from call.services.topic_admin.delete_records(topic, index, offset)
        if call.services.audit.is_on and low_watermark != before:
            offsets = ({"start_offsets": {str(index): start}} for start in (before, low_watermark))
            record(call, [Change("delete records", f"Topic:{topic.name}", *offsets)])
    except CoordinatorError as refusal:
        error = refusal.code
    return call.make(
        "DeleteRecordsPartitionResult",
        partition_index=index,
        low_watermark=low_watermark,
        error_code=kafka_error(error),
    )
