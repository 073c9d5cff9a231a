"""Metadata (3): which topics there are, and that this broker leads them all.

A topic that is created here because it was asked for stands in the same answer. Kafka answers "unknown" first and
creates meanwhile; clients take both, and a test that need not ask twice is a better test.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from ....actors.errors import CoordinatorError, ErrorCode
from ...log.format.batch import LEADER_EPOCH
from ...topics.names import check_name, is_internal
from ...topics.topic import Topic
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error

ALL_CLUSTER_OPERATIONS = 8096  # bits of what one may do to a cluster or a topic; nothing is forbidden here
ALL_TOPIC_OPERATIONS = 3576
NOT_ASKED = -(2**31)

FIND_BY_ID_SINCE = 12
NO_TOPICS_MEANS_ALL = 0  # the only version whose request cannot say null


def handle(call: Call) -> None:
    missing_names = names_to_create(call)
    if missing_names:
        wanted = [(name, call.node.settings.num_partitions) for name in missing_names]
        call.node.topics.create_many(wanted, lambda created: call.finish(lambda: encode(call)))
    else:
        call.reply_bytes(encode(call))


def encode(call: Call) -> bytes:
    node = call.node
    broker = call.make(
        "MetadataResponseBroker", node_id=node.node_id, host=node.advertised_host, port=node.advertised_port, rack=None
    )
    asks_cluster = getattr(call.request, "include_cluster_authorized_operations", False)
    return call.schema.write(
        call.make(
            "MetadataResponse",
            throttle_time=NO_THROTTLE,
            brokers=(broker,),
            cluster_id=node.cluster_id,
            controller_id=node.node_id,
            topics=tuple(topics(call)),
            cluster_authorized_operations=ALL_CLUSTER_OPERATIONS if asks_cluster else NOT_ASKED,
            error_code=kafka_error(ErrorCode.NONE),
        )
    )


def asked_topics(call: Call) -> dict[tuple[str | None, UUID | None], None] | None:
    """The names and ids that are asked for, in order; None when all topics are."""
    asked = call.request.topics
    if asked is None or (not asked and call.version == NO_TOPICS_MEANS_ALL):
        return None
    return dict.fromkeys((topic.name, getattr(topic, "topic_id", None)) for topic in asked)


def topics(call: Call) -> Iterable[Any]:
    keys, catalogue = asked_topics(call), call.node.topics
    if keys is None:
        return [found(call, topic) for name in catalogue.names() if (topic := catalogue.get(name))]
    return [look_up(call, name, topic_id) for name, topic_id in keys]


def names_to_create(call: Call) -> list[str]:
    """What is asked for and not there, if the client and the settings allow that it is created."""
    # Before v4 a client could not say, and was taken to agree.
    is_allowed = getattr(call.request, "allow_auto_topic_creation", True)
    if not (is_allowed and call.node.settings.auto_create_topics_enable):
        return []
    names = (name for name, topic_id in asked_topics(call) or () if name and topic_id is None)
    return [name for name in names if call.node.topics.get(name) is None]


def look_up(call: Call, name: str | None, topic_id: UUID | None) -> Any:
    if topic_id is not None and call.version >= FIND_BY_ID_SINCE:
        topic = call.node.topics.by_id(topic_id)
        return found(call, topic) if topic else missing(call, ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    if topic_id is not None or name is None:
        return missing(call, ErrorCode.INVALID_REQUEST, name, topic_id)
    topic = call.node.topics.get(name)
    return found(call, topic) if topic else missing(call, name_error(name), name, None)


def name_error(name: str) -> ErrorCode:
    try:
        check_name(name)
    except CoordinatorError as refusal:
        return refusal.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def found(call: Call, topic: Topic) -> Any:
    asks = getattr(call.request, "include_topic_authorized_operations", False)
    return call.make(
        "MetadataResponseTopic",
        error_code=kafka_error(ErrorCode.NONE),
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(partition(call, index) for index in range(len(topic.partitions))),
        topic_authorized_operations=ALL_TOPIC_OPERATIONS if asks else NOT_ASKED,
    )


def partition(call: Call, index: int) -> Any:
    node_id = call.node.node_id
    return call.make(
        "MetadataResponsePartition",
        error_code=kafka_error(ErrorCode.NONE),
        partition_index=index,
        leader_id=node_id,
        leader_epoch=LEADER_EPOCH,
        replica_nodes=(node_id,),
        isr_nodes=(node_id,),
        offline_replicas=(),
    )


def missing(call: Call, error: ErrorCode, name: str | None, topic_id: UUID | None) -> Any:
    return call.make(
        "MetadataResponseTopic",
        error_code=kafka_error(error),
        name=name if call.version >= FIND_BY_ID_SINCE else name or "",
        topic_id=topic_id,
        is_internal=is_internal(name or ""),
        partitions=(),
    )
